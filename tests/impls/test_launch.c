/* The launcher: the guilty rank is named within the time limit, and nothing is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "gpu/base/clock.h"
#include "impls/launch.h"
#include "impls/options.h"
#include "tests/impls/fake_rank.h"
#include "tests/impls/stderr_capture.h"

static char self[LS_PATH_SIZE];
static char folder[] = "/tmp/test-launch-XXXXXX";

static size_t entries_of(const char *path) {
    size_t count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(dir);
    return count;
}

/* This program adopts orphans (main), so every process that a run has left would be its child. Ranks whose mpirun was
 * killed are adopted, and have ended. */
static void assert_nothing_left(void) {
    pid_t child;
    while ((child = waitpid(-1, NULL, WNOHANG)) > 0) {
    }
    assert_int_equal(child, -1); /* 0: one still runs */
    assert_int_equal(errno, ECHILD);
    assert_int_equal(entries_of(folder), 0);
}

static void make_run(ls_run *run, const char *impl, const char *mode) {
    ls_run_defaults(run);
    snprintf(run->impl, sizeof run->impl, "%s", impl);
    run->devices = 3;
    run->timeout = 0.6;
    setenv("FAKE_RANK", mode, 1);
}

typedef struct expectation {
    const char *mode;
    ls_rc rc;
    int guilty;
    const char *line;   /* the only line on stderr; NULL: none */
    const char *reason; /* of the outcome */
} expectation;

static void check(const char *impl, const expectation *expected, double limit) {
    ls_run run;
    ls_outcome outcome = {0};
    stderr_capture errors;
    make_run(&run, impl, expected->mode);
    double start = ls_now_seconds();
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = ls_launch(self, &run, &outcome);
    stderr_capture_end(&errors);
    double seconds = ls_now_seconds() - start;
    if (errors.lines != (expected->line != NULL) || rc != expected->rc) {
        print_message("%s %s: exit %d, %zu lines: %s", impl, expected->mode, rc, errors.lines, errors.text);
    }
    assert_int_equal(rc, expected->rc);
    assert_int_equal(outcome.rc, expected->rc);
    assert_int_equal(outcome.guilty_rank, expected->guilty);
    assert_int_equal(errors.lines, expected->line != NULL);
    if (expected->line != NULL) {
        assert_non_null(strstr(errors.text, expected->line));
        assert_non_null(strstr(outcome.reason, expected->reason));
    }
    assert_true(seconds < limit);
    assert_int_equal(outcome.run_dir[0] != '\0', 1);
    assert_int_equal(entries_of(folder), 1); /* the captures of a run stay until its release */
    ls_outcome_release(&outcome);
    assert_nothing_left();
}

/* Limits: the time limit of the run (0.6 s), a tick, the grace between SIGTERM and SIGKILL where it is used (2 s), and
 * generous room for a busy machine. */
static const double prompt = 8, after_grace = 12;

static void results_come_back(void **state) {
    (void)state;
    ls_run run;
    ls_outcome outcome = {0};
    make_run(&run, "ddp", "well");
    assert_int_equal(ls_launch(self, &run, &outcome), LS_OK);
    assert_int_equal(json_array_size(outcome.ranks), 3);
    for (size_t r = 0; r < 3; r++) {
        assert_int_equal(json_integer_value(json_object_get(json_array_get(outcome.ranks, r), "rank")), r);
    }
    ls_outcome_release(&outcome);
    ls_outcome_release(&outcome); /* safe twice */
    assert_nothing_left();
}

static void killed_rank_is_named(void **state) {
    (void)state;
    check("ddp",
          &(expectation){"kill", LS_DEVICE_FAILED, 1, "lockstep: rank 1 (pid ",
                         "was killed by signal 9 (Killed) at step 5; the run was ended"},
          prompt);
}

static void victims_are_not_blamed(void **state) {
    (void)state;
    check("ddp", &(expectation){"victims", LS_DEVICE_FAILED, 1, "lockstep: rank 1 (pid ", "signal 9 (Killed)"}, prompt);
}

static void stopped_rank_is_named(void **state) {
    (void)state;
    check("ddp",
          &(expectation){"stop", LS_DEVICE_FAILED, 1, "lockstep: rank 1 (pid ",
                         "made no progress for 0.6 s at step 5 (stopped); the run was ended"},
          prompt);
}

static void hanging_rank_is_named(void **state) {
    (void)state;
    check(
        "ddp",
        &(expectation){"hang", LS_DEVICE_FAILED, 1, "lockstep: rank 1 (pid ", "made no progress for 0.6 s at step 5;"},
        prompt);
}

static void deaf_ranks_are_killed(void **state) {
    (void)state;
    check("ddp", &(expectation){"stubborn", LS_DEVICE_FAILED, 1, "lockstep: rank 1 (pid ", "signal 9"}, after_grace);
}

static void bad_input_is_told_once(void **state) {
    (void)state;
    check("ddp",
          &(expectation){"bad input", LS_BAD_INPUT, 1, "lockstep: rank 1 device 1: the file is bad", "the file is bad"},
          prompt);
}

static void own_line_of_a_rank_suffices(void **state) {
    (void)state;
    check("ddp",
          &(expectation){"device", LS_DEVICE_FAILED, 1, "lockstep: rank 1 device 1: the device is bad",
                         "the device is bad"},
          prompt);
}

static void silent_ends_are_told(void **state) {
    (void)state;
    check("ddp", &(expectation){"quiet", LS_DEVICE_FAILED, 1, "ended with exit code 7 at step 5", "exit code 7"},
          prompt);
    check("ddp", &(expectation){"early", LS_DEVICE_FAILED, 1, "ended before the run was finished", "before"}, prompt);
    check("ddp", &(expectation){"no result", LS_DEVICE_FAILED, 1, "rank 1 left no result", "left no result"}, prompt);
}

static void mpi_ranks_are_watched_too(void **state) {
    (void)state;
    check("mpi", &(expectation){"well", LS_OK, -1, NULL, NULL}, prompt);
    check("mpi", &(expectation){"kill", LS_DEVICE_FAILED, 1, "lockstep: rank 1 (pid ", "signal 9 (Killed) at step 5"},
          after_grace);
    check("mpi", &(expectation){"stop", LS_DEVICE_FAILED, 1, "lockstep: rank 1 (pid ", "at step 5 (stopped)"},
          after_grace);
    check("mpi", &(expectation){"bad input", LS_BAD_INPUT, 1, "rank 1 device 1: the file is bad", "the file is bad"},
          after_grace);
}

/* The test program as a launcher of its own, whose ranks never end. */
static pid_t start_launcher(const char *impl) {
    pid_t pid;
    char *argv[] = {self, "launcher", (char *)impl, NULL};
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, argv, environ), 0);
    return pid;
}

static int launcher_main(const char *impl) {
    ls_run run;
    ls_outcome outcome = {0};
    make_run(&run, impl, "hang");
    run.timeout = 60;
    ls_rc rc = ls_launch(self, &run, &outcome);
    ls_outcome_release(&outcome);
    return rc;
}

/* Waits until rank 1 of the only run in the folder stands at step 5. */
static void await_ranks(void) {
    double end = ls_now_seconds() + 20;
    for (bool there = false; !there;) {
        assert_true(ls_now_seconds() < end);
        fake_pause();
        DIR *dir = opendir(folder);
        for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
            char path[LS_PATH_SIZE], file[LS_PATH_SIZE + 16];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            snprintf(file, sizeof file, "%s/progress", path);
            ls_progress *page;
            if (entry->d_name[0] != '.' && access(file, F_OK) == 0 && ls_progress_open(path, &page) == LS_OK) {
                there = page->ranks == 3 && atomic_load(&page->rank[1].step) == 5;
                ls_progress_close(page);
            }
        }
        closedir(dir);
    }
}

static void end_launcher(const char *impl, int number) {
    pid_t launcher = start_launcher(impl);
    int status = 0;
    await_ranks();
    kill(launcher, number);
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), number);
    if (number != SIGKILL) {
        assert_nothing_left(); /* put away before it ended */
        return;
    }
    double end = ls_now_seconds() + 15;
    pid_t child;
    while ((child = waitpid(-1, NULL, WNOHANG)) >= 0) { /* adopted orphans */
        assert_true(ls_now_seconds() < end);
        fake_pause();
    }
    assert_nothing_left();
}

static void nothing_outlives_the_launcher(void **state) {
    (void)state;
    end_launcher("ddp", SIGKILL);
    end_launcher("mpi", SIGKILL);
    end_launcher("ddp", SIGTERM);
    end_launcher("ddp", SIGINT);
}

static void folder_that_cannot_be_made_is_bad_input(void **state) {
    (void)state;
    ls_run run;
    ls_outcome outcome = {0};
    stderr_capture errors;
    make_run(&run, "ddp", "well");
    setenv("TMPDIR", "/nonexistent", 1);
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = ls_launch(self, &run, &outcome);
    stderr_capture_end(&errors);
    setenv("TMPDIR", folder, 1);
    assert_int_equal(rc, LS_BAD_INPUT);
    assert_int_equal(errors.lines, 1);
    assert_non_null(strstr(errors.text, "/nonexistent"));
    ls_outcome_release(&outcome);
    assert_nothing_left();
}

static int test_all(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_come_back),
        cmocka_unit_test(killed_rank_is_named),
        cmocka_unit_test(victims_are_not_blamed),
        cmocka_unit_test(stopped_rank_is_named),
        cmocka_unit_test(hanging_rank_is_named),
        cmocka_unit_test(deaf_ranks_are_killed),
        cmocka_unit_test(bad_input_is_told_once),
        cmocka_unit_test(own_line_of_a_rank_suffices),
        cmocka_unit_test(silent_ends_are_told),
        cmocka_unit_test(mpi_ranks_are_watched_too),
        cmocka_unit_test(nothing_outlives_the_launcher),
        cmocka_unit_test(folder_that_cannot_be_made_is_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv) {
    if (ls_launch_self(self, sizeof self) != LS_OK) {
        return 1;
    }
    if (argc >= 2 && strcmp(argv[1], "rank") == 0) {
        return fake_rank_main(argc, argv);
    }
    if (argc >= 2 && strcmp(argv[1], "rank-guard") == 0) {
        return ls_rank_guard_main(argc - 2, argv + 2);
    }
    if (argc == 3 && strcmp(argv[1], "launcher") == 0) {
        return launcher_main(argv[2]);
    }
    if (mkdtemp(folder) == NULL || setenv("TMPDIR", folder, 1) != 0) {
        return 1;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int failed = test_all();
    rmdir(folder);
    return failed;
}
