/* What the ranks of ddp must agree upon before they start. */
#ifndef LS_IMPLS_DDP_FINGERPRINT_H
#define LS_IMPLS_DDP_FINGERPRINT_H

#include "impls/buckets.h"
#include "impls/run.h"

/* A hash of everything that must be alike on all ranks: a difference would reduce unlike gradients, or hang. */
uint64_t ls_ddp_fingerprint(const ls_run *run, const ls_model *model, const ls_bucket_plan *plan);

#endif
