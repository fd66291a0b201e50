#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/stats.h"

/* 1..count in a mixed order (step coprime to count). */
static ls_summary of_ramp(size_t count, size_t step) {
    double samples[256];
    for (size_t i = 0; i < count; i++) {
        samples[i] = (double)(i * step % count + 1);
    }
    return ls_stats_summarize(samples, count);
}

static void one_sample_has_no_interval(void **state) {
    (void)state;
    ls_summary s = of_ramp(1, 1);
    assert_float_equal(s.median, 1, 0);
    assert_float_equal(s.confidence, 0, 0);
    assert_float_equal(s.low, 1, 0);
    assert_float_equal(s.high, 1, 0);
}

/* Five samples reach 1 - 2/32 = 0.9375 only; six are the first to reach 0.95 (1 - 2/64). */
static void few_samples_say_their_coverage(void **state) {
    (void)state;
    ls_summary five = of_ramp(5, 2);
    assert_float_equal(five.median, 3, 0);
    assert_float_equal(five.low, 1, 0);
    assert_float_equal(five.high, 5, 0);
    assert_float_equal(five.confidence, 0.9375, 1e-12);
    ls_summary six = of_ramp(6, 5);
    assert_float_equal(six.median, 3.5, 0);
    assert_float_equal(six.confidence, 0.96875, 1e-12);
}

/* Tables of the sign test: n = 10: ranks 2 and 9 (0.9785), n = 30: 10 and 21 (0.9572), n = 100: 40 and 61 (0.9648). */
static void intervals_match_the_tables(void **state) {
    (void)state;
    ls_summary s = of_ramp(10, 3);
    assert_float_equal(s.low, 2, 0);
    assert_float_equal(s.high, 9, 0);
    assert_float_equal(s.confidence, 0.978515625, 1e-12);
    s = of_ramp(30, 7);
    assert_float_equal(s.low, 10, 0);
    assert_float_equal(s.high, 21, 0);
    assert_float_equal(s.confidence, 0.95722608, 1e-6);
    s = of_ramp(100, 33);
    assert_float_equal(s.low, 40, 0);
    assert_float_equal(s.high, 61, 0);
    assert_float_equal(s.confidence, 0.9647998, 1e-6);
    assert_float_equal(s.minimum, 1, 0);
    assert_float_equal(s.maximum, 100, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sample_has_no_interval),
        cmocka_unit_test(few_samples_say_their_coverage),
        cmocka_unit_test(intervals_match_the_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
