/* Faults in what the devices compute, the samples that they take and the update: each reported by its check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/verify/synthetic_case.h"

static const char *oracle_check(const synthetic *s) {
    return s->c.run.dtype == LS_FLOAT64 ? "float64" : "float32";
}

/* One pixel of one sample of one device is off by 1/255: the reduction is right, all ranks agree, the oracle does not. */
static void test_wrong_pixel(void **state) {
    (void)state;
    for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
        synthetic s;
        synthetic_open(&s, "ddp", "seed-cnn", 4, dtype);
        synthetic_local(&s, 2, 1, 14 * 28 + 14);
        synthetic_reduce(&s, 2);
        synthetic_verify(&s, NULL);
        expect_status(&s, LS_FAILED);
        expect_finding(&s, "reduction", LS_PASSED, "", "");
        expect_finding(&s, "bits", LS_PASSED, "", "");
        expect_finding(&s, oracle_check(&s), LS_FAILED, "step 2", "the local gradient of device 1 is off");
        synthetic_close(&s);
    }
}

/* The gradient of the step before was added instead of overwritten. */
static void test_gradient_not_cleared(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-conv", 2, LS_FLOAT32);
    for (size_t device = 0; device < 2; device++) {
        float *now = ls_case_local(&s.c, 1, device)->grads;
        const float *before = ls_case_local(&s.c, 0, device)->grads;
        for (size_t i = 0; i < s.c.model.param_count; i++) {
            now[i] += before[i];
        }
    }
    synthetic_reduce(&s, 1);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "reduction", LS_PASSED, "", "");
    expect_finding(&s, "float32", LS_FAILED, "step 1",
                   "it contains the gradient of the step before, which was not cleared");
    assert_non_null(strstr(synthetic_finding(&s, "float32")->cause, "of all devices"));
    synthetic_close(&s);
}

/* Where no choice of the window lies within rounding of the largest, another choice is a fault. */
static void test_pool_choice_unproven(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-cnn", 2, LS_FLOAT32);
    const ls_layer *pool = &s.c.model.layers[1];
    assert_int_equal(pool->kind, LS_LAYER_MAXPOOL);
    ls_capture_local *local = ls_case_local(&s.c, 1, 1);
    uint8_t *choice = local->decisions + 2 * s.c.model.decisions_per_sample + pool->decision_offset + 5 * 12 + 7;
    *choice = (uint8_t)((*choice + 1) % 4);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "float32", LS_FAILED, "", "");
    /* The reference follows the choice, so the gradient differs too; undo that by taking it as the device's own. */
    const ls_oracle_local *reference = NULL;
    assert_int_equal(ls_oracle_cache_local(s.oracle, &s.c, 1, 1, &reference), LS_OK);
    for (size_t i = 0; i < s.c.model.param_count; i++) {
        synthetic_put(&s, local->grads, i, reference->grads[i] / SYNTHETIC_BATCH);
    }
    synthetic_reduce(&s, 1);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "reduction", LS_PASSED, "", "");
    expect_finding(&s, "float32", LS_FAILED, "step 1, device 1: 1 of ", "forward pass of device 1");
    char expected[64];
    snprintf(expected, sizeof expected, "at value 67 of sample %zu", local->indices[2]);
    assert_non_null(strstr(synthetic_finding(&s, "float32")->detail, expected));
    synthetic_close(&s);
}

static void test_loss_is_checked(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-conv", 2, LS_FLOAT64);
    ls_case_reduced(&s.c, 2, 1)->loss *= 1 + 1e-9;
    synthetic_verify(&s, NULL);
    expect_finding(&s, "float64", LS_FAILED, "step 2: loss of rank 1 is", "");
    ls_case_reduced(&s.c, 2, 1)->loss /= 1 + 1e-9;
    ls_case_local(&s.c, 0, 0)->loss_sum = 0;
    synthetic_verify(&s, NULL);
    expect_finding(&s, "float64", LS_FAILED, "step 0: loss of device 0 is", "");
    ls_case_local(&s.c, 0, 0)->loss_sum = NAN; /* a device that does not compute the loss */
    synthetic_verify(&s, NULL);
    expect_status(&s, LS_PASSED);
    synthetic_close(&s);
}

/* A float32 tensor is judged by 8 times the error of `single` where that is more than 1e-5. */
static void test_baseline_scales_the_float32_bound(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "single", "seed-conv", 1, LS_FLOAT32);
    ls_check_input input = {.c = &s.c, .oracle = s.oracle};
    ls_baseline baseline;
    assert_int_equal(ls_baseline_measure(&input, &baseline), LS_OK);
    assert_int_equal(baseline.steps, 3);
    assert_int_equal(baseline.tensors, 4);
    for (size_t i = 0; i < 12; i++) {
        assert_true(baseline.relative_l2[i] > 1e-9 && baseline.relative_l2[i] < 1e-5);
        assert_true(baseline.relative_max[i] > 1e-9 && baseline.relative_max[i] < 1e-5);
    }
    const ls_param *param = synthetic_param(&s, "fc.weight");
    float *grads = ls_case_reduced(&s.c, 0, 0)->grads;
    float *local = ls_case_local(&s.c, 0, 0)->grads;
    for (size_t i = param->offset; i < param->offset + param->count; i++) {
        local[i] = grads[i] *= 1 + 2e-5F;
    }
    synthetic_verify(&s, &baseline);
    expect_finding(&s, "float32", LS_FAILED, "gradient of fc.weight is off by 2e-05", "scale 1.00002");
    for (size_t i = 0; i < 12; i++) { /* the same runs, had single been off by 4e-6 */
        baseline.absolute_l2[i] *= 4e-6 / baseline.relative_l2[i];
        baseline.absolute_max[i] *= 4e-6 / baseline.relative_max[i];
        baseline.relative_l2[i] = baseline.relative_max[i] = 4e-6;
    }
    synthetic_verify(&s, &baseline);
    expect_finding(&s, "float32", LS_PASSED, "", "");
    ls_baseline_close(&baseline);
    synthetic_close(&s);
}

static void test_samples(void **state) {
    (void)state;
    static const char *const impls[] = {"ddp", "dp"};
    for (size_t i = 0; i < 2; i++) {
        synthetic s;
        synthetic_open(&s, impls[i], "seed-conv", 3, LS_FLOAT32);
        size_t *a = ls_case_local(&s.c, 1, 0)->indices;
        size_t *b = ls_case_local(&s.c, 1, 2)->indices;
        size_t kept = b[3];
        b[3] = a[0];
        synthetic_verify(&s, NULL);
        char expected[96];
        snprintf(expected, sizeof expected, "step 1: sample %zu is taken 2 times (devices 0, 2)", a[0]);
        expect_finding(&s, "samples", LS_FAILED, expected, "ranks overlap");
        b[3] = kept == 599 ? 598 : kept + 1; /* a sample of another step */
        synthetic_verify(&s, NULL);
        expect_finding(&s, "samples", LS_FAILED, "step 1: sample", "sampler");
        size_t swapped = a[1];
        b[3] = kept;
        a[1] = a[2];
        a[2] = swapped;
        synthetic_verify(&s, NULL);
        snprintf(expected, sizeof expected, "step 1, device 0: sample %zu at place 1, expected %zu", a[1], swapped);
        expect_finding(&s, "samples", LS_FAILED, expected, "sampler");
        synthetic_close(&s);
    }
}

static void test_missing_sample(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-conv", 3, LS_FLOAT32);
    size_t missing = ls_case_local(&s.c, 2, 2)->indices[5];
    ls_case_local(&s.c, 2, 2)->count = 5;
    synthetic_verify(&s, NULL);
    char expected[96];
    snprintf(expected, sizeof expected, "step 2: sample %zu is missing", missing);
    expect_finding(&s, "samples", LS_FAILED, expected, "");
    synthetic_close(&s);
}

static void test_initial_values(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-conv", 2, LS_FLOAT32);
    synthetic_bump(&s, ls_case_reduced(&s.c, 0, 1)->params_before, synthetic_param(&s, "fc.bias")->offset);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "initial", LS_FAILED, "rank 1 starts with fc.bias[0] = 0x", "no broadcast");
    expect_finding(&s, "bits", LS_FAILED, "step 0, parameters before the step", "");
    synthetic_close(&s);
}

/* An update with another momentum, learning rate or weight decay: no gradient is wrong. */
static void test_wrong_update(void **state) {
    (void)state;
    for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
        for (size_t which = 0; which < 3; which++) {
            synthetic s;
            synthetic_open(&s, "single", "seed-conv", 1, dtype);
            const ls_run told = s.c.run;
            double momentum = told.optimizer.momentum;
            if (which == 0) {
                momentum = 0.45;
            } else if (which == 1) {
                s.c.run.lr *= 1.01;
            } else {
                s.c.run.optimizer.weight_decay = 0;
            }
            for (size_t step = 0; step < 3; step++) { /* as synthetic_run, but with this update */
                if (step > 0) {
                    memcpy(ls_case_reduced(&s.c, step, 0)->params_before,
                           ls_case_reduced(&s.c, step - 1, 0)->params_after, synthetic_bytes(&s));
                }
                synthetic_local(&s, step, 0, SIZE_MAX);
                synthetic_reduce(&s, step);
                synthetic_update(&s, step, 0, momentum);
            }
            s.c.run = told;
            synthetic_verify(&s, NULL);
            expect_finding(&s, oracle_check(&s), LS_PASSED, "", "");
            expect_finding(&s, "bits", LS_PASSED, "", "");
            expect_finding(&s, "trajectory", LS_FAILED, which == 0 ? "after step 1" : "after step 0", "the update");
            synthetic_close(&s);
        }
    }
}

/* Equal cases cost nothing: a second look takes every answer from the first. */
static void test_oracle_answers_are_reused(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-conv", 2, LS_FLOAT32);
    size_t computed = 0;
    size_t reused = 0;
    synthetic_verify(&s, NULL);
    ls_oracle_cache_counts(s.oracle, &computed, &reused);
    assert_int_equal(computed, 6);
    synthetic_verify(&s, NULL);
    ls_oracle_cache_counts(s.oracle, &computed, &reused);
    assert_int_equal(computed, 6);
    assert_true(reused >= 6);
    ls_case_local(&s.c, 0, 0)->indices[0] = ls_case_local(&s.c, 0, 0)->indices[1];
    synthetic_verify(&s, NULL);
    ls_oracle_cache_counts(s.oracle, &computed, &reused);
    assert_int_equal(computed, 7);
    synthetic_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_pixel),
        cmocka_unit_test(test_gradient_not_cleared),
        cmocka_unit_test(test_pool_choice_unproven),
        cmocka_unit_test(test_loss_is_checked),
        cmocka_unit_test(test_baseline_scales_the_float32_bound),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_missing_sample),
        cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_wrong_update),
        cmocka_unit_test(test_oracle_answers_are_reused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
