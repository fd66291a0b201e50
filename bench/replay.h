/* The verified replay of a timed run: timed steps are verified steps. */
#ifndef LS_BENCH_REPLAY_H
#define LS_BENCH_REPLAY_H

#include "bench/sweep_plan.h"

typedef struct ls_replay {
    bool passed;
    char reason[512]; /* when it did not pass */
} ls_replay;

/* Runs the point again with the same options for `steps` steps, recording every step; the checks of verify/ judge the
 * record, and the parameters must end with the bits that the timed rounds ended with (param_hash). */
ls_rc ls_replay_point(const char *program, const ls_sweep_point *point, size_t steps, const char *param_hash,
                      ls_replay *out);

#endif
