/* lockstep verify: every implementation, device count, model, bucket cap, rank kind and dtype through the checks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/cmd.h"
#include "bench/results.h"
#include "bench/unpacked.h"
#include "bench/verify_determinism.h"
#include "bench/verify_plan.h"
#include "bench/verify_random.h"
#include "bench/verify_table.h"
#include "gpu/base/clock.h"
#include "gpu/gpu.h"
#include "impls/impl.h"
#include "impls/launch.h"
#include "impls/step_graph.h"

typedef struct session {
    const ls_options *options;
    char program[LS_PATH_SIZE];
    ls_verify_plan plan;
    ls_verify_result *results; /* [plan.count] */
    ls_baseline *baselines;    /* [plan.count]: of the points that are baselines and passed */
    ls_dataset data;
    ls_dataset exact; /* of the network `exact`; opened for its first point */
    ls_unpacked unpacked;
    ls_oracle_cache *oracle;
    double start; /* ls_now_seconds */
} session;

static void show_progress(const session *s, size_t index) {
    if (!isatty(STDERR_FILENO)) {
        return;
    }
    const ls_run *run = &s->plan.points[index].run;
    double spent = ls_now_seconds() - s->start;
    double left = index > 0 ? spent / (double)index * (double)(s->plan.count - index) : 0;
    fprintf(stderr, "\r[%zu/%zu] %s, %zu devices, %.20s %s ... %.0f s, about %.0f s left\033[K", index + 1,
            s->plan.count, run->impl, run->devices, run->model, ls_dtype_name(run->dtype), spent, left);
}

static void set_failed(ls_verify_result *result, const char *reason) {
    result->status = LS_FAILED;
    snprintf(result->reason, sizeof result->reason, "%s", reason);
}

/* The data set of a point: what was asked for, or the network `exact`'s own. */
static ls_rc dataset_of(session *s, const ls_run *run, const ls_dataset **out) {
    *out = &s->data;
    if (strcmp(run->data, s->options->run.data) == 0) {
        return LS_OK;
    }
    if (s->exact.count == 0) {
        LS_TRY(ls_dataset_open(run->data, LS_SPLIT_TRAIN, &s->exact));
    }
    *out = &s->exact;
    return LS_OK;
}

/* Judges the record of a run that came to its end. */
static ls_rc judge(session *s, size_t index, const char *run_dir, ls_verify_result *result) {
    const ls_verify_point *point = &s->plan.points[index];
    ls_case record;
    const ls_dataset *data = NULL;
    LS_TRY(dataset_of(s, &point->run, &data));
    LS_TRY(ls_case_open(&point->run, ls_impl_find(point->run.impl), data, point->run.steps, &record));
    char why[512] = "";
    ls_rc rc = ls_case_read(&record, run_dir, why, sizeof why);
    if (rc == LS_CHECK_FAILED) {
        set_failed(result, why);
        rc = LS_OK;
    } else if (rc == LS_OK) {
        const ls_baseline *baseline = &s->baselines[point->baseline];
        ls_check_input input = {.c = &record, .oracle = s->oracle, .baseline = baseline->steps > 0 ? baseline : NULL};
        rc = ls_case_verify(&input, &result->verdict);
        if (rc == LS_OK) {
            const ls_finding *finding = &result->verdict.findings[result->verdict.decisive];
            result->checked = true;
            result->status = result->verdict.status;
            snprintf(result->reason, sizeof result->reason, "%s",
                     result->status == LS_FAILED ? finding->detail : finding->reason);
        }
        if (rc == LS_OK && point->baseline == index && result->status == LS_PASSED) {
            rc = ls_baseline_measure(&input, &s->baselines[index]);
        }
    }
    ls_case_close(&record);
    return rc;
}

/* --graph shows nothing about graphs where no step was launched as one: too few steps, or none with a full batch. */
static void mistrust_without_graph(const ls_run *run, ls_verify_result *result) {
    if (run->graph && result->status == LS_PASSED &&
        json_integer_value(json_object_get(result->counters, "graph_launches")) == 0) {
        result->status = LS_MISTRUSTED;
        snprintf(result->reason, sizeof result->reason,
                 "no step ran as a graph: one is captured when %d full batches have been trained", LS_GRAPH_WARMUP);
    }
}

static ls_rc run_point(session *s, size_t index) {
    const ls_verify_point *point = &s->plan.points[index];
    ls_verify_result *result = &s->results[index];
    if (point->skip[0] != '\0') {
        result->status = LS_SKIPPED;
        memcpy(result->reason, point->skip, sizeof point->skip);
        return LS_OK;
    }
    ls_run run = point->run;
    if (strcmp(run.data, s->options->run.data) == 0) {
        memcpy(run.data, s->unpacked.data, sizeof run.data);
    }
    ls_outcome outcome;
    ls_rc rc = ls_launch(s->program, &run, &outcome);
    if (rc == LS_OK) {
        const char *hash = json_string_value(json_object_get(json_array_get(outcome.ranks, 0), "param_hash"));
        snprintf(result->param_hash, sizeof result->param_hash, "%s", hash != NULL ? hash : "");
        result->counters = ls_result_counters(outcome.ranks);
        rc = judge(s, index, outcome.run_dir, result);
        mistrust_without_graph(&run, result);
    } else if (rc == LS_DEVICE_FAILED) {
        set_failed(result, outcome.reason);
        rc = LS_OK;
    }
    ls_outcome_release(&outcome);
    return rc;
}

static ls_rc run_points(session *s) {
    for (size_t i = 0; i < s->plan.count; i++) {
        show_progress(s, i);
        ls_rc rc = run_point(s, i);
        if (isatty(STDERR_FILENO)) {
            fprintf(stderr, "\r\033[K");
        }
        LS_TRY(rc);
        ls_verify_print_row(&s->plan.points[i], &s->results[i]);
        if (s->options->run.json[0] == '\0') {
            continue;
        }
        json_t *row = ls_verify_json(&s->plan.points[i], &s->results[i]);
        if (row == NULL) {
            return ls_fail(LS_DEVICE_FAILED, "out of memory for a result row");
        }
        rc = ls_results_append(s->options->run.json, row);
        json_decref(row);
        LS_TRY(rc);
    }
    return LS_OK;
}

/* Prints what failed and the sum of it all. A yardstick that nobody asked for counts when it fails, not when it passes: a
 * verification in which everything asked for was skipped has shown nothing. */
static ls_rc conclude(const session *s) {
    size_t counts[LS_FAILED + 1] = {0};
    size_t asked_passed = 0;
    for (size_t i = 0; i < s->plan.count; i++) {
        const ls_verify_result *result = &s->results[i];
        counts[result->status]++;
        asked_passed += result->status == LS_PASSED && s->plan.points[i].asked ? 1 : 0;
        if (result->status == LS_FAILED) {
            ls_verify_print_failure(&s->plan.points[i], result);
        }
    }
    printf("\n%zu passed, %zu failed, %zu skipped, %zu mistrusted in %.0f s\n", counts[LS_PASSED], counts[LS_FAILED],
           counts[LS_SKIPPED], counts[LS_MISTRUSTED], ls_now_seconds() - s->start);
    if (asked_passed == 0 && counts[LS_FAILED] == 0) {
        printf("nothing that was asked for passed: nothing is shown\n");
    }
    return counts[LS_FAILED] > 0 || asked_passed == 0 ? LS_CHECK_FAILED : LS_OK;
}

static ls_rc session_run(session *s) {
    LS_TRY(ls_launch_self(s->program, sizeof s->program));
    LS_TRY(ls_verify_plan_make(s->options, &s->plan));
    LS_TRY(ls_dataset_open(s->options->run.data, LS_SPLIT_TRAIN, &s->data));
    LS_TRY(ls_oracle_cache_open(&s->oracle));
    if (s->options->run.json[0] != '\0') {
        LS_TRY(ls_results_check(s->options->run.json));
    }
    LS_TRY(ls_unpacked_make(s->program, s->options->run.data, &s->data, &s->unpacked));
    s->results = ls_calloc(s->plan.count, sizeof *s->results, "results");
    s->baselines = ls_calloc(s->plan.count, sizeof *s->baselines, "baselines");
    if (s->results == NULL || s->baselines == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_verify_print_head(s->options, s->plan.count);
    LS_TRY(run_points(s));
    return conclude(s);
}

static void session_close(session *s) {
    for (size_t i = 0; i < s->plan.count; i++) {
        if (s->results != NULL) {
            json_decref(s->results[i].counters);
        }
        if (s->baselines != NULL) {
            ls_baseline_close(&s->baselines[i]);
        }
    }
    free(s->results);
    free(s->baselines);
    ls_oracle_cache_close(s->oracle);
    ls_unpacked_remove(&s->unpacked);
    ls_dataset_close(&s->data);
    ls_dataset_close(&s->exact);
    ls_verify_plan_free(&s->plan);
}

/* --random draws everything but these; --determinism chooses the batch's split, the order of buckets and the loader itself. */
static ls_rc check_mode(int argc, char **argv, const ls_options *options) {
    static const char *const drawn[] = {"--random", "--case", "--seed", "--json", "--timeout"};
    if (options->determinism && options->random_count > 0) {
        return ls_fail(LS_BAD_INPUT, "options '--random' and '--determinism' are two verifications; ask for one");
    }
    for (int i = 0; i < argc; i++) {
        bool fits = strncmp(argv[i], "--", 2) != 0;
        for (size_t k = 0; k < sizeof drawn / sizeof drawn[0] && !options->determinism; k++) {
            fits = fits || strncmp(argv[i], drawn[k], strlen(drawn[k])) == 0;
        }
        bool chosen = strcmp(argv[i], "--loader-threads") == 0 || strcmp(argv[i], "--reverse-buckets") == 0 ||
                      strcmp(argv[i], "--case") == 0;
        if (options->determinism ? chosen : !fits) {
            return ls_fail(LS_BAD_INPUT, "option '%s' does not go with %s, which sets that itself", argv[i],
                           options->determinism ? "--determinism" : "--random");
        }
    }
    return LS_OK;
}

ls_rc ls_command_verify(int argc, char **argv) {
    ls_options options;
    bool help = false;
    LS_TRY(ls_options_parse(LS_COMMAND_VERIFY, argc, argv, &options, &help));
    if (help) {
        return LS_OK;
    }
    LS_TRY(ls_launch_refuse_nested("verify"));
    if (!ls_math_mode_is_exact(options.run.math)) {
        return ls_fail(LS_BAD_INPUT,
                       "option '--math': %s computes outside the bounds of verification on this platform; it is for "
                       "timing (sweep, train)",
                       ls_math_mode_name(options.run.math));
    }
    ls_math_set_mode(options.run.math);
    if (options.run.steps == 0 || options.run.steps == SIZE_MAX) {
        return ls_fail(LS_BAD_INPUT, "option '--steps': a verification needs at least 1 step, found 0");
    }
    size_t devices = 0;
    LS_TRY(ls_platform_device_count(&devices));
    if (!options.run.share_devices) {
        ls_options_fit_devices(&options, devices);
    }
    if (options.random_count > 0 || options.determinism) {
        char program[LS_PATH_SIZE];
        LS_TRY(check_mode(argc, argv, &options));
        LS_TRY(ls_launch_self(program, sizeof program));
        return options.determinism ? ls_verify_determinism(program, &options) : ls_verify_random(program, &options);
    }
    session s = {.options = &options};
    s.start = ls_now_seconds();
    ls_rc rc = session_run(&s);
    session_close(&s);
    return rc;
}
