/* The oracle against what needs no oracle: values of PyTorch in float64, finite differences, invariants, hand-made ties. */
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

static const double float_roundoff = 0x1p-24;

typedef struct problem {
    ls_model model;
    ls_oracle *oracle;
    double *params, *grads, *x;
    int32_t *labels;
    size_t count;
} problem;

static void problem_open(problem *p, const ls_model_spec *spec, size_t count) {
    char error[256];
    assert_int_equal(ls_model_resolve(spec, &p->model, error, sizeof error), 0);
    assert_int_equal(ls_oracle_open(&p->model, &p->oracle), 0);
    p->count = count;
    p->params = calloc(p->model.param_count, sizeof(double));
    p->grads = calloc(p->model.param_count, sizeof(double));
    p->x = calloc(count * ls_shape_features(p->model.input), sizeof(double));
    p->labels = calloc(count, sizeof(int32_t));
    float *initial = calloc(p->model.param_count, sizeof(float));
    assert_true(p->params && p->grads && p->x && p->labels && initial);
    ls_model_init(&p->model, 42, initial);
    for (size_t i = 0; i < p->model.param_count; i++) {
        p->params[i] = (double)initial[i];
    }
    free(initial);
    for (size_t i = 0; i < count; i++) {
        p->labels[i] = (int32_t)(i % p->model.classes);
        double *x = p->x + i * ls_shape_features(p->model.input);
        for (size_t f = 0; f < ls_shape_features(p->model.input); f++) {
            size_t r = f / p->model.input.width;
            size_t c = f % p->model.input.width;
            double pixel = (double)((7 * i + 13 * r + 29 * c + 11 * ((r * c) % 17)) % 256);
            x[f] = (pixel / 255 - 0.1307) / 0.3081;
        }
    }
}

static void problem_close(problem *p) {
    ls_oracle_close(p->oracle);
    free(p->params);
    free(p->grads);
    free(p->x);
    free(p->labels);
}

/* Mean loss; leaves its gradient in p->grads. */
static double problem_gradient(problem *p) {
    memset(p->grads, 0, p->model.param_count * sizeof(double));
    ls_oracle_input input = {
        .params = p->params, .count = p->count, .x = p->x, .labels = p->labels, .denominator = (double)p->count};
    double loss = 0;
    assert_int_equal(ls_oracle_gradient(p->oracle, &input, p->grads, &loss, NULL), 0);
    return loss / (double)p->count;
}

static const ls_param *param_named(const ls_model *model, const char *name) {
    for (size_t i = 0; i < model->param_tensors; i++) {
        if (strcmp(model->params[i].name, name) == 0) {
            return &model->params[i];
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

static double norm(const double *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += values[i] * values[i];
    }
    return sqrt(sum);
}

static void assert_near(double found, double expected, double relative) {
    if (!(fabs(found - expected) <= relative * fabs(expected))) {
        fail_msg("found %.17g, expected %.17g, relative difference %.3g above %.3g", found, expected,
                 fabs(found - expected) / fabs(expected), relative);
    }
}

/* Two float64 programs that add the same 256 x 576 terms in other orders differ by about sqrt(n)*2^-53 = 4e-14 of the sum
 * of absolute terms in the worst of random cases; the printed values carry 16 digits. */
static const double golden_tolerance = 1e-13;

static void test_seed_cnn_equals_pytorch_float64(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double norm, first; /* first 0: not known */
    } golden[] = {
        {"conv1.weight", 2.698988734793331e-02, 1.555782084678967e-03},  {"conv1.bias", 2.895298856908900e-03, 0},
        {"conv2.weight", 7.159251949967925e-02, -9.714525008432584e-04}, {"conv2.bias", 6.121936219391873e-03, 0},
        {"fc1.weight", 7.612194917328327e-02, 1.015171124247311e-04},    {"fc1.bias", 9.499289138428253e-03, 0},
        {"fc2.weight", 3.227662428047991e-02, -3.214639896452376e-04},   {"fc2.bias", 2.863981382287957e-02, 0},
    };
    problem p;
    problem_open(&p, ls_zoo_find("seed-cnn"), 256);
    assert_near(problem_gradient(&p), 2.306746695548234, golden_tolerance);
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        const ls_param *param = param_named(&p.model, golden[i].name);
        assert_near(norm(p.grads + param->offset, param->count), golden[i].norm, golden_tolerance);
        if (golden[i].first != 0) {
            assert_near(p.grads[param->offset], golden[i].first,
                        10 * golden_tolerance); /* one element, with cancellation */
        }
    }
    problem_close(&p);
}

static void test_three_sgd_steps_equal_pytorch_float64(void **state) {
    (void)state;
    static const double losses[] = {2.306746695548234, 2.306609866695431, 2.306400886156046};
    static const double norms[] = {5.495754189750806, 5.495709596206702, 5.495659990534741};
    problem p;
    problem_open(&p, ls_zoo_find("seed-cnn"), 256);
    const ls_oracle_optimizer sgd = {.momentum = 0.5};
    double *velocity = calloc(p.model.param_count, sizeof(double));
    assert_non_null(velocity);
    for (size_t step = 0; step < 3; step++) {
        assert_near(problem_gradient(&p), losses[step], golden_tolerance);
        ls_oracle_sgd(&sgd, p.model.param_count, p.params, p.grads, velocity, 0.01, step == 0);
        assert_near(norm(p.params, p.model.param_count), norms[step], golden_tolerance);
    }
    free(velocity);
    problem_close(&p);
}

/* Softmax rows sum to 1, so the gradients of the last bias, and of each column of the last weight, sum to 0. */
static void test_last_layer_gradients_sum_to_zero(void **state) {
    (void)state;
    problem p;
    problem_open(&p, ls_zoo_find("seed-cnn"), 27);
    problem_gradient(&p);
    const ls_param *bias = param_named(&p.model, "fc2.bias");
    double sum = 0;
    for (size_t i = 0; i < bias->count; i++) {
        sum += p.grads[bias->offset + i];
    }
    double scale = norm(p.grads + bias->offset, bias->count);
    assert_true(scale > 0);
    assert_true(fabs(sum) <= 100 * 0x1p-53 * scale); /* 10 elements of 27 terms each */
    const ls_param *weight = param_named(&p.model, "fc2.weight");
    scale = norm(p.grads + weight->offset, weight->count);
    for (size_t column = 0; column < weight->shape[1]; column++) {
        sum = 0;
        for (size_t row = 0; row < weight->shape[0]; row++) {
            sum += p.grads[weight->offset + row * weight->shape[1] + column];
        }
        assert_true(fabs(sum) <= 100 * 0x1p-53 * scale);
    }
    problem_close(&p);
}

/* The central difference over +-h errs by h^2/6*|f'''| and by rounding 2^-53*|f|/h. Along a direction in which the loss falls
 * by g, the logits move by about g, and the third derivative of cross entropy is about g^3 (at least of the order of 1, from
 * the weights in between): with h = 1e-5 that is 2e-11*max(1, g^3) and 5e-11. The rest is room for constants. */
static const double difference_step = 1e-5;
static double difference_tolerance(double g) {
    return 1e-9 * fmax(1, fabs(g * g * g));
}

/* Each tensor along the direction of its own gradient and along a fixed pseudo-random one. */
static void check_differences_by_tensor(const char *name) {
    problem p;
    problem_open(&p, ls_zoo_find(name), 5);
    problem_gradient(&p);
    double *grads = calloc(p.model.param_count, sizeof(double));
    double *direction = calloc(p.model.param_count, sizeof(double));
    assert_true(grads && direction);
    memcpy(grads, p.grads, p.model.param_count * sizeof(double));
    for (size_t t = 0; t < p.model.param_tensors * 2; t++) {
        const ls_param *param = &p.model.params[t / 2];
        const double *g = grads + param->offset;
        double *w = p.params + param->offset;
        for (size_t i = 0; i < param->count; i++) {
            direction[i] = t % 2 == 0 ? g[i] : sin(1.0 + 12.9898 * (double)i);
        }
        double length = norm(direction, param->count);
        assert_true(length > 0);
        double expected = 0;
        for (size_t i = 0; i < param->count; i++) {
            direction[i] /= length;
            expected += g[i] * direction[i];
        }
        double sides[2];
        for (size_t side = 0; side < 2; side++) {
            double h = side == 0 ? difference_step : -2 * difference_step;
            for (size_t i = 0; i < param->count; i++) {
                w[i] += h * direction[i];
            }
            sides[side] = problem_gradient(&p);
        }
        for (size_t i = 0; i < param->count; i++) {
            w[i] += difference_step * direction[i];
        }
        double found = (sides[0] - sides[1]) / (2 * difference_step);
        if (!(fabs(found - expected) <= difference_tolerance(expected))) {
            fail_msg("%s %s: difference %.12g, gradient %.12g", name, param->name, found, expected);
        }
    }
    free(grads);
    free(direction);
    problem_close(&p);
}

static void test_differences_of_both_models(void **state) {
    (void)state;
    check_differences_by_tensor("seed-cnn");
    check_differences_by_tensor("seed-conv");
}

/* Stride, padding and overlapping windows, which the zoo's models do not use: every element. */
static void test_differences_with_stride_and_padding(void **state) {
    (void)state;
    static const ls_model_spec spec = {
        .name = "strided",
        .channels = 2,
        .height = 9,
        .width = 8,
        .classes = 3,
        .layer_count = 7,
        .layers = {{.kind = LS_LAYER_CONV, .name = "a", .out = 3, .kernel = 3, .stride = 2, .padding = 1},
                   {.kind = LS_LAYER_RELU},
                   {.kind = LS_LAYER_MAXPOOL, .kernel = 3, .stride = 1},
                   {.kind = LS_LAYER_CONV, .name = "b", .out = 2, .kernel = 2, .padding = 1},
                   {.kind = LS_LAYER_FLATTEN},
                   {.kind = LS_LAYER_LINEAR, .name = "c", .out = 3},
                   {.kind = LS_LAYER_LOG_SOFTMAX}}};
    problem p;
    problem_open(&p, &spec, 11); /* one full block of lanes and a part of one */
    problem_gradient(&p);
    double *grads = calloc(p.model.param_count, sizeof(double));
    assert_non_null(grads);
    memcpy(grads, p.grads, p.model.param_count * sizeof(double));
    for (size_t i = 0; i < p.model.param_count; i++) {
        double w = p.params[i];
        p.params[i] = w + difference_step;
        double up = problem_gradient(&p);
        p.params[i] = w - difference_step;
        double down = problem_gradient(&p);
        p.params[i] = w;
        double found = (up - down) / (2 * difference_step);
        if (!(fabs(found - grads[i]) <= difference_tolerance(grads[i]))) {
            fail_msg("element %zu: difference %.12g, gradient %.12g", i, found, grads[i]);
        }
    }
    free(grads);
    problem_close(&p);
}

/* The gradient of a batch is the sum of the gradients of its parts, whatever their sizes. */
static void test_parts_add_up(void **state) {
    (void)state;
    problem p;
    problem_open(&p, ls_zoo_find("seed-cnn"), 21);
    double mean = problem_gradient(&p);
    double *sum = calloc(p.model.param_count, sizeof(double));
    assert_non_null(sum);
    double loss = 0;
    static const size_t parts[] = {1, 8, 12};
    size_t first = 0;
    for (size_t i = 0; i < 3; i++) {
        ls_oracle_input input = {.params = p.params,
                                 .count = parts[i],
                                 .x = p.x + first * ls_shape_features(p.model.input),
                                 .labels = p.labels + first,
                                 .denominator = 21};
        assert_int_equal(ls_oracle_gradient(p.oracle, &input, sum, &loss, NULL), 0);
        first += parts[i];
    }
    assert_near(loss / 21, mean, golden_tolerance);
    for (size_t t = 0; t < p.model.param_tensors; t++) {
        const ls_param *param = &p.model.params[t];
        for (size_t i = 0; i < param->count; i++) {
            sum[param->offset + i] -= p.grads[param->offset + i];
        }
        assert_true(norm(sum + param->offset, param->count) <=
                    golden_tolerance * norm(p.grads + param->offset, param->count));
    }
    free(sum);
    problem_close(&p);
}

/* conv 1x1 (so that values carry a rounding bound), maxpool 2, relu, linear: small enough to decide by hand. */
static const ls_model_spec tie_spec = {.name = "tie",
                                       .channels = 1,
                                       .height = 2,
                                       .width = 2,
                                       .classes = 2,
                                       .layer_count = 5,
                                       .layers = {{.kind = LS_LAYER_CONV, .name = "a", .out = 1, .kernel = 1},
                                                  {.kind = LS_LAYER_MAXPOOL, .kernel = 2},
                                                  {.kind = LS_LAYER_RELU},
                                                  {.kind = LS_LAYER_FLATTEN},
                                                  {.kind = LS_LAYER_LINEAR, .name = "b", .out = 2}}};

typedef struct tie_case {
    double weight, bias; /* of the 1x1 convolution */
    double x[4];
    uint8_t decisions[2]; /* maxpool's choice, relu's sign */
    ls_oracle_decisions expected;
    double dweight; /* gradient of the convolution's weight by hand, as a multiple of dL/d(relu output) */
} tie_case;

static void check_tie(const tie_case *c) {
    problem p;
    problem_open(&p, &tie_spec, 1);
    p.params[param_named(&p.model, "a.weight")->offset] = c->weight;
    p.params[param_named(&p.model, "a.bias")->offset] = c->bias;
    double *last = p.params + param_named(&p.model, "b.weight")->offset;
    last[0] = 1;
    last[1] = -1;
    memcpy(p.x, c->x, sizeof c->x);
    assert_int_equal(p.model.decisions_per_sample, 2);
    ls_oracle_input input = {.params = p.params,
                             .count = 1,
                             .x = p.x,
                             .labels = p.labels,
                             .denominator = 1,
                             .decisions = c->decisions,
                             .unit_roundoff = float_roundoff};
    double loss = 0;
    ls_oracle_decisions report = {0};
    assert_int_equal(ls_oracle_gradient(p.oracle, &input, p.grads, &loss, &report), 0);
    assert_int_equal(report.total, 2);
    assert_int_equal(report.different, c->expected.different);
    assert_int_equal(report.unproven, c->expected.unproven);
    if (report.different > 0) {
        assert_int_equal(report.worst_layer, c->expected.worst_layer);
        assert_int_equal(report.worst_sample, 0);
    }
    const double *dlast = p.grads + param_named(&p.model, "b.bias")->offset;
    double dy = dlast[0] - dlast[1]; /* through the last weights (1, -1) */
    assert_true(fabs(dy) > 0.01);
    assert_near(p.grads[param_named(&p.model, "a.weight")->offset] + 1, c->dweight * dy + 1, 1e-12);
    problem_close(&p);
}

static void test_decisions_within_the_bound_are_followed_and_proven(void **state) {
    (void)state;
    /* Equal decisions: nothing to prove. First of equal maxima is the oracle's own. */
    check_tie(&(tie_case){.weight = 1, .x = {0.5, 1, 1, 0}, .decisions = {1, 1}, .dweight = 1});
    /* 1e-9 apart, errors about 2*2^-24 each: proven, and the gradient takes the followed input. */
    check_tie(&(tie_case){.weight = 1,
                          .x = {2, 2 - 1e-9, 0, 0},
                          .decisions = {1, 1},
                          .expected = {.different = 1, .worst_layer = 1},
                          .dweight = 2 - 1e-9});
    /* relu at 1e-8 after terms of size 1: the device may have seen a zero. */
    check_tie(&(tie_case){.weight = 1,
                          .bias = -1 + 1e-8,
                          .x = {1, 0, 0, 0},
                          .decisions = {0, 0},
                          .expected = {.different = 1, .worst_layer = 2},
                          .dweight = 0});
    check_tie(&(tie_case){.weight = 1,
                          .bias = -1 - 1e-8,
                          .x = {1, 0, 0, 0},
                          .decisions = {0, 1},
                          .expected = {.different = 1, .worst_layer = 2},
                          .dweight = 1});
}

static void test_decisions_beyond_the_bound_are_unproven(void **state) {
    (void)state;
    check_tie(&(tie_case){.weight = 1,
                          .x = {2, 2 - 1e-5, 0, 0},
                          .decisions = {1, 1},
                          .expected = {.different = 1, .unproven = 1, .worst_layer = 1},
                          .dweight = 2 - 1e-5});
    check_tie(&(tie_case){.weight = 1,
                          .bias = -1 + 1e-5,
                          .x = {1, 0, 0, 0},
                          .decisions = {0, 0},
                          .expected = {.different = 1, .unproven = 1, .worst_layer = 2},
                          .dweight = 0});
    /* Equal values that are exact: the device holds them, too, and must take the first. */
    check_tie(&(tie_case){.weight = 0,
                          .x = {2, 1, 3, 0},
                          .decisions = {1, 0},
                          .expected = {.different = 1, .unproven = 1, .worst_layer = 1},
                          .dweight = 0});
    /* A choice outside the window and a sign that is neither are no decisions: unproven, the oracle's own is taken. */
    check_tie(&(tie_case){.weight = 1,
                          .x = {2, 1, 0, 0},
                          .decisions = {4, 1},
                          .expected = {.different = 1, .unproven = 1, .worst_layer = 1},
                          .dweight = 2});
    check_tie(&(tie_case){.weight = 1,
                          .x = {2, 1, 0, 0},
                          .decisions = {0, 255},
                          .expected = {.different = 1, .unproven = 1, .worst_layer = 2},
                          .dweight = 2});
}

static void test_pixels_are_scaled_in_float32(void **state) {
    (void)state;
    static const uint8_t pixels[] = {0, 1, 128, 255};
    static const float values[] = {-0.25F, 1, 128, 3};
    const ls_normalize none = {0}, one = {1, {0.1307}, {0.3081}}, two = {2, {0.1307, 0.5}, {0.3081, 0.25}};
    ls_shape shape = {2, 1, 2};
    double x[4];
    ls_oracle_pixels(pixels, shape, &none, x);
    assert_true(x[0] == 0 && x[3] == 1 && x[1] == (double)(1.0F / 255.0F));
    ls_oracle_pixels(pixels, shape, &one, x);
    assert_true(x[2] == (double)((128.0F / 255.0F - 0.1307F) / 0.3081F));
    ls_oracle_pixels(pixels, shape, &two, x);
    assert_true(x[1] == (double)((1.0F / 255.0F - 0.1307F) / 0.3081F));
    assert_true(x[2] == (double)((128.0F / 255.0F - 0.5F) / 0.25F));
    ls_oracle_values(values, shape, &none, x);
    assert_true(x[0] == -0.25 && x[2] == 128);
    ls_oracle_values(values, shape, &two, x);
    assert_true(x[0] == (double)((-0.25F - 0.1307F) / 0.3081F) && x[3] == 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seed_cnn_equals_pytorch_float64),
        cmocka_unit_test(test_three_sgd_steps_equal_pytorch_float64),
        cmocka_unit_test(test_last_layer_gradients_sum_to_zero),
        cmocka_unit_test(test_differences_of_both_models),
        cmocka_unit_test(test_differences_with_stride_and_padding),
        cmocka_unit_test(test_parts_add_up),
        cmocka_unit_test(test_decisions_within_the_bound_are_followed_and_proven),
        cmocka_unit_test(test_decisions_beyond_the_bound_are_unproven),
        cmocka_unit_test(test_pixels_are_scaled_in_float32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
