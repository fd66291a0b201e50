/* Every optimizer against PyTorch: the recorded trajectories of all options, and a few values known to 17 digits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/optimizer.h"
#include "reference/oracle/oracle.h"
#include "tests/golden/optimizers.h"

#define CUDA_OK(call) assert_int_equal((call), cudaSuccess)

/* An optimizer at work on a flat buffer of its own. */
typedef struct bench {
    ls_optimizer_options options;
    ls_dtype dtype;
    size_t count;
    void *param, *grad, *state[LS_OPTIMIZER_MAX_STATES];
    uint64_t steps;
} bench;

static void *device_zeros(size_t bytes) {
    void *memory = NULL;
    CUDA_OK(cudaMalloc(&memory, bytes));
    CUDA_OK(cudaMemset(memory, 0, bytes));
    return memory;
}

/* Doubles into a device buffer of dtype. */
static void give(const bench *b, void *to, const double *values) {
    float *narrow = calloc(b->count, sizeof *narrow);
    assert_non_null(narrow);
    for (size_t i = 0; i < b->count; i++) {
        narrow[i] = (float)values[i];
    }
    CUDA_OK(cudaMemcpy(to, b->dtype == LS_FLOAT64 ? (const void *)values : narrow, b->count * ls_dtype_size(b->dtype),
                       cudaMemcpyHostToDevice));
    free(narrow);
}

static void take(const bench *b, double *values) {
    float *narrow = calloc(b->count, sizeof *narrow);
    assert_non_null(narrow);
    CUDA_OK(cudaMemcpy(b->dtype == LS_FLOAT64 ? (void *)values : narrow, b->param, b->count * ls_dtype_size(b->dtype),
                       cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < b->count && b->dtype == LS_FLOAT32; i++) {
        values[i] = (double)narrow[i];
    }
    free(narrow);
}

static void bench_open(bench *b, const char *name, const ls_optimizer_options *options, ls_dtype dtype, size_t count,
                       const double *start) {
    *b = (bench){.options = *options, .dtype = dtype, .count = count};
    assert_true(ls_optimizer_find(name, &b->options.kind));
    size_t bytes = count * ls_dtype_size(dtype);
    b->param = device_zeros(bytes);
    b->grad = device_zeros(bytes);
    for (size_t k = 0; k < ls_optimizer_state_count(&b->options); k++) {
        b->state[k] = device_zeros(bytes);
    }
    give(b, b->param, start);
}

static void bench_close(bench *b) {
    CUDA_OK(cudaFree(b->param));
    CUDA_OK(cudaFree(b->grad));
    for (size_t k = 0; k < LS_OPTIMIZER_MAX_STATES; k++) {
        CUDA_OK(cudaFree(b->state[k]));
    }
}

static void bench_step(bench *b, const double *grad, double lr) {
    give(b, b->grad, grad);
    ls_optimizer_step step = {.dtype = b->dtype,
                              .count = b->count,
                              .param = b->param,
                              .grad = b->grad,
                              .state = b->state,
                              .steps = b->steps++,
                              .lr = lr};
    CUDA_OK(ls_optimizer_of(&b->options)->step(&b->options, &step));
}

/* Bounds: float64 1e-12 and float32 2e-7, absolute, on numbers of at most 1.2. A step has some ten roundings, and
 * a dozen steps follow each other: 12*10*2^-53 = 1.3e-14. In float32 a step's own roundings move a parameter by at most
 * 2^-24 = 6e-8 and the update by as little relative to itself (0.02 a step); PyTorch fuses some products and sums. */
static void follow(const golden_trajectory *golden, ls_dtype dtype, double bound) {
    bench b;
    double found[GOLDEN_COUNT];
    bench_open(&b, golden->name, &golden->options, dtype, GOLDEN_COUNT, golden_start);
    for (int step = 0, kept = 0; step < GOLDEN_STEPS; step++) {
        bench_step(&b, golden_gradients[step], golden->lr);
        if (step + 1 != golden_kept[kept]) {
            continue;
        }
        take(&b, found);
        for (size_t i = 0; i < GOLDEN_COUNT; i++) {
            double expected = dtype == LS_FLOAT64 ? golden->float64[kept][i] : (double)golden->float32[kept][i];
            if (!(fabs(found[i] - expected) <= bound)) {
                fail_msg("%s (case %zu), %s, after step %d: element %zu is %.17g, PyTorch has %.17g", golden->name,
                         (size_t)(golden - golden_trajectories), ls_dtype_name(dtype), step + 1, i, found[i], expected);
            }
        }
        kept++;
    }
    bench_close(&b);
}

static void trajectories_equal_pytorch_in_float64(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof golden_trajectories / sizeof golden_trajectories[0]; c++) {
        follow(&golden_trajectories[c], LS_FLOAT64, 1e-12);
    }
}

static void trajectories_equal_pytorch_in_float32(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof golden_trajectories / sizeof golden_trajectories[0]; c++) {
        follow(&golden_trajectories[c], LS_FLOAT32, 2e-7);
    }
}

static const struct {
    const char *name;
    ls_optimizer_options options;
    double expected[3];
} known[] = {
    {"sgd", {0}, {.95, .975, .9625}},
    {"sgd", {.momentum = .5}, {.95, .95, .9375}},
    {"sgd", {.momentum = .5, .dampening = .5}, {.95, .9375, .925}},
    {"sgd", {.momentum = .5, .nesterov = true}, {.925, .95, .93125}},
    {"sgd", {.momentum = .5, .weight_decay = .1}, {.94, .9256, .896644}},
    {"adam", {.beta1 = .9, .beta2 = .999, .eps = 1e-8}, {.90000000199999997, .87336629870784632, .83932338491665415}},
    {"adam", {.beta1 = .9, .beta2 = .999, .eps = .1}, {.91666666666666663, .895411060230342, .86927405738806296}},
    {"adam",
     {.beta1 = .9, .beta2 = .999, .eps = 1e-8, .weight_decay = .1},
     {.9000000016666666, .85444136746176247, .8005694720858495}},
    {"adamw",
     {.beta1 = .9, .beta2 = .999, .eps = 1e-8, .weight_decay = 1e-2},
     {.89900000199999996, .87146729870584627, .8365529176159483}},
    {"rmsprop", {.alpha = .99, .eps = 1e-8}, {1.9999996048181146e-07, .44901337442175077, .22890921760206842}},
    {"rmsprop", {.alpha = .99, .eps = .1}, {.66666666666666674, .82725491439021659, .74753109532422279}},
    {"rmsprop",
     {.alpha = .99, .eps = 1e-8, .centered = true, .momentum = .9},
     {-.0050376132390502655, -.46012294856465424, -1.0902663250218796}},
};
static const double known_gradients[3] = {.5, -.25, .125};

/* From w = 1 with rate 0.1; 1e-12 absolute, for the roundings of three steps on numbers of about 1. */
static void known_values(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof known / sizeof known[0]; c++) {
        bench b;
        const double one = 1;
        bench_open(&b, known[c].name, &known[c].options, LS_FLOAT64, 1, &one);
        for (int step = 0; step < 3; step++) {
            double found = 0;
            bench_step(&b, &known_gradients[step], .1);
            take(&b, &found);
            if (!(fabs(found - known[c].expected[step]) <= 1e-12)) {
                fail_msg("case %zu, step %d: %.17g, expected %.17g", c, step, found, known[c].expected[step]);
            }
        }
        bench_close(&b);
    }
}

static ls_oracle_optimizer as_oracle(const char *name, const ls_optimizer_options *o) {
    static const char *const names[] = {"sgd", "adam", "adamw", "rmsprop"};
    ls_oracle_optimizer out = {.momentum = o->momentum,
                               .dampening = o->dampening,
                               .weight_decay = o->weight_decay,
                               .beta1 = o->beta1,
                               .beta2 = o->beta2,
                               .eps = o->eps,
                               .alpha = o->alpha,
                               .nesterov = o->nesterov,
                               .amsgrad = o->amsgrad,
                               .centered = o->centered,
                               .maximize = o->maximize};
    for (int rule = 0; rule < 4; rule++) {
        if (strcmp(names[rule], name) == 0) {
            out.rule = rule;
        }
    }
    return out;
}

/* The oracle's optimizers, written apart, against the same values. */
static void the_oracle_knows_them_too(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof known / sizeof known[0]; c++) {
        ls_oracle_optimizer o = as_oracle(known[c].name, &known[c].options);
        double w = 1, states[3] = {0}, *buffers[3] = {&states[0], &states[1], &states[2]};
        for (size_t step = 0; step < 3; step++) {
            ls_oracle_update(&o, 1, &w, &known_gradients[step], buffers, step, .1);
            assert_true(fabs(w - known[c].expected[step]) <= 1e-12);
        }
    }
    for (size_t c = 0; c < sizeof golden_trajectories / sizeof golden_trajectories[0]; c++) {
        const golden_trajectory *golden = &golden_trajectories[c];
        ls_oracle_optimizer o = as_oracle(golden->name, &golden->options);
        double w[GOLDEN_COUNT], states[3][GOLDEN_COUNT] = {{0}}, *buffers[3] = {states[0], states[1], states[2]};
        memcpy(w, golden_start, sizeof w);
        for (size_t step = 0, kept = 0; step < GOLDEN_STEPS; step++) {
            ls_oracle_update(&o, GOLDEN_COUNT, w, golden_gradients[step], buffers, step, golden->lr);
            for (size_t i = 0; (int)step + 1 == golden_kept[kept] && i < GOLDEN_COUNT; i++) {
                assert_true(fabs(w[i] - golden->float64[kept][i]) <= 1e-12);
            }
            kept += (int)step + 1 == golden_kept[kept] ? 1 : 0;
        }
    }
}

/* A device's square average may underflow where the square of its mean does not: then the variance is zero, not less. */
static void a_variance_is_not_negative(void **state) {
    (void)state;
    ls_oracle_optimizer o = {.rule = LS_ORACLE_RMSPROP, .alpha = .99, .eps = 1e-8, .centered = true};
    double w = .5, gradient = 1e-30, square = 0, mean = 1e-25, velocity = 0;
    double *buffers[LS_ORACLE_STATES] = {&square, &mean, &velocity};
    ls_oracle_update(&o, 1, &w, &gradient, buffers, 2, .03);
    assert_true(mean * mean > square);
    assert_true(w == .5 - .03 * (1e-30 / 1e-8));
}

/* Many elements give what one gives, whatever the launch: the first and last element and those between are alike. */
static void every_element_is_updated(void **state) {
    (void)state;
    enum { MANY = 70001 };
    double *values = calloc(MANY, sizeof *values);
    assert_non_null(values);
    for (size_t k = 0; ls_optimizers[k] != NULL; k++) {
        for (size_t i = 0; i < MANY; i++) {
            values[i] = .75;
        }
        bench b;
        bench_open(&b, ls_optimizers[k]->name, &ls_optimizers[k]->defaults, LS_FLOAT32, MANY, values);
        bench_step(&b, values, .01);
        bench_step(&b, values, .01);
        take(&b, values);
        assert_true(values[0] < .75);
        for (size_t i = 1; i < MANY; i++) {
            assert_true(values[i] == values[0]);
        }
        bench_close(&b);
    }
    free(values);
}

/* SGD's first step writes the velocity, whatever it held. */
static void sgd_ignores_the_velocity_at_first(void **state) {
    (void)state;
    bench b;
    const double one = 1, junk = NAN;
    double found = 0;
    bench_open(&b, "sgd", &(ls_optimizer_options){.momentum = .5}, LS_FLOAT64, 1, &one);
    give(&b, b.state[0], &junk);
    bench_step(&b, &one, .25);
    bench_step(&b, &one, .25);
    take(&b, &found);
    assert_true(found == 1 - .25 - .25 * 1.5);
    bench_close(&b);
}

static void the_table_is_sound(void **state) {
    (void)state;
    size_t kind = 99;
    assert_false(ls_optimizer_find("lion", &kind));
    assert_int_equal(kind, 99);
    for (size_t k = 0; ls_optimizers[k] != NULL; k++) {
        ls_optimizer_options options = ls_optimizers[k]->defaults;
        options.kind = k;
        options.momentum = options.momentum != 0 ? options.momentum : .9;
        options.centered = options.amsgrad = true;
        size_t count = ls_optimizer_state_count(&options);
        assert_in_range(count, 0, LS_OPTIMIZER_MAX_STATES);
        for (size_t i = 0; i < count; i++) {
            assert_non_null(ls_optimizer_state_name(&options, i));
        }
        assert_null(ls_optimizer_state_name(&options, count));
        assert_true(ls_optimizer_find(ls_optimizers[k]->name, &kind) && kind == k);
        assert_int_equal(ls_optimizer_check(&options), LS_OK);
    }
    assert_int_equal(ls_optimizer_state_count(&(ls_optimizer_options){0}), 0);
    assert_int_equal(ls_optimizer_check(&(ls_optimizer_options){.nesterov = true}), LS_BAD_INPUT);
    assert_int_equal(ls_optimizer_check(&(ls_optimizer_options){.nesterov = true, .momentum = .5, .dampening = .1}),
                     LS_BAD_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajectories_equal_pytorch_in_float64),
        cmocka_unit_test(trajectories_equal_pytorch_in_float32),
        cmocka_unit_test(known_values),
        cmocka_unit_test(the_oracle_knows_them_too),
        cmocka_unit_test(a_variance_is_not_negative),
        cmocka_unit_test(every_element_is_updated),
        cmocka_unit_test(sgd_ignores_the_velocity_at_first),
        cmocka_unit_test(the_table_is_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
