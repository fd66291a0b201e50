/* What the checks of updates share: the oracle's path beside the device's, and bounds on how far they part. */
#ifndef LS_VERIFY_TRAJECTORY_H
#define LS_VERIFY_TRAJECTORY_H

#include "verify/check.h"

typedef struct ls_trajectory {
    ls_oracle_optimizer optimizer;
    bool exact_gradient;             /* g is the device's own: without an error */
    double *w, *g, *before;          /* [param_count]: parameters, gradient, parameters before the step */
    double *state[LS_ORACLE_STATES]; /* the oracle's */
    double
        *errors[1 + LS_ORACLE_STATES]; /* adaptive optimizers, [param_count]: bounds on what the device's parameters and
                                             states differ from these */
    double e[LS_MODEL_MAX_PARAMS];     /* SGD: the same of each tensor, in the 2-norm: parameters */
    double velocity_error[LS_MODEL_MAX_PARAMS]; /* and velocity */
} ls_trajectory;

/* One zeroed allocation for all buffers, for the caller to free; NULL when memory is short. */
double *ls_trajectory_open(const ls_case *c, ls_trajectory *t);

/* Adam, AdamW and RMSprop (check_trajectory_adaptive.c): the bounds after the oracle's step, and the comparison. */
void ls_trajectory_adaptive_advance(const ls_check_input *input, size_t step, double lr, ls_trajectory *t);
void ls_trajectory_adaptive_compare(const ls_check_input *input, size_t step, const ls_trajectory *t,
                                    ls_finding *finding);

#endif
