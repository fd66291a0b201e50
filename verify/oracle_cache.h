/* The oracle's gradient for what each device computed, remembered by content: implementations that start a step from the
 * same parameters with the same samples and take the same decisions share one computation. */
#ifndef LS_VERIFY_ORACLE_CACHE_H
#define LS_VERIFY_ORACLE_CACHE_H

#include "reference/oracle/oracle.h"
#include "verify/case.h"

typedef struct ls_oracle_cache ls_oracle_cache;

/* The gradient of the sum of the loss's terms over one device's samples in one step, whatever the reduction, at the parameters that the
 * step started from on its rank, following the device's decisions. */
typedef struct ls_oracle_local {
    double *grads; /* [param_count], owned by the cache until the next case of another model */
    double loss_sum;
    ls_oracle_decisions decisions;
    double *statistics, *statistics_error; /* [buffer_count], owned likewise; see ls_oracle_input */
} ls_oracle_local;

ls_rc ls_oracle_cache_open(ls_oracle_cache **out);
void ls_oracle_cache_close(ls_oracle_cache *cache);

ls_rc ls_oracle_cache_local(ls_oracle_cache *cache, const ls_case *c, size_t step, size_t device,
                            const ls_oracle_local **out);

/* What each device's gradient above is multiplied by in the gradient of the run's loss: the loss's derivative with respect to
 * its rank's sum of terms, and the mean over ranks where ranks average. weights: [devices]. *loss: mean over ranks. */
ls_rc ls_oracle_cache_weights(ls_oracle_cache *cache, const ls_case *c, size_t step, double *weights, double *loss);

/* Gradient of the run's loss in a step (the mean over ranks of their losses; dp: one loss over all samples), and that loss.
 * grads: [param_count], overwritten. */
ls_rc ls_oracle_cache_global(ls_oracle_cache *cache, const ls_case *c, size_t step, double *grads, double *loss);

/* What rounding may make of a correct device's step (oracle_cache_rounding.c). */
typedef struct ls_rounding {
    double *l2, *max;             /* [tensors]: the 2-norm and the largest element of the gradient's error */
    double *rank_loss, *loss_sum; /* [ranks], [devices]: the errors of a rank's loss and a device's sum of terms */
} ls_rounding;

/* LS_ROUNDING_BOUND: bounds that hold but with probability 1e-7 each, in some twenty times the time of the oracle's gradient.
 * LS_ROUNDING_TYPICAL: what is usual, well within those, in a quarter of the time. Owned by the cache and kept as long as its
 * other answers. */
typedef enum ls_rounding_kind { LS_ROUNDING_TYPICAL = 0, LS_ROUNDING_BOUND } ls_rounding_kind;
ls_rc ls_oracle_cache_rounding(ls_oracle_cache *cache, const ls_case *c, size_t step, ls_rounding_kind kind,
                               const ls_rounding **out);

/* Runs of the oracle so far, and answers that needed none. */
void ls_oracle_cache_counts(const ls_oracle_cache *cache, size_t *computed, size_t *reused);

#endif
