/* From a wrong gradient to its likely cause. Verdicts are about how a gradient differs, never about whether it passes. */
#ifndef LS_VERIFY_DIAGNOSE_H
#define LS_VERIFY_DIAGNOSE_H

#include "verify/check.h"

/* "fc1.weight[3,17] (bucket 1)"; the bucket where the case has a plan. */
void ls_place_name(const ls_case *c, size_t element, char *text, size_t size);

/* What turned the local gradients of a step into a rank's reduced gradient, tensor by tensor: tries each known fault (a
 * scale, one rank's own gradient, a rank lost, counted twice or a step late,
 * moved by an offset or in another order) and names the one that explains it in finding->cause, and in finding->tensors
 * every tensor that differs with the scale that fits. */
void ls_diagnose_reduction(const ls_case *c, size_t step, size_t rank, ls_finding *finding);

/* Which device's local gradient departs from the oracle, when a global gradient does. limit: relative distance that a good
 * one keeps. */
ls_rc ls_diagnose_local(const ls_check_input *input, size_t step, double limit, char *cause, size_t size);

/* Whether found[first .. first+count) is the reference moved by an offset: found[i] = reference[i + *offset] to a relative
 * error of limit, in the 2-norm over the elements that both have (at least half of them, and not all zero). reference: of
 * the whole flat buffer of `size` elements. (diagnose_order.c) */
bool ls_order_shifted(ls_dtype dtype, const void *found, const double *reference, size_t first, size_t count,
                      size_t size, double limit, long *offset);
/* Whether it holds the same values in another order, to the same error. False, too, when memory is short. */
bool ls_order_permuted(ls_dtype dtype, const void *found, const double *reference, size_t first, size_t count,
                       double limit);

#endif
