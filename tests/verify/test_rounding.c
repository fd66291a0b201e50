/* The model of rounding against float32 itself, and that what it allows is less than a fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/verify/synthetic_case.h"

/* Six layers that round sums: with so many the cheap bound of 1e-5 is near, and the biases in front of a batchnorm, whose
 * gradient is nothing but rounding, are beyond it. */
#define DEEP                                                                                                      \
    "conv 4 k3 s2 p1; batchnorm; relu; conv 4 k3 p1; batchnorm; relu; maxpool 2; flatten; linear 16; batchnorm; " \
    "relu; "                                                                                                      \
    "linear 10"

/* A correct run's error lies within the bound in every tensor and step; and the bound is no more than 300 times the error in
 * the tensor where it is closest, so that it says something. */
static void test_bound_holds_and_is_near(void **state) {
    (void)state;
    synthetic s;
    synthetic_open(&s, "ddp", DEEP, 2, LS_FLOAT32);
    double *reference = calloc(s.c.model.param_count, sizeof *reference);
    assert_non_null(reference);
    double nearest = 0;
    for (size_t step = 0; step < s.c.steps; step++) {
        double loss = 0;
        const ls_rounding *r = NULL;
        assert_int_equal(ls_oracle_cache_global(s.oracle, &s.c, step, reference, &loss), LS_OK);
        assert_int_equal(ls_oracle_cache_rounding(s.oracle, &s.c, step, LS_ROUNDING_BOUND, &r), LS_OK);
        for (size_t t = 0; t < s.c.model.param_tensors; t++) {
            const ls_param *p = &s.c.model.params[t];
            const void *grads = ls_case_reduced(&s.c, step, 0)->grads;
            ls_distance d = ls_distance_measure(LS_FLOAT32, grads, reference, p->offset, p->count);
            assert_true(d.l2 <= r->l2[t] && d.max <= r->max[t]);
            nearest = fmax(nearest, d.l2 / r->l2[t]);
        }
    }
    assert_true(nearest > 1.0 / 300);
    free(reference);
    synthetic_close(&s);
}

static void test_correct_runs_pass(void **state) {
    (void)state;
    static const char *const networks[] = {
        DEEP, "flatten; linear 32; linear 32; linear 32; linear 32; linear 32; linear 32; linear 10"};
    for (size_t i = 0; i < 2; i++) {
        for (int dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
            synthetic s;
            synthetic_open(&s, "ddp", networks[i], 2, (ls_dtype)dtype);
            synthetic_verify(&s, NULL);
            expect_finding(&s, ls_dtype_name((ls_dtype)dtype), LS_PASSED, "", "");
            synthetic_close(&s);
        }
    }
}

/* A gradient of one tensor, on its way from the devices on, times `factor`, or with float16's 11 bits. */
static void plant(synthetic *s, const char *tensor, double factor) {
    const ls_param *param = synthetic_param(s, tensor);
    float *flat[] = {ls_case_local(&s->c, 0, 0)->grads, ls_case_local(&s->c, 0, 1)->grads,
                     ls_case_reduced(&s->c, 0, 0)->grads, ls_case_reduced(&s->c, 0, 1)->grads};
    for (size_t f = 0; f < 4; f++) {
        for (size_t i = param->offset; i < param->offset + param->count; i++) {
            int exponent = 0;
            double part = frexp(flat[f][i], &exponent);
            flat[f][i] = factor != 0 ? (float)(flat[f][i] * factor) : (float)ldexp(rint(part * 2048) / 2048, exponent);
        }
    }
}

/* Depth widens the bound, but not to a scale that is off by 1 in 1000, nor to float16; a network of four layers hides
 * neither that nor 2 in 100,000. */
static void test_faults_are_beyond_it(void **state) {
    (void)state;
    static const struct {
        const char *network, *tensor;
        double factor; /* 0: float16 */
    } cases[] = {{DEEP, "1.weight", 1.001},     {DEEP, "11.weight", 1.001},      {DEEP, "11.weight", 0},
                 {"seed-cnn", "fc1.weight", 0}, {"seed-cnn", "conv2.weight", 0}, {"seed-cnn", "fc2.weight", 1.00002}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        synthetic s;
        synthetic_open(&s, "ddp", cases[i].network, 2, LS_FLOAT32);
        plant(&s, cases[i].tensor, cases[i].factor);
        synthetic_verify(&s, NULL);
        char expected[64];
        (void)snprintf(expected, sizeof expected, "gradient of %s is off", cases[i].tensor);
        expect_finding(&s, "float32", LS_FAILED, expected, "");
        synthetic_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound_holds_and_is_near),
        cmocka_unit_test(test_correct_runs_pass),
        cmocka_unit_test(test_faults_are_beyond_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
