/* What every implementation does the same way when it opens. */
#ifndef LS_IMPLS_SETUP_H
#define LS_IMPLS_SETUP_H

#include "impls/run.h"
#include "reference/replica.h"

/* The replica options that a run asks for: dtype, normalisation in force, loss, optimizer, capture. max_batch in samples. */
ls_rc ls_setup_options(const ls_run *run, int device, size_t max_batch, ls_replica_options *out);

/* Makes device current and opens a replica of model there; the caller closes it. Parameters are not set. */
ls_rc ls_setup_replica(const ls_run *run, const ls_model *model, int device, size_t max_batch, ls_replica **out);

/* PyTorch's initial values for the seed into the replica. Synchronous; the replica's device is current. */
ls_rc ls_setup_initial(ls_replica *replica, uint64_t seed);

/* What each rank's gradient is multiplied by before the sum over ranks: 1/world. */
double ls_setup_share(size_t world);

/* The denominator of a mean loss over count samples: count, or 1 without samples, where every term is absent anyway. */
static inline double ls_setup_denominator(size_t count) {
    return count == 0 ? 1.0 : (double)count;
}

#endif
