/* The points of a sweep: which runs are measured, and against which base. */
#ifndef LS_BENCH_SWEEP_PLAN_H
#define LS_BENCH_SWEEP_PLAN_H

#include "impls/options.h"

typedef struct ls_sweep_point {
    ls_run run;  /* the point, ready to launch */
    ls_run base; /* the plain single-device trainer on the same local batch (weak) or global batch (strong) */
    const char *scaling;
    char skip[256]; /* not empty: why it cannot run here */
} ls_sweep_point;

typedef struct ls_sweep_plan {
    size_t count;
    ls_sweep_point *points; /* owned: ls_sweep_plan_free */
} ls_sweep_plan;

/* Every combination of the options' lists that makes sense: single has one device, bucket caps and rank kinds vary only
 * where the implementation knows them. Each point is checked as `lockstep train` would (ls_run_check). With --impl all an
 * implementation that cannot run here becomes a skipped point; asked for by name it is LS_BAD_INPUT. Strong scaling keeps
 * --global-batch, or --batch times the largest device count. */
ls_rc ls_sweep_plan_make(const ls_options *options, ls_sweep_plan *out);
void ls_sweep_plan_free(ls_sweep_plan *plan);

#endif
