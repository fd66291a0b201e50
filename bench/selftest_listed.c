/* The listed mutants. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/results.h"
#include "bench/selftest.h"

static size_t line_count(void) {
    size_t count = 0;
    while (ls_mutants[count].name != NULL) {
        count++;
    }
    return count;
}

static bool wanted(const ls_mutant *m, const char *only) {
    return m->waits == NULL && (only == NULL || strcmp(m->name, only) == 0);
}

static size_t total; /* of the jobs under way, for progress */

static void show_progress(size_t ended) {
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r[%zu/%zu] verifications\033[K%s", ended, total, ended == total ? "\r\033[K" : "");
    }
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Rows of implementations that the job was not for are yardsticks. */
static bool belongs(const ls_selftest_job *job, const json_t *row) {
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{LS_MUTANT_SINGLE, "single"}, {LS_MUTANT_DP, "dp"}, {LS_MUTANT_DDP, "ddp"}, {LS_MUTANT_MPI, "mpi"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text_of(row, "impl"), names[i].name) == 0) {
            return (job->impls & names[i].bit) != 0;
        }
    }
    return false;
}

/* A case that did not end as it should, with the line that shows it again. */
static void print_case(const ls_selftest_job *job, const json_t *row, const char *what) {
    printf("  %s: LOCKSTEP_MUTANT=%s lockstep-mutants%s\n", what, job->mutant,
           text_of(row, "command") + strlen("lockstep"));
}

static ls_rc append_row(const ls_selftest *test, const ls_mutant *m, const json_t *row, const char *by,
                        ls_selftest_verdict verdict) {
    char command[4096];
    (void)snprintf(command, sizeof command, "LOCKSTEP_MUTANT=%s lockstep-mutants%s", m->name,
                   text_of(row, "command") + strlen("lockstep"));
    return ls_selftest_row(test,
                           json_pack("{s:s, s:s, s:s, s:s, s:O?, s:O?, s:O?, s:s, s:s, s:s, s:s}", "mutant", m->name,
                                     "fault", m->fault, "summary", m->summary, "impl", text_of(row, "impl"), "ranks",
                                     json_object_get(row, "ranks"), "devices", json_object_get(row, "devices"), "dtype",
                                     json_object_get(row, "dtype"), "checks", m->checks, "caught_by", by, "status",
                                     ls_selftest_verdict_name(verdict), "command", command));
}

/* A line of the table. */
typedef struct outcome {
    size_t cases, caught, skipped;
    ls_selftest_verdict worst;
    char by[128]; /* checks that failed in any case */
} outcome;

static void merge(outcome *o, const char *by) {
    char copy[128];
    char *rest = NULL;
    (void)snprintf(copy, sizeof copy, "%s", by);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        size_t used = strlen(o->by);
        if (!ls_mutant_names(o->by, word)) {
            (void)snprintf(o->by + used, sizeof o->by - used, "%s%s", used > 0 ? " " : "", word);
        }
    }
}

static ls_rc judge_job(const ls_selftest *test, const ls_mutant *m, const ls_selftest_job *job, outcome *o) {
    size_t index = 0;
    json_t *row = NULL;
    *o = (outcome){0};
    json_array_foreach(job->rows, index, row) {
        char by[128];
        if (!belongs(job, row)) {
            continue;
        }
        ls_selftest_verdict verdict = ls_selftest_judge(m->checks, row, by, sizeof by);
        o->cases++;
        o->caught += verdict == LS_SELFTEST_CAUGHT ? 1 : 0;
        o->skipped += verdict == LS_SELFTEST_SKIPPED ? 1 : 0;
        o->worst = verdict > o->worst ? verdict : o->worst;
        merge(o, by);
        LS_TRY(append_row(test, m, row, by, verdict));
    }
    if (o->cases == 0) {
        o->worst = LS_SELFTEST_SURVIVED; /* verify itself did not come so far: nothing is shown */
    }
    return LS_OK;
}

static void print_survivors(const ls_mutant *m, const ls_selftest_job *job) {
    size_t index = 0;
    json_t *row = NULL;
    char by[128];
    if (json_array_size(job->rows) == 0) {
        printf("  %s: lockstep-mutants verify left no row (wait status %d)\n", m->name, job->status);
    }
    json_array_foreach(job->rows, index, row) {
        ls_selftest_verdict verdict = ls_selftest_judge(m->checks, row, by, sizeof by);
        if (belongs(job, row) && verdict > LS_SELFTEST_SKIPPED) {
            print_case(job, row, ls_selftest_verdict_name(verdict));
        }
    }
}

static void print_line(const ls_mutant *m, const outcome *o, const char *status) {
    char cases[32] = "-";
    if (o != NULL) {
        (void)snprintf(cases, sizeof cases, "%zu/%zu", o->caught, o->cases - o->skipped);
    }
    printf("%-24s %-4s %-22s %-44s %5s  %s\n", m->name, m->fault, m->checks, o != NULL ? o->by : "-", cases, status);
}

/* The settings of every line once more without a fault, each setting once: all must pass, else a FAILED shows nothing. */
static ls_rc run_controls(const ls_selftest *test, const ls_selftest_job *jobs, size_t count, bool *good) {
    ls_selftest_job *controls = ls_calloc(count, sizeof *controls, "verifications");
    if (controls == NULL) {
        return LS_DEVICE_FAILED;
    }
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < used &&
               (strcmp(controls[k].model, jobs[i].model) != 0 || strcmp(controls[k].options, jobs[i].options) != 0)) {
            k++;
        }
        if (k == used) {
            controls[used] = jobs[i];
            controls[used].mutant = "";
            controls[used++].rows = NULL;
        } else if (!jobs[i].one_case) {
            controls[k].impls |= jobs[i].impls;
        }
    }
    total = used;
    ls_rc rc = ls_selftest_jobs_run(test, controls, used, show_progress);
    size_t cases = 0;
    *good = rc == LS_OK;
    for (size_t i = 0; i < used && rc == LS_OK; i++) {
        size_t index = 0;
        json_t *row = NULL;
        *good = *good && json_array_size(controls[i].rows) > 0;
        json_array_foreach(controls[i].rows, index, row) {
            const char *status = text_of(row, "status");
            cases++;
            if (strcmp(status, "PASSED") != 0 && strcmp(status, "SKIPPED") != 0) {
                *good = false;
                print_case(&controls[i], row, status);
            }
        }
    }
    if (rc == LS_OK) {
        printf("Without a fault: %zu cases of %zu settings, %s\n\n", cases, used,
               *good ? "all passed" : "NOT ALL PASSED");
    }
    ls_selftest_jobs_close(controls, used);
    return rc;
}

static void print_head(void) {
    printf("%-24s %-4s %-22s %-44s %5s  %s\n", "mutant", "row", "to be caught by", "caught by", "cases", "status");
}

/* Prints a line and counts it: a mutant of several lines is caught when all of them are. */
static ls_rc report(const ls_selftest *test, const ls_selftest_job *jobs, const size_t *job_of, const char *only,
                    ls_selftest_sum *sum) {
    print_head();
    ls_selftest_verdict mutant = LS_SELFTEST_CAUGHT;
    for (size_t i = 0; ls_mutants[i].name != NULL; i++) {
        const ls_mutant *m = &ls_mutants[i];
        outcome o = {.worst = LS_SELFTEST_SKIPPED};
        if (only != NULL && strcmp(m->name, only) != 0) {
            continue;
        }
        if (m->waits != NULL) {
            print_line(m, NULL, m->waits);
            sum->waiting++;
            continue;
        }
        if (job_of[i] != SIZE_MAX) {
            LS_TRY(judge_job(test, m, &jobs[job_of[i]], &o));
        }
        print_line(m, &o, ls_selftest_verdict_name(o.worst));
        if (o.worst > LS_SELFTEST_SKIPPED) {
            print_survivors(m, &jobs[job_of[i]]);
        }
        mutant = o.worst > mutant ? o.worst : mutant;
        if (ls_mutants[i + 1].name == NULL || strcmp(ls_mutants[i + 1].name, m->name) != 0) {
            sum->caught += mutant == LS_SELFTEST_CAUGHT ? 1 : 0;
            sum->skipped += mutant == LS_SELFTEST_SKIPPED ? 1 : 0;
            sum->survived += mutant > LS_SELFTEST_SKIPPED ? 1 : 0;
            mutant = LS_SELFTEST_CAUGHT;
        }
    }
    return LS_OK;
}

static ls_rc run_and_report(const ls_selftest *test, ls_selftest_job *jobs, size_t count, const size_t *job_of,
                            const char *only, ls_selftest_sum *sum) {
    bool good = false;
    LS_TRY(run_controls(test, jobs, count, &good));
    if (!good) {
        return LS_CHECK_FAILED;
    }
    total = count;
    LS_TRY(ls_selftest_jobs_run(test, jobs, count, show_progress));
    return report(test, jobs, job_of, only, sum);
}

ls_rc ls_selftest_listed(const ls_selftest *test, const char *only, ls_selftest_sum *sum) {
    size_t lines = line_count();
    ls_selftest_job *jobs = ls_calloc(lines, sizeof *jobs, "verifications");
    size_t *job_of = ls_calloc(lines, sizeof *job_of, "verifications");
    size_t count = 0;
    ls_rc rc = jobs != NULL && job_of != NULL ? LS_OK : LS_DEVICE_FAILED;
    for (size_t i = 0; i < lines && rc == LS_OK; i++) {
        const ls_mutant *m = &ls_mutants[i];
        unsigned impls = ls_selftest_impls(test, m->impls);
        job_of[i] = SIZE_MAX;
        if (wanted(m, only) && impls != 0) {
            job_of[i] = count;
            jobs[count++] = (ls_selftest_job){
                .mutant = m->name, .impls = impls, .model = m->model, .options = m->options, .one_case = test->quick};
        }
    }
    if (rc == LS_OK) {
        rc = run_and_report(test, jobs, count, job_of, only, sum);
    }
    ls_selftest_jobs_close(jobs, count);
    free(job_of);
    return rc;
}
