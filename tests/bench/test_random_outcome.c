/* What a drawn case has left, read: its rows count, and whatever else happened is a failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/random_outcome.h"

#define PASSED     "{\"status\":\"PASSED\",\"reason\":null}\n"
#define MISTRUSTED "{\"status\":\"MISTRUSTED\",\"reason\":\"all zero\"}\n"
#define FAILED     "{\"status\":\"FAILED\",\"reason\":\"off by 3\"}\n"

/* As waitpid says it. */
#define EXITED(code) ((code) << 8)

static char folder[64];

static int set_up(void **state) {
    (void)state;
    strcpy(folder, "/tmp/lockstep-test-outcome-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static const char *write_file(const char *name, const char *text) {
    static char paths[3][96];
    static size_t next;
    char *path = paths[next++ % 3];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

static int tear_down(void **state) {
    (void)state;
    static const char *const names[] = {"out", "err", "json"};
    for (size_t i = 0; i < 3; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static void expect(int status, const char *out, const char *error, const char *rows, ls_status expected,
                   const char *reason) {
    ls_random_outcome outcome;
    ls_random_outcome_read(status, write_file("out", out), write_file("err", error), write_file("json", rows),
                           &outcome);
    assert_int_equal(outcome.status, expected);
    if (strstr(outcome.reason, reason) == NULL) {
        fail_msg("expected '%s' in '%s'", reason, outcome.reason);
    }
    ls_random_outcome_free(&outcome);
}

static void the_worst_row_counts(void **state) {
    (void)state;
    expect(EXITED(0), "", "", PASSED PASSED, LS_PASSED, "");
    expect(EXITED(0), "", "", MISTRUSTED PASSED, LS_MISTRUSTED, "all zero");
    expect(EXITED(1), "", "", PASSED MISTRUSTED, LS_MISTRUSTED, "all zero");
    expect(EXITED(1), "", "", FAILED PASSED, LS_FAILED, "off by 3");
    expect(EXITED(1), "", "", PASSED FAILED, LS_FAILED, "off by 3");
}

static void another_end_is_a_failure(void **state) {
    (void)state;
    expect(EXITED(2), "", "lockstep: no such thing\nmore\n", "", LS_FAILED, "exit 2: lockstep: no such thing");
    expect(EXITED(3), "", "a device is gone\n", PASSED, LS_FAILED, "exit 3: a device is gone");
    expect(EXITED(0), "", "", "", LS_FAILED, "exit 0");
    expect(EXITED(1), "", "", PASSED, LS_FAILED, "exit 1");
    expect(11, "", "", PASSED, LS_FAILED, "signal 11");
    expect(EXITED(0), "", "", PASSED FAILED, LS_FAILED, "exit 0"); /* exit code and rows contradict one another */
    expect(EXITED(0), "", "", "{\"status\":\"SPLENDID\"}\n", LS_FAILED, "exit 0");
}

static void what_is_said_of_a_failure_is_kept(void **state) {
    (void)state;
    const char *out = "head\nsingle PASSED\n\nFAILED ddp, 2 devices\n  layer 2: off\n    likely cause: a rank\n\n"
                      "FAILED mpi\n  layer 3\n\n1 passed, 2 failed\n";
    ls_random_outcome outcome;
    ls_random_outcome_read(EXITED(1), write_file("out", out), write_file("err", ""), write_file("json", FAILED),
                           &outcome);
    assert_string_equal(outcome.told, "  FAILED ddp, 2 devices\n    layer 2: off\n      likely cause: a rank\n"
                                      "  FAILED mpi\n    layer 3\n");
    ls_random_outcome_free(&outcome);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_row_counts),
        cmocka_unit_test(another_end_is_a_failure),
        cmocka_unit_test(what_is_said_of_a_failure_is_kept),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
