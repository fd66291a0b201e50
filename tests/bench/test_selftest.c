/* What the self-test makes of a verification's row, and of its own table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "bench/selftest.h"
#include "verify/check.h"

/* A row of verify in which the given checks (indices into ls_checks, up to the first negative one) failed. */
static json_t *row_of(const char *status, const char *dtype, const int *failed) {
    json_t *layers = json_array();
    for (int i = 0; ls_checks[i].name != NULL; i++) {
        const char *verdict = "PASSED";
        for (const int *f = failed; *f >= 0; f++) {
            verdict = *f == i ? "FAILED" : verdict;
        }
        json_array_append_new(layers, json_pack("{s:s, s:s}", "name", ls_checks[i].name, "status", verdict));
    }
    return json_pack("{s:s, s:s, s:{s:o}}", "status", status, "dtype", dtype, "verification", "layers", layers);
}

static int index_of(const char *heading) {
    int i = 0;
    while (strcmp(ls_checks[i].heading, heading) != 0) {
        i++;
    }
    return i;
}

static void expect(ls_selftest_verdict expected, const char *checks, const char *by, json_t *row) {
    char found[128];
    assert_int_equal(ls_selftest_judge(checks, row, found, sizeof found), expected);
    assert_string_equal(found, by);
    json_decref(row);
}

static void test_every_named_check_must_fail(void **state) {
    (void)state;
    const int both[] = {index_of("bits"), index_of("float32"), -1};
    expect(LS_SELFTEST_CAUGHT, "bits oracle", "bits float32", row_of("FAILED", "float32", both));
    expect(LS_SELFTEST_CAUGHT, "bits", "bits float32", row_of("FAILED", "float32", both));
    expect(LS_SELFTEST_ELSEWHERE, "bits oracle", "bits float32", row_of("FAILED", "float64", both));
    expect(LS_SELFTEST_ELSEWHERE, "reduction", "bits float32", row_of("FAILED", "float32", both));
    expect(LS_SELFTEST_ELSEWHERE, "bit", "bits float32", row_of("FAILED", "float32", both));
    expect(LS_SELFTEST_ELSEWHERE, "run", "bits float32", row_of("FAILED", "float32", both));
}

static void test_what_passes_has_survived(void **state) {
    (void)state;
    const int none[] = {-1};
    expect(LS_SELFTEST_SURVIVED, "bits", "", row_of("PASSED", "float32", none));
    expect(LS_SELFTEST_SURVIVED, "bits", "", row_of("MISTRUSTED", "float32", none));
    expect(LS_SELFTEST_SKIPPED, "bits", "", row_of("SKIPPED", "float32", none));
}

static void test_a_run_that_fails_has_no_checks(void **state) {
    (void)state;
    expect(LS_SELFTEST_CAUGHT, "run", "run", json_pack("{s:s, s:n}", "status", "FAILED", "verification"));
    expect(LS_SELFTEST_ELSEWHERE, "bits", "run", json_pack("{s:s, s:n}", "status", "FAILED", "verification"));
}

/* The table names checks that exist, and each check has a mutant that it alone, or with others, must catch. */
static void test_every_check_has_a_mutant(void **state) {
    (void)state;
    bool named[LS_MAX_CHECKS] = {false};
    for (const ls_mutant *m = ls_mutants; m->name != NULL; m++) {
        size_t known = ls_mutant_names(m->checks, "run") ? 1 : 0;
        known += ls_mutant_names(m->checks, "oracle") ? 1 : 0;
        for (size_t i = 0; ls_checks[i].name != NULL; i++) {
            const char *heading = ls_checks[i].heading;
            bool oracle = strcmp(heading, "float32") == 0 || strcmp(heading, "float64") == 0;
            bool here = ls_mutant_names(m->checks, heading);
            known += here ? 1 : 0;
            named[i] = named[i] || (m->waits == NULL && (here || (oracle && ls_mutant_names(m->checks, "oracle"))));
        }
        size_t words = 1;
        for (const char *at = m->checks; *at != '\0'; at++) {
            words += *at == ' ' ? 1 : 0;
        }
        if (known != words) {
            fail_msg("%s is to be caught by '%s', which names no check", m->name, m->checks);
        }
    }
    for (size_t i = 0; ls_checks[i].name != NULL; i++) {
        if (!named[i]) {
            fail_msg("no mutant shows that the check '%s' can fail", ls_checks[i].heading);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_named_check_must_fail),
        cmocka_unit_test(test_what_passes_has_survived),
        cmocka_unit_test(test_a_run_that_fails_has_no_checks),
        cmocka_unit_test(test_every_check_has_a_mutant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
