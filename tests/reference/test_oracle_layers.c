/* The oracle's average pooling, dropout and batch normalisation against finite differences and by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/oracle/oracle.h"
#include "reference/spec.h"

enum { COUNT = 11, CLASSES = 3 }; /* one full block of the oracle's lanes and a part of one */

typedef struct problem {
    ls_model model;
    ls_oracle *oracle;
    double *params, *grads, *x;
    int32_t labels[COUNT];
    uint8_t *decisions; /* NULL: none to follow */
} problem;

static void problem_open(problem *p, const char *text) {
    char error[256];
    ls_model_spec spec;
    *p = (problem){0};
    assert_int_equal(ls_spec_parse(text, &spec, error, sizeof error), 0);
    spec.classes = CLASSES;
    assert_int_equal(ls_model_resolve(&spec, &p->model, error, sizeof error), 0);
    assert_int_equal(ls_oracle_open(&p->model, &p->oracle), 0);
    size_t features = ls_shape_features(p->model.input);
    p->params = calloc(p->model.param_count, sizeof(double));
    p->grads = calloc(p->model.param_count, sizeof(double));
    p->x = calloc(COUNT * features, sizeof(double));
    float *initial = calloc(p->model.param_count, sizeof(float));
    assert_true(p->params && p->grads && p->x && initial);
    ls_model_init(&p->model, 42, initial);
    for (size_t i = 0; i < p->model.param_count; i++) {
        p->params[i] = (double)initial[i] + 0.1 * sin(1.0 + 7.7 * (double)i); /* batchnorm's too */
    }
    free(initial);
    for (size_t i = 0; i < COUNT * features; i++) {
        p->x[i] = sin(0.5 + 12.9898 * (double)i);
    }
    for (size_t i = 0; i < COUNT; i++) {
        p->labels[i] = (int32_t)(i % CLASSES);
    }
}

static void problem_close(problem *p) {
    ls_oracle_close(p->oracle);
    free(p->params);
    free(p->grads);
    free(p->x);
    free(p->decisions);
}

static double gradient(problem *p, ls_oracle_input *extra) {
    double loss = 0;
    ls_oracle_input input = extra != NULL ? *extra : (ls_oracle_input){0};
    input.params = p->params;
    input.count = COUNT;
    input.x = p->x;
    input.labels = p->labels;
    input.denominator = COUNT;
    input.decisions = p->decisions;
    input.unit_roundoff = 0x1p-53;
    memset(p->grads, 0, p->model.param_count * sizeof(double));
    assert_int_equal(ls_oracle_gradient(p->oracle, &input, p->grads, &loss, NULL), 0);
    return loss / COUNT;
}

static double difference(problem *p, size_t i, double h) {
    double value = p->params[i];
    p->params[i] = value + h;
    double up = gradient(p, NULL);
    p->params[i] = value - h;
    double down = gradient(p, NULL);
    p->params[i] = value;
    return (up - down) / (2 * h);
}

/* A central difference D(h) errs by c*h^2 + O(h^4), so D(h) - D(h/2) is 3/4 of the error of D(h), and 4 times what is left
 * in (4*D(h/2) - D(h))/3 even where the next order is as large. Rounding: a loss of about 1 through some 100 roundings of
 * 2^-53, divided by h/2, and weighted 5/3. */
static void check_differences(const char *text, const uint8_t *decisions) {
    const double h = 0x1p-14;
    const double rounding = 100 * 0x1p-53 / h * 4;
    problem p;
    problem_open(&p, text);
    if (decisions != NULL) {
        p.decisions = calloc(COUNT, p.model.decisions_per_sample);
        assert_non_null(p.decisions);
        memcpy(p.decisions, decisions, COUNT * p.model.decisions_per_sample);
    }
    gradient(&p, NULL);
    double *grads = calloc(p.model.param_count, sizeof(double));
    assert_non_null(grads);
    memcpy(grads, p.grads, p.model.param_count * sizeof(double));
    size_t large = 0;
    for (size_t i = 0; i < p.model.param_count; i++) {
        double coarse = difference(&p, i, h);
        double fine = difference(&p, i, h / 2);
        double found = (4 * fine - coarse) / 3;
        if (!(fabs(found - grads[i]) <= fabs(coarse - fine) + rounding)) {
            fail_msg("element %zu: difference %.12g, gradient %.12g, bound %.3g", i, found, grads[i],
                     fabs(coarse - fine) + rounding);
        }
        large += fabs(grads[i]) > 1e4 * rounding ? 1 : 0;
    }
    assert_true(large > p.model.param_count / 2); /* or the comparison says little */
    free(grads);
    problem_close(&p);
}

/* The run's loss over all samples at the present parameters, and with its derivative in front of it the gradient. */
static double loss_of(problem *p, const ls_oracle_loss *loss) {
    double sum = 0, unused = 0;
    ls_oracle_input input = {
        .params = p->params, .count = COUNT, .x = p->x, .labels = p->labels, .loss = *loss, .denominator = 1};
    assert_int_equal(ls_oracle_gradient(p->oracle, &input, p->grads, &sum, NULL), 0);
    input.denominator = 1 / ls_oracle_loss_slope(loss, sum, COUNT, CLASSES);
    memset(p->grads, 0, p->model.param_count * sizeof(double));
    assert_int_equal(ls_oracle_gradient(p->oracle, &input, p->grads, &unused, NULL), 0);
    return ls_oracle_loss_value(loss, sum, COUNT, CLASSES);
}

/* Every loss through every kind of layer that has no test of its own: as check_differences. */
static void test_every_loss(void **state) {
    (void)state;
    const double h = 0x1p-14;
    static const ls_oracle_loss losses[] = {
        {.kind = LS_ORACLE_CROSS_ENTROPY}, {.kind = LS_ORACLE_CROSS_ENTROPY, .label_smoothing = 0.2, .sum = true},
        {.kind = LS_ORACLE_MSE},           {.kind = LS_ORACLE_MSE, .sum = true},
        {.kind = LS_ORACLE_RMSE},          {.kind = LS_ORACLE_RMSE, .sum = true}};
    problem p;
    problem_open(&p, "input 2x5x4; conv 3 k2 p1; maxpool 2; relu; flatten; linear 4 nobias; linear 3; log-softmax");
    double *grads = calloc(p.model.param_count, sizeof *grads);
    assert_non_null(grads);
    for (size_t k = 0; k < sizeof losses / sizeof losses[0]; k++) {
        double value = loss_of(&p, &losses[k]);
        double rounding = 100 * 0x1p-53 / h * 4 * fmax(1, value);
        memcpy(grads, p.grads, p.model.param_count * sizeof *grads);
        for (size_t i = 0; i < p.model.param_count; i++) {
            double w = p.params[i], slopes[2];
            for (size_t fine = 0; fine < 2; fine++) {
                double step = fine != 0 ? h / 2 : h;
                p.params[i] = w + step;
                double up = loss_of(&p, &losses[k]);
                p.params[i] = w - step;
                slopes[fine] = (up - loss_of(&p, &losses[k])) / (2 * step);
            }
            p.params[i] = w;
            double found = (4 * slopes[1] - slopes[0]) / 3;
            if (!(fabs(found - grads[i]) <= fabs(slopes[0] - slopes[1]) + rounding)) {
                fail_msg("loss %zu, element %zu: difference %.12g, gradient %.12g", k, i, found, grads[i]);
            }
        }
    }
    free(grads);
    problem_close(&p);
}

static void test_avgpool(void **state) {
    (void)state;
    check_differences("input 2x9x8; conv 3 k2; avgpool 2; conv 2 k2 nobias; avgpool 2 s1; flatten; linear 3 nobias",
                      NULL);
}

static void test_batchnorm_of_images(void **state) {
    (void)state;
    check_differences("input 1x6x5; conv 3 k3 nobias; batchnorm; relu; conv 2 k2 nobias; batchnorm eps 0.01; flatten; "
                      "linear 3",
                      NULL);
}

static void test_batchnorm_of_features(void **state) {
    (void)state;
    check_differences("input 1x3x3; flatten; batchnorm; linear 5 nobias; batchnorm; relu; linear 3", NULL);
}

static void test_dropout(void **state) {
    (void)state;
    uint8_t masks[COUNT * 6];
    for (size_t i = 0; i < sizeof masks; i++) {
        masks[i] = i % 3 != 0;
    }
    check_differences("input 1x3x3; flatten; linear 6; dropout 0.4; linear 3", masks);
}

/* A mask is followed: what it stops has no gradient, what it lets through is scaled. */
static void test_dropout_follows_the_mask(void **state) {
    (void)state;
    problem p;
    problem_open(&p, "input 1x2x2; flatten; dropout 0.75; linear 3");
    p.decisions = calloc(COUNT, 4);
    assert_non_null(p.decisions);
    for (size_t i = 0; i < COUNT; i++) {
        p.decisions[i * 4 + 2] = 1; /* only the third input, of every sample */
    }
    gradient(&p, NULL);
    const ls_param *weight = &p.model.params[0];
    const ls_param *bias = &p.model.params[1];
    for (size_t i = 0; i < weight->count; i++) {
        assert_int_equal(p.grads[weight->offset + i] != 0, i % 4 == 2);
    }
    /* with x = 1 there, dweight = 4*dbias: the scale is 1/(1 - 0.75) */
    for (size_t i = 0; i < COUNT; i++) {
        p.x[i * 4 + 2] = 1;
    }
    gradient(&p, NULL);
    for (size_t c = 0; c < CLASSES; c++) {
        double expected = 4 * p.grads[bias->offset + c];
        assert_true(fabs(p.grads[weight->offset + c * 4 + 2] - expected) <= 20 * 0x1p-53 * fabs(expected) + 1e-17);
    }
    problem_close(&p);
}

/* Means and unbiased variances of the inputs of a batchnorm, and bounds that hold for a device's rounding: a few dozen
 * roundings of 2^-53 on values of about 1. */
static void test_statistics(void **state) {
    (void)state;
    problem p;
    problem_open(&p, "input 2x3x2; batchnorm; flatten; linear 3");
    p.decisions = calloc(1, 1); /* asks for bounds; no layer decides */
    double statistics[4] = {0};
    double errors[4] = {0};
    ls_oracle_input extra = {.statistics = statistics, .statistics_error = errors};
    gradient(&p, &extra);
    for (size_t c = 0; c < 2; c++) {
        long double mean = 0;
        long double square = 0;
        for (size_t i = 0; i < COUNT * 6; i++) {
            mean += (long double)p.x[(i / 6 * 2 + c) * 6 + i % 6];
        }
        mean /= COUNT * 6;
        for (size_t i = 0; i < COUNT * 6; i++) {
            long double d = (long double)p.x[(i / 6 * 2 + c) * 6 + i % 6] - mean;
            square += d * d;
        }
        assert_true(fabsl((long double)statistics[c] - mean) <= (long double)errors[c]);
        assert_true(fabsl((long double)statistics[2 + c] - square / (COUNT * 6 - 1)) <= (long double)errors[2 + c]);
        assert_true(errors[c] > 0 && errors[c] < 1e-13 && errors[2 + c] > 0 && errors[2 + c] < 1e-13);
    }
    problem_close(&p);
}

/* The bias of a layer in front of a batchnorm has no effect and no gradient. */
static void test_bias_in_front_has_no_gradient(void **state) {
    (void)state;
    problem p;
    problem_open(&p, "input 1x4x4; conv 2 k3; batchnorm; flatten; linear 3");
    ls_oracle_input extra = {0};
    gradient(&p, &extra);
    const ls_param *weight = &p.model.params[0];
    const ls_param *bias = &p.model.params[1];
    double largest = 0;
    for (size_t i = 0; i < weight->count; i++) {
        largest = fmax(largest, fabs(p.grads[weight->offset + i]));
    }
    assert_true(largest > 0);
    for (size_t i = 0; i < bias->count; i++) {
        /* Each of the 44 terms as large as a weight's at most, but for a factor of the inputs, with a few roundings. */
        assert_true(fabs(p.grads[bias->offset + i]) <= 1000 * 0x1p-53 * largest);
    }
    problem_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_loss),
        cmocka_unit_test(test_avgpool),
        cmocka_unit_test(test_batchnorm_of_images),
        cmocka_unit_test(test_batchnorm_of_features),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_dropout_follows_the_mask),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_bias_in_front_has_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
