/* What a step asks of the CUDA runtime and of the libraries, over the stand-ins: after planning nothing is allocated, freed or
 * waited for, in any mode; and which algorithms the modes choose. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/layer_math.h"
#include "tests/cuda/standin.h"

enum { BATCH = 24, OUTS = 8 };

static const ls_conv_shape shape = {3, 9, 9, OUTS, 3, 3, 1, 1};

typedef struct layers {
    ls_math *math;
    ls_conv *conv;
    ls_linear *linear;
    size_t features; /* that the linear layer reads */
    char *x, *y, *weight;
} layers;

/* Room for every tensor of either layer in either type; `weight` also holds a bias behind it. */
static layers layers_open(ls_math_mode mode, ls_dtype dtype) {
    layers l = {.features = OUTS * ls_conv_out_height(&shape) * ls_conv_out_width(&shape)};
    size_t room = BATCH * l.features * sizeof(double);
    l.x = calloc(1, room);
    l.y = calloc(1, room);
    l.weight = calloc(1, room);
    assert_true(l.x != NULL && l.y != NULL && l.weight != NULL);
    standin.fast = mode == LS_MATH_FAST;
    ls_math_set_mode(mode);
    assert_int_equal(LS_OK, ls_math_open(0, &l.math));
    assert_int_equal(LS_OK, ls_conv_open(l.math, &shape, dtype, BATCH, &l.conv));
    assert_int_equal(LS_OK, ls_linear_open(l.math, l.features, OUTS, dtype, BATCH, &l.linear));
    return l;
}

static void layers_close(layers *l) {
    ls_conv_close(l->conv);
    ls_linear_close(l->linear);
    ls_math_close(l->math);
    free(l->x);
    free(l->y);
    free(l->weight);
    ls_math_set_mode(LS_MATH_EXACT);
    standin.fast = false;
}

/* The bias begins `offset` bytes behind an aligned place. */
static void step(layers *l, size_t batch, size_t offset) {
    void *bias = l->weight + OUTS * l->features * sizeof(double) + offset;
    assert_int_equal(LS_OK, ls_conv_forward(l->conv, batch, l->x, l->weight, bias, l->y));
    assert_int_equal(LS_OK, ls_linear_forward(l->linear, batch, l->y, l->weight, bias, l->x));
    assert_int_equal(LS_OK, ls_linear_backward_input(l->linear, batch, l->x, l->weight, l->y));
    assert_int_equal(LS_OK, ls_linear_backward_params(l->linear, batch, l->y, l->x, l->weight, bias));
    assert_int_equal(LS_OK, ls_conv_backward_input(l->conv, batch, l->y, l->weight, l->x));
    assert_int_equal(LS_OK, ls_conv_backward_params(l->conv, batch, l->x, l->y, l->weight, bias));
}

/* Whole batches, smaller ones of the end of an epoch, and none. */
static void check_quiet(ls_math_mode mode, ls_dtype dtype) {
    static const size_t batches[] = {BATCH, BATCH, 7, BATCH, 1, 0, 23};
    layers l = layers_open(mode, dtype);
    assert_true(standin.allocations > 0);
    const struct standin planned = standin;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        step(&l, batches[i], i % 2 * sizeof(double));
        assert_int_equal(standin.allocations, planned.allocations);
        assert_int_equal(standin.frees, planned.frees);
        assert_int_equal(standin.waits, planned.waits);
    }
    layers_close(&l);
}

static void test_steps_are_quiet(void **state) {
    (void)state;
    const ls_math_mode modes[] = {LS_MATH_EXACT, LS_MATH_FAST, LS_MATH_IM2COL};
    for (size_t i = 0; i < 3; i++) {
        check_quiet(modes[i], LS_FLOAT32);
        check_quiet(modes[i], LS_FLOAT64);
    }
}

/* Steps of one batch size ask cuBLASLt nothing; each size that differs from the planned one is asked for when it comes. */
static void test_heuristics_are_planned(void **state) {
    (void)state;
    const size_t before = standin.heuristics;
    layers l = layers_open(LS_MATH_EXACT, LS_FLOAT32);
    const size_t planned = standin.heuristics;
    assert_true(planned > before);
    step(&l, BATCH, 0);
    step(&l, BATCH, 0);
    assert_int_equal(standin.heuristics, planned);
    step(&l, 7, 0);
    step(&l, BATCH, 0);
    step(&l, 7, 0);
    assert_int_equal(standin.heuristics, 2 * planned - before);
    layers_close(&l);
}

/* A bias that is aligned goes into the epilogue, both ways; one that is not has a kernel. */
static void test_bias_epilogue(void **state) {
    (void)state;
    layers l = layers_open(LS_MATH_EXACT, LS_FLOAT32);
    size_t before = standin.bias_epilogues;
    step(&l, BATCH, 0);
    assert_int_equal(standin.bias_epilogues, before + 2);
    step(&l, BATCH, 4);
    assert_int_equal(standin.bias_epilogues, before + 2);
    layers_close(&l);
}

/* The algorithms of each mode stand in the description: 6 and 0 and 3 are what the stand-in's searches find, 22 the fastest of
 * its products (20 is the first that it offers, 21 does not run). */
static void test_choices_are_recorded(void **state) {
    (void)state;
    layers l = layers_open(LS_MATH_EXACT, LS_FLOAT32);
    const char *text = ls_math_description();
    assert_non_null(strstr(text, "FMA and pedantic math"));
    assert_non_null(strstr(text, "conv backward data 1, conv backward filter 1, conv forward 1"));
    assert_non_null(strstr(text, "linear backward weight + bias 20/1"));
    assert_null(strstr(text, "tensor math"));
    layers_close(&l);
    l = layers_open(LS_MATH_FAST, LS_FLOAT32);
    ls_math_set_mode(LS_MATH_FAST);
    text = ls_math_description();
    assert_non_null(strstr(text, "fastest, TF32 allowed"));
    assert_non_null(strstr(text, "conv forward 6 tensor math"));
    assert_non_null(strstr(text, "conv backward data 0 default math"));
    assert_non_null(strstr(text, "conv backward filter 3"));
    assert_non_null(strstr(text, "linear forward 22/1"));
    assert_null(strstr(text, "linear forward 21/1"));
    layers_close(&l);
    assert_false(ls_math_mode_is_exact(LS_MATH_FAST));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices_are_recorded), /* first: descriptions hold all choices of the process */
        cmocka_unit_test(test_steps_are_quiet),
        cmocka_unit_test(test_heuristics_are_planned),
        cmocka_unit_test(test_bias_epilogue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
