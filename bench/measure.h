/* Measuring one sweep point and its base in turn: A B A B ..., so that a drift of the machine meets both alike. */
#ifndef LS_BENCH_MEASURE_H
#define LS_BENCH_MEASURE_H

#include <jansson.h>

#include "bench/stats.h"
#include "bench/sweep_plan.h"

/* Fresh processes for every round; six are the fewest whose extremes cover a median at 95 %. */
enum { LS_MEASURE_ROUNDS = 6 };

/* The timed steps of one side, the point or its base. */
typedef struct ls_timing {
    double *samples; /* seconds of each, maximum over ranks, round after round; owned: ls_measurement_free */
    size_t count;    /* of all rounds, as many from each */
    ls_summary step; /* seconds: of the rounds' medians, for steps of one process resemble each other */
} ls_timing;

typedef struct ls_measurement {
    ls_timing point, base;
    double first_step;   /* seconds: the first step of the first round, of the warm-up where there is one */
    ls_summary speedup;  /* of throughput over the base, round by round */
    char param_hash[32]; /* after the last step, the same in every round */
    size_t steps;        /* of a round, warm-up included: what a replay must do */
    json_t *ranks;       /* the ranks' results of the last round; owned */
    ls_rc rc;
    char reason[512]; /* when rc is not LS_OK */
} ls_measurement;

/* Timed steps of a round where a point shall have at least `steps` > 0 of them: every round has as many. */
size_t ls_measure_round_steps(size_t steps);

/* Launches base and point in turn, on `data` (of --data, the same images as the point's own, perhaps unpacked). run.steps timed
 * steps, or the next multiple of the rounds, are spread over the rounds. A run that fails is told in rc and reason; the return
 * value is about this process only (LS_BAD_INPUT when interrupted input makes going on useless). */
ls_rc ls_measure_point(const char *program, const char *data, const ls_sweep_point *point, ls_measurement *out);
void ls_measurement_free(ls_measurement *measurement);

#endif
