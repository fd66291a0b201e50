/* Exact arithmetic: equal bits whatever the split; one bit, one rounding to fewer bits, one wrong place is found, and numbers
 * that are not exact are not trusted. And the verdicts on order and samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/verify/synthetic_case.h"
#include "verify/diagnose.h"
#include "verify/exact.h"

/* SYNTHETIC_BATCH is no power of two: the loss is a sum. */
static ls_run exact_run(const char *impl, size_t devices, ls_dtype dtype) {
    ls_run run = synthetic_settings(impl, "exact", devices, dtype);
    run.loss.reduction = LS_LOSS_SUM;
    ls_exact_fit(&run);
    run.loss.reduction = LS_LOSS_SUM;
    run.batch = SYNTHETIC_BATCH;
    return run;
}

static void open_exact(synthetic *s, const char *impl, size_t devices, ls_dtype dtype) {
    ls_run run = exact_run(impl, devices, dtype);
    synthetic_prepare(s, &run, &run.optimizer);
    synthetic_run(s, 0);
}

static void test_every_split_passes(void **state) {
    (void)state;
    static const size_t dp[] = {1, 2, 3, 5, 7, 8}, ddp[] = {1, 2, 4, 8};
    for (size_t i = 0; i < 6; i++) {
        synthetic s;
        open_exact(&s, "dp", dp[i], LS_FLOAT32);
        synthetic_verify(&s, NULL);
        expect_status(&s, LS_PASSED);
        expect_finding(&s, "exact", LS_PASSED, "", "");
        synthetic_close(&s);
    }
    for (size_t i = 0; i < 4; i++) {
        synthetic s;
        open_exact(&s, "ddp", ddp[i], i % 2 == 0 ? LS_FLOAT32 : LS_FLOAT64);
        synthetic_verify(&s, NULL);
        expect_status(&s, LS_PASSED);
        expect_finding(&s, "exact", LS_PASSED, "", "");
        synthetic_close(&s);
    }
}

/* One unit in the last place of one element, far below every tolerance, on all ranks alike. */
static void test_one_bit(void **state) {
    (void)state;
    synthetic s;
    open_exact(&s, "ddp", 2, LS_FLOAT32);
    size_t element = synthetic_param(&s, "fc2.weight")->offset;
    while (synthetic_get(&s, ls_case_reduced(&s.c, 1, 0)->grads, element) == 0) {
        element++;
    }
    for (size_t rank = 0; rank < 2; rank++) {
        synthetic_bump(&s, ls_case_reduced(&s.c, 1, rank)->grads, element);
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "bits", LS_PASSED, "", "");
    expect_finding(&s, "float32", LS_PASSED, "", "");
    expect_finding(&s, "exact", LS_FAILED, "step 1, rank 0: fc2.weight[", "");
    assert_non_null(strstr(synthetic_finding(&s, "exact")->detail, "; 1 of 7336 elements differ"));
    synthetic_close(&s);
}

static void test_scales_are_found(void **state) {
    (void)state;
    synthetic s;
    open_exact(&s, "ddp", 4, LS_FLOAT32);
    for (size_t rank = 0; rank < 4; rank++) {
        float *grads = ls_case_reduced(&s.c, 0, rank)->grads;
        for (size_t i = 0; i < s.c.model.param_count; i++) {
            grads[i] *= 4;
        }
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "exact", LS_FAILED, "step 0, rank 0", "every tensor: not averaged: 4 times the mean (scale 4)");
    assert_non_null(strstr(synthetic_finding(&s, "exact")->tensors, "fc1.weight: scale 4, not averaged"));
    synthetic_close(&s);
}

static void test_what_is_not_exact(void **state) {
    (void)state;
    synthetic s;
    open_exact(&s, "dp", 2, LS_FLOAT32);
    double largest = ls_exact_largest(&s.c, 0);
    assert_true(largest > 1000 && largest < 0x1p24);
    s.c.run.loss.reduction = LS_LOSS_MEAN; /* of 12 samples */
    synthetic_verify(&s, NULL);
    expect_finding(&s, "exact", LS_MISTRUSTED, "step 0: sums of up to ", "");
    s.c.run.loss.reduction = LS_LOSS_SUM;
    synthetic_put(&s, ls_case_reduced(&s.c, 1, 0)->params_before, 9, 0.1);
    assert_true(isinf(ls_exact_largest(&s.c, 1)));
    synthetic_verify(&s, NULL);
    expect_finding(&s, "exact", LS_MISTRUSTED, "step 1: sums", "");
    synthetic_close(&s);
    synthetic_open(&s, "ddp", "seed-conv", 2, LS_FLOAT32);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "exact", LS_SKIPPED, "the values of seed-conv are not exact", "");
    synthetic_close(&s);
    char why[128];
    ls_run run = exact_run("ddp", 3, LS_FLOAT32);
    assert_false(ls_exact_possible(&run, ls_impl_find("ddp"), why, sizeof why));
    assert_string_equal(why, "a mean over 3 ranks is not exact in binary");
    assert_true(ls_exact_possible(&run, ls_impl_find("dp"), why, sizeof why));
    run.devices = 3;
    run.loss.reduction = LS_LOSS_MEAN;
    ls_exact_fit(&run);
    assert_int_equal(run.loss.reduction, LS_LOSS_SUM);
}

/* The numbers of a full run stay exact on as many devices as vgpu has. */
static void test_room(void **state) {
    (void)state;
    synthetic s;
    open_exact(&s, "dp", 2, LS_FLOAT32);
    /* the sums over samples grow with their number, nothing else does */
    assert_true(ls_exact_largest(&s.c, 0) * (16.0 * 16 / (2 * SYNTHETIC_BATCH)) <= 0x1p24);
    synthetic_close(&s);
}

/* Unpacking off by one: sums and norms hardly differ. */
static void shift(synthetic *s, size_t step, long offset) {
    for (size_t rank = 0; rank < s->c.ranks; rank++) {
        const ls_param *param = synthetic_param(s, "fc.weight");
        float *grads = ls_case_reduced(&s->c, step, rank)->grads;
        float *first = grads + param->offset, kept[14400];
        memcpy(kept, first, param->count * sizeof *kept);
        for (size_t i = 0; i < param->count; i++) {
            first[i] = kept[((long)(i + param->count) + offset) % (long)param->count];
        }
    }
}

static void test_shifted(void **state) {
    (void)state;
    static const struct {
        long offset;
        const char *says;
    } faults[] = {{1, "fc.weight: shifted: each element holds the value that is due 1 places later"},
                  {-3, "fc.weight: shifted: each element holds the value that is due 3 places earlier"}};
    for (size_t f = 0; f < 2; f++) {
        synthetic s;
        synthetic_open(&s, "ddp", "seed-conv", 2, LS_FLOAT32);
        shift(&s, 1, faults[f].offset);
        synthetic_verify(&s, NULL);
        expect_finding(&s, "bits", LS_PASSED, "", "");
        expect_finding(&s, "reduction", LS_FAILED, "(bucket 0)", faults[f].says);
        synthetic_close(&s);
    }
}

/* Columns for rows. */
static void test_permuted(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-conv", 2, LS_FLOAT32);
    const ls_param *param = synthetic_param(&s, "conv1.weight");
    for (size_t rank = 0; rank < 2; rank++) {
        float *taps = (float *)ls_case_reduced(&s.c, 0, rank)->grads + param->offset;
        for (size_t filter = 0; filter < 10; filter++, taps += 25) {
            for (size_t r = 0; r < 5; r++) {
                for (size_t column = 0; column < r; column++) {
                    float kept = taps[r * 5 + column];
                    taps[r * 5 + column] = taps[column * 5 + r];
                    taps[column * 5 + r] = kept;
                }
            }
        }
    }
    synthetic_verify(&s, NULL);
    expect_finding(&s, "reduction", LS_FAILED, "", "conv1.weight: permuted: the right values in another order");
    synthetic_close(&s);
}

/* A device that computes on another one's samples, though its own are recorded; its gradient of the step before; a scale. */
static void test_local_verdicts(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", "seed-conv", 3, LS_FLOAT64);
    double *grads = ls_case_local(&s.c, 1, 2)->grads;
    memcpy(grads, ls_case_local(&s.c, 1, 0)->grads, synthetic_bytes(&s));
    synthetic_reduce(&s, 1);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "float64", LS_FAILED, "step 1", "other samples: it is the gradient of the samples of device 0");
    memcpy(grads, ls_case_local(&s.c, 0, 2)->grads, synthetic_bytes(&s));
    synthetic_reduce(&s, 1);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "float64", LS_FAILED, "step 1", "stale: it is the gradient of the step before");
    synthetic_local(&s, 1, 2, SIZE_MAX);
    for (size_t i = 0; i < s.c.model.param_count; i++) {
        grads[i] *= 3;
    }
    synthetic_reduce(&s, 1);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "float64", LS_FAILED, "step 1", "(scale 3); it is right but for the scale");
    synthetic_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split_passes),
        cmocka_unit_test(test_one_bit),
        cmocka_unit_test(test_scales_are_found),
        cmocka_unit_test(test_what_is_not_exact),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_shifted),
        cmocka_unit_test(test_permuted),
        cmocka_unit_test(test_local_verdicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
