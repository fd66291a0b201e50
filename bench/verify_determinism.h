/* `lockstep verify --determinism`: the bits of runs that should agree, compared. */
#ifndef LS_BENCH_VERIFY_DETERMINISM_H
#define LS_BENCH_VERIFY_DETERMINISM_H

#include "impls/options.h"

/* For every model and dtype of the options, a row a relation (determinism_relations.h) and implementation, a column a device
 * count: parameters and reduced gradient after the options' steps, by hash, all on one global batch that divides by every
 * device count. Appends a row a cell to --json. LS_CHECK_FAILED when a cell differs unexpectedly or a run failed. */
ls_rc ls_verify_determinism(const char *program, const ls_options *options);

#endif
