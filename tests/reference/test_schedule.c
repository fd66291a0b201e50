/* Learning rates against PyTorch's schedulers, and the warm-up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "tests/golden/schedules.h"

/* PyTorch carries the rate from epoch to epoch, a few roundings each; the cosine is absolute near its zeros. */
static void rates_equal_pytorch(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof golden_schedules / sizeof golden_schedules[0]; c++) {
        for (size_t epoch = 0; epoch < GOLDEN_EPOCHS; epoch++) {
            double rate = ls_schedule_rate(&golden_schedules[c].schedule, 0.1, epoch * 100, epoch, GOLDEN_EPOCHS);
            assert_true(fabs(rate - golden_schedules[c].rates[epoch]) <= 1e-16);
        }
    }
}

static void a_constant_rate_is_the_base(void **state) {
    (void)state;
    ls_schedule schedule = {0};
    assert_true(ls_schedule_rate(&schedule, 0.3, 12345, 67, 10) == 0.3);
}

static void the_warm_up_is_linear_in_steps(void **state) {
    (void)state;
    ls_schedule schedule = {.warmup_steps = 4};
    static const double expected[] = {0, 0.25, 0.5, 0.75, 1, 1};
    for (uint64_t step = 0; step < 6; step++) {
        assert_true(ls_schedule_rate(&schedule, 1, step, 0, 1) == expected[step]);
    }
    /* it multiplies what the epochs make of the rate */
    schedule = (ls_schedule){.kind = LS_SCHEDULE_STEP, .step_size = 1, .gamma = 0.5, .warmup_steps = 4};
    assert_true(ls_schedule_rate(&schedule, 1, 2, 1, 9) == 0.25);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_equal_pytorch),
        cmocka_unit_test(a_constant_rate_is_the_base),
        cmocka_unit_test(the_warm_up_is_linear_in_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
