#include "bench/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impls/launch.h"

/* One round of one run: its timed steps, each the maximum over ranks (a step is over when its slowest rank is). */
typedef struct round_times {
    double *seconds;
    size_t count;
    double first; /* seconds of the very first step: of the warm-up, where there is one */
    char hash[32];
    json_t *ranks; /* the ranks' results; a reference of its own */
} round_times;

static ls_rc fail_round(ls_measurement *out, const char *reason) {
    out->rc = LS_DEVICE_FAILED;
    snprintf(out->reason, sizeof out->reason, "%s", reason);
    return LS_DEVICE_FAILED;
}

static double slowest(const json_t *ranks, const char *key, size_t step) {
    double most = 0;
    size_t index = 0;
    json_t *rank = NULL;
    json_array_foreach(ranks, index, rank) {
        double seconds = json_number_value(json_array_get(json_object_get(rank, key), step));
        most = seconds > most ? seconds : most;
    }
    return most;
}

/* Ranks of one run have timed the same steps and ended with the same parameters. */
static ls_rc check_ranks(const json_t *ranks, round_times *times, ls_measurement *out) {
    size_t index = 0;
    json_t *rank = NULL;
    json_array_foreach(ranks, index, rank) {
        if (json_array_size(json_object_get(rank, "step_seconds")) != times->count) {
            return fail_round(out, "ranks timed different numbers of steps");
        }
        const char *hash = json_string_value(json_object_get(rank, "param_hash"));
        if (hash == NULL || (index > 0 && strcmp(hash, times->hash) != 0)) {
            return fail_round(out, "the ranks' parameters differ after the timed steps");
        }
        snprintf(times->hash, sizeof times->hash, "%s", hash);
    }
    return LS_OK;
}

static ls_rc read_round(const ls_outcome *outcome, round_times *times, ls_measurement *out) {
    const json_t *rank = json_array_get(outcome->ranks, 0);
    times->count = json_array_size(json_object_get(rank, "step_seconds"));
    if (times->count == 0) {
        return fail_round(out, "the run gave no step times");
    }
    times->seconds = ls_calloc(times->count, sizeof(double), "step times");
    if (times->seconds == NULL) {
        return fail_round(out, "out of memory for step times");
    }
    LS_TRY(check_ranks(outcome->ranks, times, out));
    for (size_t i = 0; i < times->count; i++) {
        times->seconds[i] = slowest(outcome->ranks, "step_seconds", i);
    }
    bool warmed = json_array_size(json_object_get(rank, "warmup_seconds")) > 0;
    times->first = warmed ? slowest(outcome->ranks, "warmup_seconds", 0) : times->seconds[0];
    times->ranks = json_incref(outcome->ranks);
    return LS_OK;
}

static ls_rc launch_round(const char *program, const ls_run *run, round_times *times, ls_measurement *out) {
    ls_outcome outcome = {0};
    *times = (round_times){0};
    ls_rc rc = ls_launch(program, run, &outcome);
    if (rc == LS_OK) {
        rc = read_round(&outcome, times, out);
    } else {
        out->rc = rc;
        snprintf(out->reason, sizeof out->reason, "%.500s", outcome.reason);
    }
    ls_outcome_release(&outcome);
    return rc;
}

static void release_round(round_times *times) {
    free(times->seconds);
    json_decref(times->ranks);
    *times = (round_times){0};
}

size_t ls_measure_round_steps(size_t steps) {
    return steps / LS_MEASURE_ROUNDS + (steps % LS_MEASURE_ROUNDS > 0);
}

/* Timed runs print nothing, check nothing and save nothing. */
static ls_run timed_run(const ls_run *run, const char *data) {
    ls_run timed = *run;
    snprintf(timed.data, sizeof timed.data, "%s", data);
    timed.steps = ls_measure_round_steps(run->steps) + run->warmup;
    timed.epochs = 0;
    timed.log_every = 0;
    timed.evaluate = false;
    timed.time_steps = true;
    timed.save[0] = timed.json[0] = '\0';
    return timed;
}

/* Adds a round's steps behind those of the rounds before. */
static ls_rc append_round(ls_timing *timing, size_t round, const round_times *times, ls_measurement *out) {
    if (timing->count != round * times->count) {
        return fail_round(out, "rounds timed different numbers of steps");
    }
    double *grown = realloc(timing->samples, (timing->count + times->count) * sizeof(double));
    if (grown == NULL) {
        return fail_round(out, "out of memory for step times");
    }
    memcpy(grown + timing->count, times->seconds, times->count * sizeof(double));
    timing->samples = grown;
    timing->count += times->count;
    return LS_OK;
}

/* Base then point. */
static ls_rc measure_round(const char *program, const char *data, const ls_sweep_point *point, size_t round,
                           ls_measurement *out) {
    ls_run runs[2] = {timed_run(&point->base, data), timed_run(&point->run, data)};
    round_times times[2] = {{0}, {0}};
    ls_rc rc = launch_round(program, &runs[0], &times[0], out);
    if (rc == LS_OK) {
        rc = launch_round(program, &runs[1], &times[1], out);
    }
    if (rc == LS_OK && round > 0 && strcmp(times[1].hash, out->param_hash) != 0) {
        rc = fail_round(out, "the same run gave other parameters in another round");
    }
    if (rc == LS_OK) {
        rc = append_round(&out->base, round, &times[0], out);
    }
    if (rc == LS_OK) {
        rc = append_round(&out->point, round, &times[1], out);
    }
    if (rc == LS_OK) {
        out->first_step = round == 0 ? times[1].first : out->first_step;
        out->steps = runs[1].steps;
        snprintf(out->param_hash, sizeof out->param_hash, "%s", times[1].hash);
        json_decref(out->ranks);
        out->ranks = json_incref(times[1].ranks);
    }
    release_round(&times[0]);
    release_round(&times[1]);
    return rc;
}

/* The ratio of throughput in one round is one sample of the speed-up. */
static ls_rc summarize(const ls_sweep_point *point, ls_measurement *out) {
    double seconds[LS_MEASURE_ROUNDS], base[LS_MEASURE_ROUNDS], speedups[LS_MEASURE_ROUNDS];
    if (ls_stats_of_rounds(out->point.samples, out->point.count, LS_MEASURE_ROUNDS, seconds, &out->point.step) !=
            LS_OK ||
        ls_stats_of_rounds(out->base.samples, out->base.count, LS_MEASURE_ROUNDS, base, &out->base.step) != LS_OK) {
        return fail_round(out, "out of memory for step times");
    }
    bool weak = strcmp(point->scaling, "weak") == 0;
    double work = weak ? (double)point->run.devices : 1; /* samples of a step against the base's */
    for (size_t round = 0; round < LS_MEASURE_ROUNDS; round++) {
        speedups[round] = work * base[round] / seconds[round];
    }
    out->speedup = ls_stats_summarize(speedups, LS_MEASURE_ROUNDS);
    return LS_OK;
}

ls_rc ls_measure_point(const char *program, const char *data, const ls_sweep_point *point, ls_measurement *out) {
    *out = (ls_measurement){0};
    ls_rc rc = LS_OK;
    for (size_t round = 0; round < LS_MEASURE_ROUNDS && rc == LS_OK; round++) {
        rc = measure_round(program, data, point, round, out);
    }
    if (rc == LS_OK) {
        rc = summarize(point, out);
    }
    return rc == LS_BAD_INPUT ? rc : LS_OK;
}

void ls_measurement_free(ls_measurement *measurement) {
    free(measurement->point.samples);
    free(measurement->base.samples);
    json_decref(measurement->ranks);
    *measurement = (ls_measurement){0};
}
