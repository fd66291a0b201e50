#include "bench/verify_random.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/random_case.h"
#include "bench/random_outcome.h"
#include "bench/results.h"
#include "gpu/base/clock.h"
#include "gpu/gpu.h"
#include "impls/impl.h"
#include "impls/interrupt.h"
#include "impls/launch.h"
#include "impls/rank.h"
#include "impls/run_dir.h"
#include "impls/spawn.h"

/* Cases side by side at the most, and cases begun before the one that is printed next has ended. */
enum { MOST_JOBS = 8, WINDOW = 4 * MOST_JOBS, MOST_DEVICES = 64 };

typedef struct slot {
    size_t index; /* of the case */
    ls_run run;
    ls_child child;
    bool running, done;
    double start; /* ls_now_seconds */
    ls_random_outcome outcome;
} slot;

/* Cases of a kind and how many of them did not pass. */
typedef struct tally {
    size_t cases, passed;
} tally;

typedef struct session {
    const char *program;
    const ls_options *options;
    size_t devices, jobs;
    ls_outcome folder; /* of the cases' output */
    ls_environment environment;
    double start; /* ls_now_seconds */
    slot slots[WINDOW];
    size_t begun, running, printed;
    size_t statuses[LS_FAILED + 1];
    tally impls[LS_MAX_LIST], dtypes[2], worlds[MOST_DEVICES + 1];
} session;

static void path_of(const session *s, const slot *at, const char *kind, char *path, size_t size) {
    snprintf(path, size, "%.900s/case-%zu.%s", s->folder.run_dir, at->index, kind);
}

static ls_rc start_child(const session *s, slot *at) {
    char path[LS_PATH_SIZE];
    ls_run told = at->run;
    path_of(s, at, "json", told.json, sizeof told.json);
    char **argv = ls_options_argv(s->program, LS_COMMAND_VERIFY, &told);
    path_of(s, at, "out", path, sizeof path);
    FILE *out = fopen(path, "we");
    path_of(s, at, "err", path, sizeof path);
    FILE *error = fopen(path, "we");
    ls_rc rc = LS_OK;
    if (argv == NULL || out == NULL || error == NULL) {
        rc = ls_fail(LS_DEVICE_FAILED, "cannot write the output of a case to %s", path);
    } else {
        ls_spawn_files files = {.in = -1, .out = fileno(out), .error = fileno(error)};
        rc = ls_spawn(argv, &s->environment, &files, &at->child);
    }
    free(argv);
    if (out != NULL) {
        fclose(out);
    }
    if (error != NULL) {
        fclose(error);
    }
    return rc;
}

static ls_rc begin(session *s) {
    slot *at = &s->slots[s->begun % WINDOW];
    *at = (slot){.index = s->options->random_case + s->begun, .child = {.pidfd = -1}};
    s->begun++;
    ls_random_case_draw(s->options->run.seed, at->index, s->devices, &at->run);
    at->run.timeout = s->options->run.timeout;
    at->start = ls_now_seconds();
    const ls_impl *impl = ls_impl_find(at->run.impl);
    char why[256];
    if (!ls_impl_available(impl, why, sizeof why) || !ls_run_suits(&at->run, impl, why, sizeof why)) {
        at->outcome = (ls_random_outcome){.status = LS_SKIPPED};
        snprintf(at->outcome.reason, sizeof at->outcome.reason, "%s cannot run here: %s", impl->name, why);
        at->done = true;
        return LS_OK;
    }
    LS_TRY(start_child(s, at));
    at->running = true;
    s->running++;
    return LS_OK;
}

/* Reads what an ended case has left, and removes it. */
static void collect(session *s, slot *at) {
    static const char *const kinds[] = {"out", "err", "json"};
    char paths[3][LS_PATH_SIZE];
    for (size_t k = 0; k < 3; k++) {
        path_of(s, at, kinds[k], paths[k], sizeof paths[k]);
    }
    ls_random_outcome_read(at->child.status, paths[0], paths[1], paths[2], &at->outcome);
    for (size_t k = 0; k < 3; k++) {
        unlink(paths[k]);
    }
    at->outcome.seconds = ls_now_seconds() - at->start;
    ls_child_close(&at->child);
    at->running = false;
    at->done = true;
    s->running--;
}

/* Waits until a case has ended or a signal has come. */
static void wait_for_one(session *s) {
    const ls_child *under_way[WINDOW];
    size_t count = 0;
    for (size_t i = 0; i < WINDOW; i++) {
        if (s->slots[i].running) {
            under_way[count++] = &s->slots[i].child;
        }
    }
    ls_children_wait(under_way, count, ls_interrupt_fd());
    for (size_t i = 0; i < WINDOW; i++) {
        if (s->slots[i].running && ls_child_poll(&s->slots[i].child)) {
            collect(s, &s->slots[i]);
        }
    }
}

static void count_case(session *s, const slot *at) {
    size_t impl = 0;
    while (ls_impls[impl + 1] != NULL && impl < 15 && strcmp(ls_impls[impl]->name, at->run.impl) != 0) {
        impl++;
    }
    tally *tallies[] = {&s->impls[impl], &s->dtypes[at->run.dtype == LS_FLOAT64 ? 1 : 0],
                        &s->worlds[at->run.devices <= MOST_DEVICES ? at->run.devices : MOST_DEVICES]};
    for (size_t i = 0; i < sizeof tallies / sizeof tallies[0]; i++) {
        tallies[i]->cases++;
        tallies[i]->passed += at->outcome.status == LS_PASSED ? 1 : 0;
    }
    s->statuses[at->outcome.status]++;
}

static ls_rc append_rows(const session *s, const slot *at) {
    size_t index = 0;
    json_t *row = NULL;
    json_array_foreach(at->outcome.rows, index, row) {
        json_object_set_new(
            row, "random",
            json_pack("{s:I, s:I}", "seed", (json_int_t)s->options->run.seed, "case", (json_int_t)at->index));
        LS_TRY(ls_results_append(s->options->run.json, row));
    }
    return LS_OK;
}

static void print_case(const session *s, const slot *at) {
    const ls_run *run = &at->run;
    const ls_impl *impl = ls_impl_find(run->impl);
    bool kinds = (impl->capabilities & (LS_CAP_RANK_THREADS | LS_CAP_RANK_PROCESSES | LS_CAP_MPIRUN)) != 0;
    size_t local = 0, global = 0;
    (void)ls_run_batches(run, &local, &global);
    const ls_random_outcome *outcome = &at->outcome;
    bool explain = outcome->status == LS_SKIPPED || outcome->status == LS_MISTRUSTED;
    printf("%6zu %-6s %-9s %3zu %5zu %-7s %-13s %-7s %5.2f s %s%s%s%s  %s\n", at->index, run->impl,
           !kinds                           ? "-"
           : run->ranks == LS_RANKS_THREADS ? "threads"
                                            : "processes",
           run->devices, global, ls_dtype_name(run->dtype), ls_loss_name(run->loss.kind),
           ls_optimizer_of(&run->optimizer)->name, outcome->seconds, ls_status_name(outcome->status),
           explain ? "(" : "", explain ? outcome->reason : "", explain ? ")" : "", run->model);
    if (outcome->status == LS_FAILED) {
        printf("%s", outcome->told != NULL ? outcome->told : "");
        printf("  %s\n", outcome->reason);
    }
    if (outcome->status != LS_PASSED || s->options->random_count == 1) {
        char command[4096];
        ls_options_line("lockstep", LS_COMMAND_VERIFY, run, command, sizeof command);
        printf("  case:  lockstep verify --random 1 --seed %llu --case %zu\n  alone: %s\n",
               (unsigned long long)s->options->run.seed, at->index, command);
    }
    fflush(stdout);
}

static void show_progress(const session *s) {
    if (!isatty(STDERR_FILENO)) {
        return;
    }
    double spent = ls_now_seconds() - s->start;
    size_t count = s->options->random_count;
    double left = s->printed > 0 ? spent / (double)s->printed * (double)(count - s->printed) : 0;
    fprintf(stderr, "\r[%zu/%zu] %.0f s, about %.0f s left\033[K", s->printed, count, spent, left);
}

static ls_rc print_done(session *s) {
    for (; s->printed < s->begun && s->slots[s->printed % WINDOW].done; s->printed++) {
        slot *at = &s->slots[s->printed % WINDOW];
        if (isatty(STDERR_FILENO)) {
            fprintf(stderr, "\r\033[K");
        }
        count_case(s, at);
        print_case(s, at);
        ls_rc rc = s->options->run.json[0] != '\0' ? append_rows(s, at) : LS_OK;
        ls_random_outcome_free(&at->outcome);
        at->done = false;
        LS_TRY(rc);
    }
    show_progress(s);
    return LS_OK;
}

static ls_rc run_cases(session *s) {
    size_t count = s->options->random_count;
    while (s->printed < count && ls_interrupt_signal() == 0) {
        while (s->running < s->jobs && s->begun < count && s->begun - s->printed < WINDOW) {
            LS_TRY(begin(s));
        }
        if (s->running > 0) {
            wait_for_one(s);
        }
        LS_TRY(print_done(s));
    }
    return LS_OK;
}

static void print_tally(const char *name, const tally *t) {
    if (t->cases == 0) {
        return;
    }
    printf("  %s %zu", name, t->cases);
    if (t->passed < t->cases) {
        printf(" (%zu not passed)", t->cases - t->passed);
    }
}

static ls_rc conclude(const session *s) {
    double seconds = ls_now_seconds() - s->start;
    size_t cases = s->printed, mistrusted = s->statuses[LS_MISTRUSTED];
    printf("\n%zu passed, %zu failed, %zu skipped, %zu mistrusted in %.0f s (seed %llu, %.2f s a case, %zu side by "
           "side)\nimplementations:",
           s->statuses[LS_PASSED], s->statuses[LS_FAILED], s->statuses[LS_SKIPPED], mistrusted, seconds,
           (unsigned long long)s->options->run.seed, cases > 0 ? seconds / (double)cases : 0, s->jobs);
    for (size_t i = 0; ls_impls[i] != NULL && i < 16; i++) {
        print_tally(ls_impls[i]->name, &s->impls[i]);
    }
    printf("\ndtypes:");
    print_tally("float32", &s->dtypes[0]);
    print_tally("float64", &s->dtypes[1]);
    printf("\ndevices:");
    for (size_t w = 0; w <= MOST_DEVICES; w++) {
        char name[16];
        snprintf(name, sizeof name, "%zu:", w);
        print_tally(name, &s->worlds[w]);
    }
    printf("\n");
    bool blunt = mistrusted * 50 > cases && mistrusted > 1; /* one alone may be chance, however few there are */
    if (blunt) {
        printf("more than 2 of a hundred are mistrusted\n");
    }
    return s->statuses[LS_FAILED] > 0 || s->statuses[LS_PASSED] == 0 || blunt ? LS_CHECK_FAILED : LS_OK;
}

static void close_session(session *s) {
    for (size_t i = 0; i < WINDOW; i++) {
        slot *at = &s->slots[i];
        if (at->running) {
            ls_child_signal(&at->child, SIGTERM);
            ls_child_close(&at->child);
        }
        ls_random_outcome_free(&at->outcome);
    }
    ls_environment_free(&s->environment);
    ls_outcome_release(&s->folder);
}

static ls_rc run_session(session *s) {
    if (s->options->run.json[0] != '\0') {
        LS_TRY(ls_results_check(s->options->run.json));
    }
    LS_TRY(ls_platform_device_count(&s->devices));
    LS_TRY(ls_environment_copy(&s->environment));
    LS_TRY(ls_run_dir_make(s->program, &s->folder));
    printf("%6s %-6s %-9s %3s %5s %-7s %-13s %-7s %7s %s\n", "case", "impl", "ranks", "dev", "batch", "dtype", "loss",
           "optim", "time", "status, network");
    return run_cases(s);
}

ls_rc ls_verify_random(const char *program, const ls_options *options) {
    session *s = ls_calloc(1, sizeof *s, "drawn cases");
    if (s == NULL) {
        return LS_DEVICE_FAILED;
    }
    s->program = program;
    s->options = options;
    s->jobs = ls_children_at_once(MOST_JOBS);
    s->start = ls_now_seconds();
    ls_rc rc = ls_interrupt_begin();
    if (rc == LS_OK) {
        rc = run_session(s);
        close_session(s);
        rc = rc == LS_OK ? conclude(s) : rc;
        rc = ls_interrupt_signal() != 0 ? LS_DEVICE_FAILED : rc;
        ls_interrupt_end();
    }
    free(s);
    return rc;
}
