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
    assert_true(LS_STATS_LEAST == 6 && six.confidence >= LS_STATS_CONFIDENCE && five.confidence < LS_STATS_CONFIDENCE);
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

/* Steps of one process resemble each other: pooled, they would give the narrow interval of many independent samples. */
static void rounds_count_once_each(void **state) {
    (void)state;
    enum { ROUNDS = 6, EACH = 5 };
    static const double round_centre[ROUNDS] = {30, 10, 60, 20, 50, 40};
    double samples[ROUNDS * EACH], before[ROUNDS * EACH], medians[ROUNDS];
    for (size_t i = 0; i < ROUNDS * EACH; i++) {
        static const double around[EACH] = {2, -1, 0, 1, -2};
        before[i] = samples[i] = round_centre[i / EACH] + around[i % EACH];
    }
    ls_summary s;
    assert_int_equal(ls_stats_of_rounds(samples, ROUNDS * EACH, ROUNDS, medians, &s), LS_OK);
    assert_memory_equal(samples, before, sizeof samples);
    assert_memory_equal(medians, round_centre, sizeof medians);
    assert_float_equal(s.median, 35, 0);
    assert_float_equal(s.low, 10, 0);
    assert_float_equal(s.high, 60, 0);
    assert_float_equal(s.confidence, 0.96875, 1e-12);
    ls_summary pooled = ls_stats_summarize(samples, ROUNDS * EACH);
    assert_true(pooled.low > 20 && pooled.high < 50); /* of 30: the 10th and the 21st */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sample_has_no_interval),
        cmocka_unit_test(few_samples_say_their_coverage),
        cmocka_unit_test(intervals_match_the_tables),
        cmocka_unit_test(rounds_count_once_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
