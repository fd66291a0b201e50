/* Cases whose arithmetic is exact in float32: the network `exact` on the data set `exact`. */
#ifndef LS_VERIFY_EXACT_H
#define LS_VERIFY_EXACT_H

#include "impls/impl.h"
#include "verify/case.h"

bool ls_exact_is(const ls_run *run);

/* Makes a run of the network `exact` one whose arithmetic is exact: its data, squared errors, learning rate 0, so that every
 * step starts from the same whole numbers, 16 samples a device. devices is set. A mean over a number of samples that is no
 * power of two is not exact in binary: there the loss becomes a sum. */
void ls_exact_fit(ls_run *run);

/* Whether the gradients of a run fitted so are exact under this implementation; otherwise why not. */
bool ls_exact_possible(const ls_run *run, const ls_impl *impl, char *why, size_t size);

/* The largest sum of absolute values, in units of the smallest bit, that any partial sum of a step can reach on the
 * parameters that the step started from, whatever the order of additions: the arithmetic is exact when that is at most
 * 2^24 (float32) or 2^53. INFINITY when a parameter, input or target is not a whole number. */
double ls_exact_largest(const ls_case *c, size_t step);

#endif
