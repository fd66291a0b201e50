/* Verifications by lockstep-mutants, several at once. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/results.h"
#include "bench/selftest.h"
#include "gpu/base/error.h"
#include "impls/interrupt.h"
#include "impls/spawn.h"

enum { MOST_WORDS = 64, MOST_AT_ONCE = 16 };

/* The words of a command line. */
typedef struct words {
    char *list[MOST_WORDS];
    size_t count;
    char options[512], impls[64], file[LS_PATH_SIZE + 32]; /* what some of them lie in */
} words;

static void add(words *w, const char *word) {
    if (w->count < MOST_WORDS - 1) {
        w->list[w->count++] = (char *)word;
    }
}

static void add_all(words *w, const char *options) {
    char *rest = NULL;
    (void)snprintf(w->options, sizeof w->options, "%s", options);
    for (char *word = strtok_r(w->options, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        add(w, word);
    }
}

static const struct {
    unsigned bit;
    const char *name;
} impl_names[] = {{LS_MUTANT_DDP, "ddp"}, {LS_MUTANT_DP, "dp"}, {LS_MUTANT_MPI, "mpi"}, {LS_MUTANT_SINGLE, "single"}};

enum { IMPLS = sizeof impl_names / sizeof impl_names[0] };

unsigned ls_selftest_impls(const ls_selftest *test, unsigned impls) {
    impls &= test->impls;
    for (size_t i = 0; test->quick && i < IMPLS; i++) {
        if ((impls & impl_names[i].bit) != 0) {
            return impl_names[i].bit;
        }
    }
    return impls;
}

/* The usual settings: small batches of synthetic samples, several buckets. An option given twice takes the last value. */
static void make_words(const ls_selftest *test, const ls_selftest_job *job, size_t index, words *w) {
    static const char usual[] = "--data synthetic:96 --batch 4 --dtype float32 --bucket-bytes 256 --loader-threads 0 "
                                "--timeout 20";
    bool threads_only = job->one_case && (job->impls & LS_MUTANT_MPI) == 0;
    char options[512];
    for (size_t i = 0; i < IMPLS; i++) {
        if ((job->impls & impl_names[i].bit) != 0) {
            size_t used = strlen(w->impls);
            (void)snprintf(w->impls + used, sizeof w->impls - used, "%s%s", used > 0 ? "," : "", impl_names[i].name);
        }
    }
    (void)snprintf(options, sizeof options, "%s %s --devices %s --ranks %s", usual, job->options,
                   job->one_case ? "2" : "2,4",
                   threads_only    ? "threads"
                   : job->one_case ? "processes"
                                   : "threads,processes");
    (void)snprintf(w->file, sizeof w->file, "%s/%zu.jsonl", test->folder, index);
    add(w, test->program);
    add(w, job->train ? "train" : "verify");
    add(w, "--impl");
    add(w, w->impls);
    add(w, "--model");
    add(w, job->model);
    add_all(w, options);
    if (test->share) {
        add(w, "--share-devices");
    }
    if (!job->train) {
        add(w, "--json");
        add(w, w->file);
    }
    w->list[w->count] = NULL;
}

static ls_rc set_environment(const ls_selftest_job *job, ls_environment *environment) {
    LS_TRY(ls_environment_copy(environment));
    LS_TRY(ls_environment_set(environment, "LOCKSTEP_MUTANT", job->mutant, false));
    if (job->sched != NULL) {
        LS_TRY(ls_environment_set(environment, "LOCKSTEP_VGPU_SCHED", job->sched, false));
    }
    if (job->copies) {
        LS_TRY(ls_environment_set(environment, "LOCKSTEP_VGPU_COPY_ENGINES", "1", false));
    }
    return job->sites != NULL ? ls_environment_set(environment, "LOCKSTEP_MUTANT_SITES", job->sites, false) : LS_OK;
}

/* Lines of failed runs are expected, and go to a file beside the rows. */
static ls_rc start(const ls_selftest *test, const ls_selftest_job *job, size_t index, ls_child *child) {
    words w = {0};
    ls_environment environment = {0};
    char path[LS_PATH_SIZE + 32];
    make_words(test, job, index, &w);
    (void)snprintf(path, sizeof path, "%s/%zu.err", test->folder, index);
    int error = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (error < 0) {
        return ls_fail(LS_DEVICE_FAILED, "cannot write %s: %s", path, strerror(errno));
    }
    ls_rc rc = set_environment(job, &environment);
    if (rc == LS_OK) {
        rc = ls_spawn(w.list, &environment, &(ls_spawn_files){.in = -1, .out = -1, .error = error}, child);
    }
    ls_environment_free(&environment);
    close(error);
    return rc;
}

static ls_rc read_rows(const ls_selftest *test, size_t index, ls_selftest_job *job) {
    char path[LS_PATH_SIZE + 32];
    (void)snprintf(path, sizeof path, "%s/%zu.jsonl", test->folder, index);
    job->rows = ls_results_read(path);
    (void)unlink(path); /* a training leaves none */
    return job->rows != NULL ? LS_OK : ls_fail(LS_DEVICE_FAILED, "out of memory for the rows of a self-test");
}

/* Jobs under way, each in a place of its own. */
typedef struct pool {
    size_t places;
    ls_child children[MOST_AT_ONCE];
    size_t jobs[MOST_AT_ONCE]; /* SIZE_MAX: the place is free */
} pool;

static void wait_for_any(const pool *p) {
    const ls_child *under_way[MOST_AT_ONCE];
    size_t count = 0;
    for (size_t i = 0; i < p->places; i++) {
        if (p->jobs[i] != SIZE_MAX) {
            under_way[count++] = &p->children[i];
        }
    }
    ls_children_wait(under_way, count, ls_interrupt_fd());
}

/* Takes the results of what has ended; returns how many, or SIZE_MAX after a failure. */
static size_t collect(const ls_selftest *test, ls_selftest_job *jobs, pool *p) {
    size_t ended = 0;
    for (size_t i = 0; i < p->places; i++) {
        if (p->jobs[i] == SIZE_MAX || !ls_child_poll(&p->children[i])) {
            continue;
        }
        jobs[p->jobs[i]].status = p->children[i].status;
        ls_child_close(&p->children[i]);
        if (read_rows(test, p->jobs[i], &jobs[p->jobs[i]]) != LS_OK) {
            return SIZE_MAX;
        }
        p->jobs[i] = SIZE_MAX;
        ended++;
    }
    return ended;
}

/* Runs all jobs; a signal to this program is a failure without a line. */
static ls_rc run_jobs(const ls_selftest *test, ls_selftest_job *jobs, size_t count, pool *p,
                      void (*done)(size_t ended)) {
    size_t next = 0, ended = 0;
    while (ended < count) {
        for (size_t i = 0; i < p->places && next < count; i++) {
            if (p->jobs[i] == SIZE_MAX) {
                LS_TRY(start(test, &jobs[next], next, &p->children[i]));
                p->jobs[i] = next++;
            }
        }
        wait_for_any(p);
        size_t more = collect(test, jobs, p);
        if (more == SIZE_MAX || ls_interrupt_signal() != 0) {
            return LS_DEVICE_FAILED;
        }
        ended += more;
        if (done != NULL) {
            done(ended);
        }
    }
    return LS_OK;
}

ls_rc ls_selftest_jobs_run(const ls_selftest *test, ls_selftest_job *jobs, size_t count, void (*done)(size_t ended)) {
    pool p = {.places = ls_children_at_once(MOST_AT_ONCE)};
    for (size_t i = 0; i < p.places; i++) {
        p.jobs[i] = SIZE_MAX;
    }
    ls_rc rc = run_jobs(test, jobs, count, &p, done);
    for (size_t i = 0; i < p.places; i++) { /* after a failure */
        if (p.jobs[i] != SIZE_MAX) {
            ls_child_signal(&p.children[i], SIGTERM);
            ls_child_close(&p.children[i]);
        }
    }
    return rc;
}

void ls_selftest_jobs_close(ls_selftest_job *jobs, size_t count) {
    for (size_t i = 0; jobs != NULL && i < count; i++) {
        json_decref(jobs[i].rows);
    }
    free(jobs);
}
