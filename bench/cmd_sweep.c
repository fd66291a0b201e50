/* lockstep sweep: throughput over implementations, device counts and scaling modes -> result rows. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/cmd.h"
#include "bench/measure.h"
#include "bench/replay.h"
#include "bench/results.h"
#include "bench/sweep_plan.h"
#include "gpu/gpu.h"
#include "impls/impl.h"
#include "impls/launch.h"

static json_t *summary_json(const ls_summary *summary) {
    return json_pack("{s:f, s:f, s:f, s:f}", "median", summary->median, "low", summary->low, "high", summary->high,
                     "confidence", summary->confidence);
}

/* The same interval of work/x: a rate falls when the time rises, so low and high change places. */
static json_t *rate_json(const ls_summary *summary, double work) {
    return json_pack("{s:f, s:f, s:f, s:f}", "median", work / summary->median, "low", work / summary->high, "high",
                     work / summary->low, "confidence", summary->confidence);
}

static json_t *scaled_json(const ls_summary *summary, double factor) {
    return json_pack("{s:f, s:f, s:f, s:f}", "median", summary->median * factor, "low", summary->low * factor, "high",
                     summary->high * factor, "confidence", summary->confidence);
}

/* The summary with what it is of, so that a reader can take it again. */
static json_t *timing_json(const ls_timing *timing) {
    json_t *samples = json_array();
    for (size_t i = 0; i < timing->count; i++) {
        json_array_append_new(samples, json_real(timing->samples[i]));
    }
    json_t *step = summary_json(&timing->step);
    json_object_set_new(step, "samples", samples);
    return step;
}

static void add_measurement(json_t *row, const ls_sweep_point *point, const ls_measurement *measured) {
    double global = (double)json_integer_value(json_object_get(row, "global_batch"));
    json_object_set_new(row, "warmup_steps", json_integer((json_int_t)point->run.warmup));
    json_object_set_new(row, "rounds", json_integer(LS_MEASURE_ROUNDS));
    json_object_set_new(row, "timed_steps", json_integer((json_int_t)measured->point.count));
    json_object_set_new(row, "first_step_seconds", json_real(measured->first_step));
    json_object_set_new(row, "step_seconds", timing_json(&measured->point));
    json_object_set_new(row, "samples_per_second", rate_json(&measured->point.step, global));
    json_object_set_new(row, "base_step_seconds", timing_json(&measured->base));
    json_object_set_new(row, "speedup", summary_json(&measured->speedup));
    json_object_set_new(row, "efficiency", scaled_json(&measured->speedup, 1 / (double)point->run.devices));
    json_object_set_new(row, "param_hash", json_string(measured->param_hash));
    json_object_set_new(row, "counters", ls_result_counters(measured->ranks));
    ls_result_set_math(row, measured->ranks);
}

static void set_status(json_t *row, const char *status, const char *reason) {
    json_object_set_new(row, "status", json_string(status));
    json_object_set_new(row, "reason", reason != NULL && reason[0] != '\0' ? json_string(reason) : json_null());
}

typedef struct sweep_state {
    const ls_options *options;
    const ls_sweep_plan *plan;
    ls_replayer *replayer;
    char program[LS_PATH_SIZE];
    size_t passed, failed, skipped, unverified;
} sweep_state;

/* The fast mode may compute with less precision than float32 has, and in another order each time: there is nothing that a replay
 * could show. */
static void leave_unverified(json_t *row, ls_math_mode mode) {
    char reason[128];
    snprintf(reason, sizeof reason, "--math %s is timed, not verified", ls_math_mode_name(mode));
    json_object_set_new(row, "verification", json_string("none"));
    set_status(row, "MISTRUSTED", reason);
}

static ls_rc verify_point(const sweep_state *sweep, const ls_sweep_point *point, const ls_measurement *measured,
                          json_t *row) {
    if (!ls_math_mode_is_exact(point->run.math)) {
        leave_unverified(row, point->run.math);
        return LS_OK;
    }
    ls_replay replay;
    LS_TRY(ls_replay_point(sweep->replayer, sweep->program, point, measured->steps, measured->param_hash, &replay));
    json_object_set_new(row, "verification", json_string(ls_status_name(replay.status)));
    set_status(row, ls_status_name(replay.status), replay.reason);
    return LS_OK;
}

/* One point: measured, replayed under verification, told as a row. */
static ls_rc run_point(const sweep_state *sweep, const ls_sweep_point *point, json_t *row) {
    if (point->skip[0] != '\0') {
        set_status(row, "SKIPPED", point->skip);
        return LS_OK;
    }
    ls_measurement measured;
    ls_rc rc = ls_measure_point(sweep->program, ls_replayer_data(sweep->replayer), point, &measured);
    if (rc == LS_OK && measured.rc != LS_OK) {
        set_status(row, "FAILED", measured.reason);
    } else if (rc == LS_OK) {
        add_measurement(row, point, &measured);
        rc = verify_point(sweep, point, &measured, row);
    }
    ls_measurement_free(&measured);
    return rc;
}

static void print_head(const ls_options *options) {
    size_t each = ls_measure_round_steps(options->run.steps);
    printf(
        "%zu steps a point, %zu in each of %d rounds after a warm-up of %zu, timed where the batch is full. Each point "
        "takes turns with\nits base: the single-device trainer on the same local batch (weak) or global batch "
        "(strong). A figure is the median of the\nrounds' medians; intervals cover it at 95 %% or more. Data: "
        "%s.\n\n",
        LS_MEASURE_ROUNDS * each, each, LS_MEASURE_ROUNDS, options->run.warmup, options->run.data);
    printf("%-7s %-9s %-8s %-8s %3s %6s %6s  %24s  %18s  %18s  %s\n", "scaling", "model", "impl", "ranks", "dev",
           "local", "global", "samples/s", "speed-up", "efficiency", "status");
}

static const char *text_of(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "-";
}

static void print_interval(const json_t *row, const char *key, int width, const char *format) {
    const json_t *value = json_object_get(row, key);
    char text[64] = "-";
    if (json_is_object(value)) {
        snprintf(text, sizeof text, format, json_number_value(json_object_get(value, "median")),
                 json_number_value(json_object_get(value, "low")), json_number_value(json_object_get(value, "high")));
    }
    printf("  %*s", width, text);
}

static void print_row(const json_t *row) {
    printf("%-7s %-9.9s %-8s %-8s %3lld %6lld %6lld", text_of(row, "scaling"), text_of(row, "model"),
           text_of(row, "impl"), text_of(row, "ranks"), (long long)json_integer_value(json_object_get(row, "devices")),
           (long long)json_integer_value(json_object_get(row, "local_batch")),
           (long long)json_integer_value(json_object_get(row, "global_batch")));
    print_interval(row, "samples_per_second", 24, "%.0f [%.0f, %.0f]");
    if (json_is_true(json_object_get(row, "oversubscribed"))) {
        printf("  %18s  %18s", "oversubscribed", "-");
    } else {
        print_interval(row, "speedup", 18, "%.2f [%.2f, %.2f]");
        print_interval(row, "efficiency", 18, "%.2f [%.2f, %.2f]");
    }
    printf("  %s%s%s\n", text_of(row, "status"), json_is_string(json_object_get(row, "reason")) ? ": " : "",
           json_is_string(json_object_get(row, "reason")) ? text_of(row, "reason") : "");
    fflush(stdout);
}

static json_t *new_row(const ls_sweep_point *point) {
    char command[4096];
    ls_options_line("lockstep", LS_COMMAND_SWEEP, &point->run, command, sizeof command);
    size_t at = strlen(command);
    snprintf(command + at, sizeof command - at, " --scaling %s", point->scaling);
    json_t *row = ls_result_row("sweep", &point->run, command);
    if (row != NULL) {
        json_object_set_new(row, "scaling", json_string(point->scaling));
    }
    return row;
}

static void show_progress(size_t index, size_t count, const ls_sweep_point *point) {
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r[%zu/%zu] %s, %zu devices, %s scaling ...\033[K", index + 1, count, point->run.impl,
                point->run.devices, point->scaling);
    }
}

static void take_row(sweep_state *sweep, const json_t *row) {
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K");
    }
    print_row(row);
    const char *status = text_of(row, "status");
    sweep->passed += strcmp(status, "PASSED") == 0;
    sweep->failed += strcmp(status, "FAILED") == 0;
    sweep->skipped += strcmp(status, "SKIPPED") == 0;
    sweep->unverified += strcmp(status, "MISTRUSTED") == 0;
}

static ls_rc sweep_points(sweep_state *sweep) {
    for (size_t i = 0; i < sweep->plan->count; i++) {
        show_progress(i, sweep->plan->count, &sweep->plan->points[i]);
        json_t *row = new_row(&sweep->plan->points[i]);
        if (row == NULL) {
            return ls_fail(LS_DEVICE_FAILED, "out of memory for a result row");
        }
        ls_rc rc = run_point(sweep, &sweep->plan->points[i], row);
        if (rc == LS_OK) {
            rc = ls_results_append(sweep->options->output, row);
        }
        if (rc == LS_OK) {
            take_row(sweep, row);
        }
        json_decref(row);
        LS_TRY(rc);
    }
    return LS_OK;
}

static ls_rc sweep_all(const ls_options *options, const ls_sweep_plan *plan) {
    sweep_state sweep = {.options = options, .plan = plan};
    LS_TRY(ls_launch_self(sweep.program, sizeof sweep.program));
    LS_TRY(ls_results_check(options->output));
    LS_TRY(ls_replayer_open(sweep.program, options->run.data, &sweep.replayer));
    print_head(options);
    ls_rc rc = sweep_points(&sweep);
    ls_replayer_close(sweep.replayer);
    LS_TRY(rc);
    printf("\n%zu passed, %zu failed, %zu skipped", sweep.passed, sweep.failed, sweep.skipped);
    if (sweep.unverified > 0) {
        printf(", %zu timed without verification", sweep.unverified);
    }
    printf("; rows appended to %s\n", options->output);
    return sweep.failed > 0 || sweep.passed + sweep.unverified == 0 ? LS_CHECK_FAILED : LS_OK;
}

ls_rc ls_command_sweep(int argc, char **argv) {
    ls_options options;
    bool help = false;
    LS_TRY(ls_options_parse(LS_COMMAND_SWEEP, argc, argv, &options, &help));
    if (help) {
        return LS_OK;
    }
    LS_TRY(ls_launch_refuse_nested("sweep"));
    ls_math_set_mode(options.run.math);
    size_t devices = 0;
    LS_TRY(ls_platform_device_count(&devices));
    ls_options_fit_devices(&options, devices);
    if (options.run.steps == 0) {
        return ls_fail(LS_BAD_INPUT, "option '--steps': a sweep times at least 1 step a point, found 0");
    }
    ls_sweep_plan plan;
    LS_TRY(ls_sweep_plan_make(&options, &plan));
    ls_rc rc = sweep_all(&options, &plan);
    ls_sweep_plan_free(&plan);
    return rc;
}
