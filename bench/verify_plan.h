/* The cases of a verification, in the order in which they run: for each model and dtype first `single` on every global
 * batch, the yardstick of the others, then the implementations. */
#ifndef LS_BENCH_VERIFY_PLAN_H
#define LS_BENCH_VERIFY_PLAN_H

#include "impls/options.h"

typedef struct ls_verify_point {
    ls_run run;      /* ready to launch, with captures */
    size_t baseline; /* index of the point of `single` on the same global batch; its own index: it is that point */
    bool asked;      /* the implementation was asked for, not only needed as a yardstick */
    char skip[256];  /* not empty: why it does not run here */
} ls_verify_point;

typedef struct ls_verify_plan {
    size_t count;
    ls_verify_point *points; /* owned: ls_verify_plan_free */
} ls_verify_plan;

/* Every combination of the options' lists; with --model all then the network `exact`, which brings its own data, loss and
 * learning rate (verify/exact.h). Bucket caps and rank kinds vary only where the implementation knows them. A rank
 * kind that it does not have, and with --impl all an implementation that cannot run here, make skipped points; what else
 * cannot be is refused as `lockstep train` would (ls_run_check). */
ls_rc ls_verify_plan_make(const ls_options *options, ls_verify_plan *out);
void ls_verify_plan_free(ls_verify_plan *plan);

#endif
