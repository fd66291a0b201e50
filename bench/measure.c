#include "bench/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impls/launch.h"

/* One round of one run: its timed steps, each the maximum over ranks (a step is over when its slowest rank is). */
typedef struct round_times {
    double *seconds;
    size_t count;
    char hash[32];
    json_t *ranks; /* the ranks' results; a reference of its own */
} round_times;

static ls_rc fail_round(ls_measurement *out, const char *reason) {
    out->rc = LS_DEVICE_FAILED;
    snprintf(out->reason, sizeof out->reason, "%s", reason);
    return LS_DEVICE_FAILED;
}

static ls_rc read_round(const ls_outcome *outcome, round_times *times, ls_measurement *out) {
    json_t *first = json_object_get(json_array_get(outcome->ranks, 0), "step_seconds");
    size_t count = json_array_size(first);
    if (count == 0) {
        return fail_round(out, "the run gave no step times");
    }
    times->seconds = ls_calloc(count, sizeof(double), "step times");
    if (times->seconds == NULL) {
        return fail_round(out, "out of memory for step times");
    }
    times->count = count;
    size_t index = 0;
    json_t *rank = NULL;
    json_array_foreach(outcome->ranks, index, rank) {
        json_t *seconds = json_object_get(rank, "step_seconds");
        if (json_array_size(seconds) != count) {
            return fail_round(out, "ranks timed different numbers of steps");
        }
        for (size_t i = 0; i < count; i++) {
            double value = json_number_value(json_array_get(seconds, i));
            times->seconds[i] = value > times->seconds[i] ? value : times->seconds[i];
        }
        const char *hash = json_string_value(json_object_get(rank, "param_hash"));
        if (hash == NULL || (index > 0 && strcmp(hash, times->hash) != 0)) {
            return fail_round(out, "the ranks' parameters differ after the timed steps");
        }
        snprintf(times->hash, sizeof times->hash, "%s", hash);
    }
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

static double median_of(const double *values, size_t count) {
    double *copy = ls_calloc(count, sizeof(double), "step times");
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, values, count * sizeof(double));
    double median = ls_stats_summarize(copy, count).median;
    free(copy);
    return median;
}

/* Timed runs print nothing, check nothing and save nothing. */
static ls_run timed_run(const ls_run *run, const char *data) {
    ls_run timed = *run;
    snprintf(timed.data, sizeof timed.data, "%s", data);
    timed.steps = run->steps / LS_MEASURE_ROUNDS > 0 ? run->steps / LS_MEASURE_ROUNDS : 1;
    timed.steps += run->warmup;
    timed.epochs = 0;
    timed.log_every = 0;
    timed.evaluate = false;
    timed.time_steps = true;
    timed.save[0] = timed.json[0] = '\0';
    return timed;
}

typedef struct collected {
    double *point, *base;
    size_t points, bases;
    double speedups[LS_MEASURE_ROUNDS];
} collected;

/* Base then point; their ratio of throughput is one sample of the speed-up. */
static ls_rc measure_round(const char *program, const char *data, const ls_sweep_point *point, size_t round,
                           collected *all, ls_measurement *out) {
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
        memcpy(all->base + all->bases, times[0].seconds, times[0].count * sizeof(double));
        memcpy(all->point + all->points, times[1].seconds, times[1].count * sizeof(double));
        all->bases += times[0].count;
        all->points += times[1].count;
        bool weak = strcmp(point->scaling, "weak") == 0;
        double work = weak ? (double)point->run.devices : 1; /* samples of a step against the base's */
        all->speedups[round] =
            work * median_of(times[0].seconds, times[0].count) / median_of(times[1].seconds, times[1].count);
        out->first_step = round == 0 ? times[1].seconds[0] : out->first_step;
        out->steps = runs[1].steps;
        snprintf(out->param_hash, sizeof out->param_hash, "%s", times[1].hash);
        json_decref(out->ranks);
        out->ranks = json_incref(times[1].ranks);
    }
    release_round(&times[0]);
    release_round(&times[1]);
    return rc;
}

ls_rc ls_measure_point(const char *program, const char *data, const ls_sweep_point *point, ls_measurement *out) {
    *out = (ls_measurement){0};
    size_t room = LS_MEASURE_ROUNDS * (timed_run(&point->run, data).steps + 1);
    collected all = {.point = ls_calloc(room, sizeof(double), "step times"),
                     .base = ls_calloc(room, sizeof(double), "step times")};
    ls_rc rc = all.point != NULL && all.base != NULL ? LS_OK : LS_DEVICE_FAILED;
    for (size_t round = 0; round < LS_MEASURE_ROUNDS && rc == LS_OK; round++) {
        rc = measure_round(program, data, point, round, &all, out);
    }
    if (rc == LS_OK) {
        out->samples = all.point;
        out->count = all.points;
        out->step = ls_stats_summarize(all.point, all.points);
        out->base_step = ls_stats_summarize(all.base, all.bases);
        out->speedup = ls_stats_summarize(all.speedups, LS_MEASURE_ROUNDS);
        all.point = NULL;
    }
    free(all.point);
    free(all.base);
    return rc == LS_BAD_INPUT ? rc : LS_OK;
}

void ls_measurement_free(ls_measurement *measurement) {
    free(measurement->samples);
    json_decref(measurement->ranks);
    *measurement = (ls_measurement){0};
}
