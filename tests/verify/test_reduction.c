/* Faults between the local gradients and the parameters: planted in a correct record, each must be reported by the check
 * that is there for it, with the right verdict. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/verify/synthetic_case.h"

/* reduced = sum over devices of weight[d]*g_d(step) + before[d]*g_d(step-1) on every rank, and the run goes on from there. */
static void blend(synthetic *s, size_t step, const double *now, const double *before) {
    for (size_t i = 0; i < s->c.model.param_count; i++) {
        double sum = 0;
        for (size_t d = 0; d < s->c.devices; d++) {
            sum += now[d] * synthetic_get(s, ls_case_local(&s->c, step, d)->grads, i);
            if (before != NULL) {
                sum += before[d] * synthetic_get(s, ls_case_local(&s->c, step - 1, d)->grads, i);
            }
        }
        for (size_t rank = 0; rank < s->c.ranks; rank++) {
            synthetic_put(s, ls_case_reduced(&s->c, step, rank)->grads, i, sum);
        }
    }
}

static void check_blend(size_t step, const double *now, const double *before, const char *cause) {
    for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
        synthetic s;
        synthetic_open(&s, "ddp", "seed-conv", 4, dtype);
        blend(&s, step, now, before);
        synthetic_verify(&s, NULL);
        expect_status(&s, LS_FAILED);
        expect_finding(&s, "bits", LS_PASSED, "", "");
        expect_finding(&s, "samples", LS_PASSED, "", "");
        expect_finding(&s, "reduction", LS_FAILED, "the mean of the local gradients is", cause);
        expect_finding(&s, dtype == LS_FLOAT64 ? "float64" : "float32", LS_FAILED, "gradient of", "the reduction");
        synthetic_close(&s);
    }
}

static void test_correct_cases_pass(void **state) {
    (void)state;
    static const char *const impls[] = {"ddp", "dp", "single"};
    for (size_t i = 0; i < 3; i++) {
        for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
            synthetic s;
            synthetic_open(&s, impls[i], i == 1 ? "seed-conv" : "seed-cnn", i == 2 ? 1 : 3, dtype);
            synthetic_verify(&s, NULL);
            expect_status(&s, LS_PASSED);
            expect_finding(&s, dtype == LS_FLOAT64 ? "float32" : "float64", LS_SKIPPED, "the case is in", "");
            synthetic_close(&s);
        }
    }
}

static void test_not_averaged(void **state) {
    (void)state;
    check_blend(0, (const double[]){1, 1, 1, 1}, NULL, "every tensor: not averaged: 4 times the mean (scale 4)");
}

static void test_averaged_twice(void **state) {
    (void)state;
    static const double weight = 1.0 / 16;
    check_blend(2, (const double[]){weight, weight, weight, weight}, NULL,
                "every tensor: averaged twice: 1/4 of the mean (scale 0.25)");
}

static void test_divided_by_one_too_few(void **state) {
    (void)state;
    static const double weight = 1.0 / 3;
    check_blend(1, (const double[]){weight, weight, weight, weight}, NULL, "divided by 3, one too few (scale 1.33333)");
}

static void test_rank_lost(void **state) {
    (void)state;
    check_blend(1, (const double[]){0.25, 0.25, 0, 0.25}, NULL, "a rank was lost: without device 2 (scale 0.");
}

static void test_not_reduced(void **state) {
    (void)state;
    check_blend(0, (const double[]){0, 1, 0, 0}, NULL, "not reduced: the local gradient of device 1");
}

static void test_rank_counted_twice(void **state) {
    (void)state;
    check_blend(0, (const double[]){0.25, 0.25, 0.25, 0.5}, NULL, "device 3 was counted twice");
    check_blend(0, (const double[]){0, 0.25, 0.25, 0.5}, NULL, "device 3 was counted in place of device 0");
}

static void test_stale_gradients(void **state) {
    (void)state;
    check_blend(1, (const double[]){0.25, 0, 0.25, 0.25}, (const double[]){0, 0.25, 0, 0},
                "stale: device 1 took part with its gradient of the step before");
    check_blend(2, (const double[]){0, 0, 0, 0}, (const double[]){0.25, 0.25, 0.25, 0.25},
                "stale: the gradients of the step before");
}

/* One bucket is left local: every rank keeps its own gradient of these tensors. */
static void test_bucket_left_local(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-cnn", 3, LS_FLOAT32);
    const ls_param *param = synthetic_param(&s, "conv1.bias");
    for (size_t rank = 0; rank < 3; rank++) {
        for (size_t i = param->offset; i < param->offset + param->count; i++) {
            synthetic_put(&s, ls_case_reduced(&s.c, 1, rank)->grads, i,
                          synthetic_get(&s, ls_case_local(&s.c, 1, rank)->grads, i));
        }
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "bits", LS_FAILED, "step 1, reduced gradient: conv1.bias[0] (bucket 2) is", "ranks part");
    expect_finding(&s, "reduction", LS_FAILED, "conv1.bias[",
                   "conv1.bias: not reduced: the local gradient of device 0");
    synthetic_close(&s);
}

/* The largest error that W+1 roundings explain is accepted; 2u more on a single element of one of three steps is not. */
static void test_single_element_beyond_the_bound(void **state) {
    (void)state;
    for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
        synthetic s;
        synthetic_open(&s, "ddp", "seed-conv", 2, dtype);
        size_t element = synthetic_param(&s, "fc.weight")->offset + 1441; /* row 1, column 1 */
        double a = synthetic_get(&s, ls_case_local(&s.c, 1, 0)->grads, element);
        double b = synthetic_get(&s, ls_case_local(&s.c, 1, 1)->grads, element);
        double bound = 3 * ls_roundoff(dtype) * (fabs(a) + fabs(b)) / 2;
        for (size_t rank = 0; rank < 2; rank++) {
            synthetic_put(&s, ls_case_reduced(&s.c, 1, rank)->grads, element, (a + b) / 2 + bound * 0.5);
        }
        synthetic_verify(&s, NULL);
        expect_finding(&s, "reduction", LS_PASSED, "", "");
        for (size_t rank = 0; rank < 2; rank++) {
            synthetic_put(&s, ls_case_reduced(&s.c, 1, rank)->grads, element, (a + b) / 2 + bound * 5 / 3);
        }
        synthetic_verify(&s, NULL);
        expect_finding(&s, "reduction", LS_FAILED, "step 1, rank 0: fc.weight[1,1] (bucket 0) is", "single elements");
        expect_finding(&s, dtype == LS_FLOAT64 ? "float64" : "float32", LS_PASSED, "", "");
        synthetic_close(&s);
    }
}

/* Where DataParallel adds up gradients of one loss, dividing them is the fault. */
static void test_sum_that_was_averaged(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "dp", "seed-conv", 3, LS_FLOAT32);
    static const double weight = 1.0 / 3;
    blend(&s, 0, (const double[]){weight, weight, weight}, NULL);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "reduction", LS_FAILED, "the sum of the local gradients is",
                   "every tensor: averaged where a sum is due: 1/3 of the sum (scale 0.333333)");
    synthetic_close(&s);
}

static void test_one_bit_of_one_rank(void **state) {
    (void)state;
    for (size_t which = 0; which < 3; which++) {
        synthetic s;
        synthetic_open(&s, "ddp", "seed-conv", 3, LS_FLOAT32);
        ls_capture_reduced *rank = ls_case_reduced(&s.c, 2, 1);
        void *sides[] = {rank->params_before, rank->grads, rank->params_after};
        static const char *const names[] = {"parameters before the step", "reduced gradient",
                                            "parameters after the step"};
        size_t element = synthetic_param(&s, "conv1.weight")->offset + 27; /* channel 1, row 0, column 2 */
        synthetic_bump(&s, sides[which], element);
        synthetic_verify(&s, NULL);
        expect_status(&s, LS_FAILED);
        char expected[128];
        snprintf(expected, sizeof expected, "step 2, %s: conv1.weight[1,0,0,2] (bucket 1) is ", names[which]);
        expect_finding(&s, "bits", LS_FAILED, expected, "ranks part");
        const char *detail = synthetic_finding(&s, "bits")->detail;
        assert_non_null(strstr(detail, "0x"));
        assert_non_null(strstr(detail, " in rank 0 and "));
        assert_non_null(strstr(detail, " in rank 1; 1 of 14670 elements differ"));
        synthetic_close(&s);
    }
}

/* All ranks alike change a parameter between two steps: no rank differs from another. */
static void test_parameters_that_change_between_steps(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-conv", 2, LS_FLOAT32);
    for (size_t rank = 0; rank < 2; rank++) {
        synthetic_bump(&s, ls_case_reduced(&s.c, 1, rank)->params_before, 5);
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "bits", LS_FAILED, "step 1, parameters of rank 0 between steps", "");
    synthetic_close(&s);
}

static void test_zero_gradients_are_mistrusted(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-conv", 2, LS_FLOAT32);
    for (size_t device = 0; device < 2; device++) {
        memset(ls_case_local(&s.c, 1, device)->grads, 0, synthetic_bytes(&s));
        memset(ls_case_reduced(&s.c, 1, device)->grads, 0, synthetic_bytes(&s));
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "reduction", LS_MISTRUSTED, "step 1: every local gradient is zero", "");
    for (size_t device = 0; device < 2; device++) {
        synthetic_put(&s, ls_case_local(&s.c, 1, device)->grads, 7, 1);
        synthetic_put(&s, ls_case_reduced(&s.c, 1, device)->grads, 7, 1);
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "reduction", LS_MISTRUSTED, "step 1: only 1 elements", "");
    synthetic_close(&s);
}

static void test_not_a_number(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-conv", 2, LS_FLOAT64);
    for (size_t rank = 0; rank < 2; rank++) {
        synthetic_put(&s, ls_case_reduced(&s.c, 0, rank)->grads, 3, NAN);
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "bits", LS_PASSED, "", "");
    expect_finding(&s, "reduction", LS_FAILED, "nan", "");
    expect_finding(&s, "float64", LS_FAILED, "nan", "");
    synthetic_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_correct_cases_pass),
        cmocka_unit_test(test_not_averaged),
        cmocka_unit_test(test_averaged_twice),
        cmocka_unit_test(test_divided_by_one_too_few),
        cmocka_unit_test(test_rank_lost),
        cmocka_unit_test(test_not_reduced),
        cmocka_unit_test(test_rank_counted_twice),
        cmocka_unit_test(test_stale_gradients),
        cmocka_unit_test(test_bucket_left_local),
        cmocka_unit_test(test_single_element_beyond_the_bound),
        cmocka_unit_test(test_sum_that_was_averaged),
        cmocka_unit_test(test_one_bit_of_one_rank),
        cmocka_unit_test(test_parameters_that_change_between_steps),
        cmocka_unit_test(test_zero_gradients_are_mistrusted),
        cmocka_unit_test(test_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
