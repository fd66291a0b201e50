/* Which way the gradient of the input behind a max-pooling goes, what a plan with one no longer holds, and what is too large for one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu/vgpu/math/plan.h"

/* Whether the plan has lists for it, or a place for the gradients of all outputs of the convolution: one of the two. */
static bool has_lists(const ls_conv_shape *shape, size_t side, ls_dtype dtype) {
    const direct_isa *isa = direct_isa_select();
    direct_plans plans;
    assert_non_null(isa);
    assert_int_equal(LS_OK, direct_plans_make(isa, shape, dtype, 20, &plans));
    assert_int_equal(LS_OK, direct_plans_pool(isa, &plans, side, 1));
    const bool lists = plans.pool.input.table != NULL;
    assert_true(lists == (plans.pool.spread == NULL));
    assert_null(plans.backward_params.sums);
    assert_null(plans.backward_params.padded);
    direct_plans_free(&plans);
    return lists;
}

static void test_choice(void **state) {
    (void)state;
    const ls_conv_shape usual = {10, 12, 12, 20, 5, 5, 1, 0}, residual = {16, 16, 16, 32, 3, 3, 1, 1},
                        few = {128, 16, 16, 1, 3, 3, 1, 1}, pointwise = {64, 16, 16, 64, 1, 1, 1, 0};
    const ls_dtype dtypes[] = {LS_FLOAT32, LS_FLOAT64};
    for (size_t d = 0; d < 2; d++) {
        assert_true(has_lists(&usual, 2, dtypes[d]));
        assert_true(has_lists(&residual, 2, dtypes[d]));
        assert_false(has_lists(&few, 2, dtypes[d]));
        assert_false(has_lists(&pointwise, 2, dtypes[d]));
        assert_false(has_lists(&residual, 1, dtypes[d])); /* each output has a gradient */
    }
}

/* Refused before there is memory for it, of which these would take hundreds of GB. */
static void test_too_large(void **state) {
    (void)state;
    const direct_isa *isa = direct_isa_select();
    const ls_conv_shape few = {1, 40000, 40000, 1, 3, 3, 1, 0}, many = {1, 40000, 40000, 64, 5, 5, 1, 0};
    const ls_conv_shape *shapes[] = {&few, &many};
    direct_plans plans;
    assert_non_null(isa);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(LS_OK, direct_plans_make(isa, shapes[i], LS_FLOAT32, 1, &plans));
        assert_int_equal(LS_BAD_INPUT, direct_plans_pool(isa, &plans, 2, 0));
        direct_plans_free(&plans);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice), cmocka_unit_test(test_too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
