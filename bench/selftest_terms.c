/* The generated faults of a reduction: in step 1 + i of one run item i - each element of a small network, then each tensor, then
 * each bucket - takes part wrongly (impls/mutant_terms.c). Steps record what went in and what came out, so each is judged
 * by itself; step 0 is right, and the learning rate is 0, so that no fault leaves anything behind. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/selftest.h"
#include "impls/buckets.h"
#include "impls/impl.h"
#include "impls/launch.h"
#include "impls/options.h"
#include "impls/rank.h"
#include "verify/check.h"
#include "verify/values.h"

/* 60 parameters in 4 tensors and 3 buckets; nothing that a relu would stop, so every term counts. */
#define NETWORK "conv 1 k3 s5; avgpool 3; flatten; linear 10"
enum { BUCKET_BYTES = 40, BATCH = 2 };
static const char samples[] = "synthetic:96";

static const struct {
    const char *mutant, *summary;
    bool kept; /* ranks part, so that the bits must differ, too */
} kinds[] = {
    {"each_term_dropped", "the last rank's term is left out", false},
    {"each_term_doubled", "the last rank's term counts twice", false},
    {"each_term_stale", "the last rank's term is that of the step before", false},
    {"each_sum_left_local", "left out of the reduction on every rank", true},
};

static const struct {
    const char *impl;
    unsigned bit;
    ls_rank_kind ranks;
} settings[] = {{"ddp", LS_MUTANT_DDP, LS_RANKS_THREADS},
                {"dp", LS_MUTANT_DP, LS_RANKS_PROCESSES},
                {"ddp", LS_MUTANT_DDP, LS_RANKS_PROCESSES},
                {"mpi", LS_MUTANT_MPI, LS_RANKS_PROCESSES}};

enum { KINDS = sizeof kinds / sizeof kinds[0], SETTINGS = sizeof settings / sizeof settings[0], QUICK_SETTINGS = 2 };

/* One run with its record. */
typedef struct terms {
    const ls_selftest *test;
    size_t kind, setting;
    ls_run run;
    ls_case record;
    ls_bucket_plan plan; /* count 0: without buckets */
    size_t items, caught, survived, idle;
    json_t *survivors; /* names */
} terms;

static ls_rc make_run(terms *t, size_t devices) {
    ls_run *run = &t->run;
    ls_model model;
    ls_normalize normalize;
    ls_run_defaults(run);
    (void)snprintf(run->impl, sizeof run->impl, "%s", settings[t->setting].impl);
    (void)snprintf(run->model, sizeof run->model, "%s", NETWORK);
    (void)snprintf(run->data, sizeof run->data, "%s", samples);
    run->ranks = settings[t->setting].ranks;
    run->devices = devices;
    run->share_devices = t->test->share;
    run->dtype = LS_FLOAT32;
    run->batch = BATCH;
    run->bucket_bytes = BUCKET_BYTES;
    run->lr = 0;
    run->capture = true;
    run->evaluate = false;
    run->log_every = 0;
    run->loader_threads = 0;
    run->timeout = 20;
    LS_TRY(ls_run_model(run, &model, &normalize));
    t->plan.count = 0;
    if ((ls_impl_find(run->impl)->capabilities & LS_CAP_BUCKETS) != 0) {
        ls_bucket_plan_make(&model, run->dtype, run->bucket_bytes, &t->plan);
    }
    t->items = model.param_count + model.param_tensors + t->plan.count;
    run->steps = 1 + t->items;
    return LS_OK;
}

/* What an item covers of the flat gradient, and its name. */
static void item_of(const terms *t, size_t item, size_t *first, size_t *count, char *name, size_t size) {
    const ls_model *model = &t->record.model;
    if (item < model->param_count) {
        *first = item;
        *count = 1;
        ls_element_name(model, item, name, size);
    } else if (item < model->param_count + model->param_tensors) {
        const ls_param *param = &model->params[model->ready[item - model->param_count]];
        *first = param->offset;
        *count = param->count;
        (void)snprintf(name, size, "%s", param->name);
    } else {
        size_t bucket = item - model->param_count - model->param_tensors;
        *first = t->plan.buckets[bucket].offset;
        *count = t->plan.buckets[bucket].count;
        (void)snprintf(name, size, "bucket %zu", bucket);
    }
}

/* Whether the fault changes nothing: the last device's term is zero there, or as in the step before. */
static bool without_effect(const terms *t, size_t step, size_t first, size_t count) {
    size_t last = t->record.devices - 1;
    const float *now = ls_case_local(&t->record, step, last)->grads;
    const float *before = ls_case_local(&t->record, step - 1, last)->grads;
    bool stale = strcmp(kinds[t->kind].mutant, "each_term_stale") == 0;
    for (size_t i = first; i < first + count && !kinds[t->kind].kept; i++) {
        if (now[i] != (stale ? before[i] : 0)) {
            return false;
        }
    }
    return !kinds[t->kind].kept;
}

/* The checks of one step alone. failed: of the reduction and, where ranks part, of the bits. */
static ls_rc judge_step(const terms *t, size_t step, bool *failed, bool *passed) {
    ls_case one = t->record;
    one.steps = 1;
    one.locals = ls_case_local(&t->record, step, 0);
    one.reduced = ls_case_reduced(&t->record, step, 0);
    ls_check_input input = {.c = &one};
    ls_finding reduction = {.status = LS_SKIPPED, .observed = NAN, .bound = NAN};
    ls_finding bits = reduction;
    LS_TRY(ls_check_reduction(&input, &reduction));
    LS_TRY(ls_check_bits(&input, &bits));
    bool parts = kinds[t->kind].kept && one.ranks > 1;
    *failed = reduction.status == LS_FAILED && (!parts || bits.status == LS_FAILED);
    *passed = reduction.status == LS_PASSED && bits.status != LS_FAILED;
    return LS_OK;
}

static ls_rc judge(terms *t) {
    bool failed = false, passed = false;
    LS_TRY(judge_step(t, 0, &failed, &passed));
    if (!passed) {
        printf("  %s, %zu devices: step 0, which has no fault, did not pass\n", t->run.impl, t->run.devices);
        return LS_CHECK_FAILED;
    }
    for (size_t item = 0; item < t->items; item++) {
        size_t first = 0, count = 0;
        char name[128];
        item_of(t, item, &first, &count, name, sizeof name);
        LS_TRY(judge_step(t, item + 1, &failed, &passed));
        if (failed) {
            t->caught++;
        } else if (without_effect(t, item + 1, first, count)) {
            t->idle++;
        } else {
            t->survived++;
            json_array_append_new(t->survivors, json_string(name));
        }
    }
    return LS_OK;
}

static ls_rc launch_and_judge(terms *t, const ls_dataset *data) {
    ls_outcome outcome;
    char why[512] = "";
    (void)setenv("LOCKSTEP_MUTANT", kinds[t->kind].mutant, 1); /* no other thread runs here */
    ls_rc rc = ls_launch(t->test->program, &t->run, &outcome);
    (void)unsetenv("LOCKSTEP_MUTANT");
    if (rc == LS_OK) {
        rc = ls_case_open(&t->run, ls_impl_find(t->run.impl), data, t->run.steps, &t->record);
    }
    if (rc == LS_OK) {
        rc = ls_case_read(&t->record, outcome.run_dir, why, sizeof why);
        if (rc == LS_CHECK_FAILED) {
            rc = ls_fail(LS_DEVICE_FAILED, "%s", why);
        }
        rc = rc == LS_OK ? judge(t) : rc;
        ls_case_close(&t->record);
    }
    ls_outcome_release(&outcome);
    return rc;
}

static ls_rc report(terms *t) {
    const char *checks = kinds[t->kind].kept && t->record.ranks > 1 ? "bits reduction" : "reduction";
    const char *ranks = strcmp(t->run.impl, "ddp") != 0                  ? "-"
                        : settings[t->setting].ranks == LS_RANKS_THREADS ? "threads"
                                                                         : "processes";
    size_t index = 0;
    json_t *name = NULL;
    printf("%-20s %-4s %-9s %zu devices  %-14s %3zu/%zu  %s\n", kinds[t->kind].mutant, t->run.impl, ranks,
           t->run.devices, checks, t->caught, t->items, t->survived > 0 ? "SURVIVED" : "CAUGHT");
    json_array_foreach(t->survivors, index, name) {
        printf("  SURVIVED: %s\n", json_string_value(name));
    }
    fflush(stdout);
    return ls_selftest_row(t->test, json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:O, s:s}", "mutant",
                                              kinds[t->kind].mutant, "summary", kinds[t->kind].summary, "impl",
                                              t->run.impl, "ranks", ranks, "devices", (json_int_t)t->run.devices,
                                              "checks", checks, "items", (json_int_t)t->items, "caught",
                                              (json_int_t)t->caught, "without_effect", (json_int_t)t->idle, "survivors",
                                              t->survivors, "status", t->survived > 0 ? "SURVIVED" : "CAUGHT"));
}

static ls_rc run_one(const ls_selftest *test, size_t kind, size_t setting, size_t devices, const ls_dataset *data,
                     ls_selftest_sum *sum) {
    terms t = {.test = test, .kind = kind, .setting = setting, .survivors = json_array()};
    ls_rc rc = t.survivors != NULL ? make_run(&t, devices) : LS_DEVICE_FAILED;
    rc = rc == LS_OK ? launch_and_judge(&t, data) : rc;
    rc = rc == LS_OK ? report(&t) : rc;
    sum->caught += t.caught;
    sum->survived += t.survived;
    sum->skipped += t.idle;
    json_decref(t.survivors);
    return rc;
}

ls_rc ls_selftest_terms(const ls_selftest *test, ls_selftest_sum *sum) {
    ls_dataset data = {0};
    LS_TRY(ls_dataset_open(samples, LS_SPLIT_TRAIN, &data));
    printf("\nEach element, tensor and bucket of a reduction in turn:\n");
    ls_rc rc = LS_OK;
    for (size_t kind = 0; kind < KINDS; kind++) {
        for (size_t setting = 0; setting < (test->quick ? (size_t)QUICK_SETTINGS : (size_t)SETTINGS); setting++) {
            for (size_t devices = 2; devices <= (test->quick ? 2U : 4U) && rc == LS_OK; devices += 2) {
                if ((test->impls & settings[setting].bit) != 0) {
                    rc = run_one(test, kind, setting, devices, &data, sum);
                }
            }
        }
    }
    ls_dataset_close(&data);
    return rc;
}
