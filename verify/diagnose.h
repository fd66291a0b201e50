/* From a wrong gradient to its likely cause. Verdicts are about how a gradient differs, never about whether it passes. */
#ifndef LS_VERIFY_DIAGNOSE_H
#define LS_VERIFY_DIAGNOSE_H

#include "verify/check.h"

/* What turned the local gradients of a step into a rank's reduced gradient, tensor by tensor: tries each known fault (a
 * scale, one rank's own gradient, a rank lost, counted twice or a step late) and names the one that explains it, with the
 * scale that fits. */
void ls_diagnose_reduction(const ls_case *c, size_t step, size_t rank, char *cause, size_t size);

/* Which device's local gradient departs from the oracle, when a global gradient does. limit: relative distance that a good
 * one keeps. */
ls_rc ls_diagnose_local(const ls_check_input *input, size_t step, double limit, char *cause, size_t size);

#endif
