/* The verified replay of a timed run: timed steps are verified steps. */
#ifndef LS_BENCH_REPLAY_H
#define LS_BENCH_REPLAY_H

#include "bench/sweep_plan.h"
#include "verify/check.h"

/* What the replays of one sweep share: the training set and the oracle. */
typedef struct ls_replayer ls_replayer;

typedef struct ls_replay {
    ls_status status;
    char reason[512]; /* unless it passed */
} ls_replay;

/* data: of --data; it is unpacked once for all runs of the sweep. Owned: ls_replayer_close. */
ls_rc ls_replayer_open(const char *program, const char *data, ls_replayer **out);
/* What runs are given as --data: the unpacked images. */
const char *ls_replayer_data(const ls_replayer *replayer);
void ls_replayer_close(ls_replayer *replayer);

/* Runs the point again with the same options for `steps` steps, recording every step; the checks of verify/ judge the
 * record, and the parameters must end with the bits that the timed rounds ended with (param_hash). */
ls_rc ls_replay_point(ls_replayer *replayer, const char *program, const ls_sweep_point *point, size_t steps,
                      const char *param_hash, ls_replay *out);

#endif
