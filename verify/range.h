/* How many steps of a record there is something to be said about: a training that diverges, correct as it may be, leaves the range
 * of its numbers, and from there on no bound holds. */
#ifndef LS_VERIFY_RANGE_H
#define LS_VERIFY_RANGE_H

#include "verify/check.h"

/* *steps: the steps before the first whose parameters, gradient or loss (the two as the oracle has them) cannot be squared within
 * the range of the case's dtype; all of them where there is none, and why then is empty. Squares, since products of two such values
 * are what networks and optimizers compute. Out of memory: a line, LS_DEVICE_FAILED. */
ls_rc ls_range_steps(const ls_check_input *input, size_t *steps, char *why, size_t size);

#endif
