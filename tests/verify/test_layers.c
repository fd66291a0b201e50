/* Faults of dropout and batchnorm: each reported by its check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/verify/synthetic_case.h"

static const char *const with_dropout = "flatten; linear 12; relu; dropout 0.4; linear 10";
static const char *const with_batchnorm = "conv 3 k5 s3; batchnorm; relu; maxpool 2; flatten; linear 10";

static void test_good_cases_pass(void **state) {
    (void)state;
    for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
        synthetic s;
        synthetic_open(&s, "ddp", with_dropout, 3, dtype);
        synthetic_verify(&s, NULL);
        expect_status(&s, LS_PASSED);
        expect_finding(&s, "masks", LS_PASSED, "", "");
        expect_finding(&s, "buffers", LS_SKIPPED, "no buffers", "");
        synthetic_close(&s);
        synthetic_open(&s, "dp", with_batchnorm, 3, dtype);
        synthetic_verify(&s, NULL);
        expect_status(&s, LS_PASSED);
        expect_finding(&s, "masks", LS_SKIPPED, "no dropout", "");
        expect_finding(&s, "buffers", LS_PASSED, "", "");
        synthetic_close(&s);
    }
}

static const ls_layer *dropout_of(const synthetic *s) {
    const ls_layer *layer = &s->c.model.layers[3];
    assert_int_equal(layer->kind, LS_LAYER_DROPOUT);
    return layer;
}

static uint8_t *mask_of(const synthetic *s, size_t step, size_t device, size_t sample) {
    return ls_case_local(&s->c, step, device)->decisions + sample * s->c.model.decisions_per_sample +
           dropout_of(s)->decision_offset;
}

static void copy_masks(synthetic *s, size_t step, size_t device, size_t from_step, size_t from_device) {
    for (size_t i = 0; i < SYNTHETIC_BATCH; i++) {
        memcpy(mask_of(s, step, device, i), mask_of(s, from_step, from_device, i), dropout_of(s)->decisions);
    }
}

static void test_masks_that_repeat(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", with_dropout, 2, LS_FLOAT32);
    copy_masks(&s, 1, 1, 1, 0);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "masks", LS_FAILED, "step 1: devices 0 and 1 have the same mask of 3",
                   "do not depend on the rank");
    synthetic_close(&s);
    synthetic_open(&s, "ddp", with_dropout, 2, LS_FLOAT32);
    copy_masks(&s, 2, 0, 1, 0);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "masks", LS_FAILED, "device 0: steps 1 and 2 have the same mask of 3",
                   "do not depend on the step");
    synthetic_close(&s);
}

/* 12 features of 12 samples: 144 values, of which 86.4 stay with a deviation of 5.9. */
static void test_masks_of_another_share(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", with_dropout, 2, LS_FLOAT32);
    for (size_t i = 0; i < SYNTHETIC_BATCH; i++) {
        memset(mask_of(&s, 0, 0, i), 1, dropout_of(&s)->decisions);
        memset(mask_of(&s, 0, 1, i), i > 0, dropout_of(&s)->decisions);
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "masks", LS_FAILED, "step 0: 3 keeps 132 of 144 values, expected 86.4", "another probability");
    synthetic_close(&s);
    synthetic_open(&s, "ddp", with_dropout, 2, LS_FLOAT32);
    mask_of(&s, 2, 1, 0)[3] = 7;
    synthetic_verify(&s, NULL);
    expect_finding(&s, "masks", LS_FAILED, "step 2, device 1: the mask of 3 holds 7 at value 3", "");
    synthetic_close(&s);
}

/* A mask that was recorded is not the one that was used. */
static void test_mask_not_used(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", with_dropout, 2, LS_FLOAT32);
    uint8_t *mask = mask_of(&s, 1, 0, 2);
    for (size_t f = 0; f < dropout_of(&s)->decisions; f++) {
        mask[f] ^= 1;
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "float32", LS_FAILED, "step 1", "");
    synthetic_close(&s);
}

/* A rank goes on from its own statistics instead of rank 0's. */
static void test_buffers_not_broadcast(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", with_batchnorm, 2, LS_FLOAT32);
    float *own = ls_case_reduced(&s.c, 0, 1)->buffers;
    float *zero = ls_case_reduced(&s.c, 0, 0)->buffers;
    float *next = ls_case_reduced(&s.c, 1, 1)->buffers;
    for (size_t i = 0; i < s.c.model.buffer_count; i++) {
        next[i] += 0.9F * (own[i] - zero[i]);
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "buffers", LS_FAILED, "step 1, rank 1: 1.running_mean[0]", "not broadcast before forward");
    expect_finding(&s, "float32", LS_PASSED, "", "");
    synthetic_close(&s);
}

static void test_wrong_statistics(void **state) {
    (void)state;
    for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
        synthetic s;
        synthetic_open(&s, "ddp", with_batchnorm, 2, dtype);
        /* the biased variance of 6*8*8 values instead of the unbiased one */
        const ls_buffer *variance = &s.c.model.buffers[1];
        void *values = ls_case_reduced(&s.c, 0, 1)->buffers;
        double found = synthetic_get(&s, values, variance->offset);
        synthetic_put(&s, values, variance->offset, 0.9 + (found - 0.9) * 383.0 / 384.0);
        synthetic_verify(&s, NULL);
        expect_finding(&s, "buffers", LS_FAILED, "step 0, rank 1: 1.running_var[0]", "");
        synthetic_close(&s);
        synthetic_open(&s, "ddp", with_batchnorm, 2, dtype);
        ls_case_reduced(&s.c, 2, 0)->tracked[0] = 2;
        synthetic_verify(&s, NULL);
        expect_finding(&s, "buffers", LS_FAILED, "step 2, rank 0: 1.num_batches_tracked is 2, expected 3", "");
        synthetic_close(&s);
    }
}

/* relu behind a batchnorm: its decisions are proven, and one that is wrong is not. */
static void test_decisions_behind_batchnorm(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", with_batchnorm, 2, LS_FLOAT32);
    const ls_layer *relu = &s.c.model.layers[2];
    uint8_t *decisions = ls_case_local(&s.c, 1, 1)->decisions + relu->decision_offset;
    for (size_t i = 0; i < 8; i++) { /* several: one of them alone might lie near a tie */
        decisions[i] ^= 1;
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "float32", LS_FAILED, "step 1", "");
    assert_non_null(strstr(synthetic_finding(&s, "float32")->detail, "step 1"));
    synthetic_close(&s);
}

/* The gradient of a bias in front of a batchnorm is rounding alone: no baseline's error may excuse a wrong one. */
static void test_vain_bias_is_still_judged(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "single", with_batchnorm, 1, LS_FLOAT32);
    ls_check_input input = {.c = &s.c, .oracle = s.oracle};
    ls_baseline baseline;
    assert_int_equal(ls_baseline_measure(&input, &baseline), LS_OK);
    const ls_param *bias = synthetic_param(&s, "0.bias");
    assert_true(baseline.relative_l2[1] > 1); /* nothing but rounding on either side */
    synthetic_verify(&s, &baseline);
    expect_status(&s, LS_PASSED);
    for (size_t i = 0; i < bias->count; i++) {
        ((float *)ls_case_reduced(&s.c, 0, 0)->grads)[bias->offset + i] += 1e-4F;
    }
    synthetic_verify(&s, &baseline);
    expect_finding(&s, "float32", LS_FAILED, "gradient of 0.bias", "");
    ls_baseline_close(&baseline);
    synthetic_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_cases_pass),
        cmocka_unit_test(test_masks_that_repeat),
        cmocka_unit_test(test_masks_of_another_share),
        cmocka_unit_test(test_mask_not_used),
        cmocka_unit_test(test_buffers_not_broadcast),
        cmocka_unit_test(test_wrong_statistics),
        cmocka_unit_test(test_decisions_behind_batchnorm),
        cmocka_unit_test(test_vain_bias_is_still_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
