/* A max-pooling and a relu in the same pass as a convolution: bit for bit what the separate kernels give. Its gradients are sums of the
 * same products in another order, so the values here are such that no sum is rounded, in float32 either: inputs are integers of at
 * most 2, gradients of at most 4, weights multiples of 1/8 of at most 1, and a sum has at most 2^13 terms, 2^13 * 8 * 8 < 2^24. */
#include "tests/gpu/device_values.h"

typedef struct pooled_case {
    ls_conv_shape shape;
    size_t kernel, batch;
    bool relu;
    bool nan; /* the first input: a weight's gradient may then be NaN where only gradients of 0 meet it, or not */
} pooled_case;

typedef struct sizes {
    size_t x, full, y, weight;
} sizes;

static sizes case_sizes(const pooled_case *c) {
    const ls_conv_shape *s = &c->shape;
    size_t height = ls_conv_out_height(s), width = ls_conv_out_width(s);
    return (sizes){s->in_channels * s->in_height * s->in_width, s->out_channels * height * width,
                   s->out_channels * (height / c->kernel) * (width / c->kernel),
                   s->out_channels * s->in_channels * s->kernel_height * s->kernel_width};
}

/* What the two ways give, on the host. */
typedef struct outcome {
    double *y, *dx, *dw, *db;
    uint8_t *index;
} outcome;

static void outcome_free(outcome *o) {
    free(o->y);
    free(o->dx);
    free(o->dw);
    free(o->db);
    free(o->index);
}

static void assert_same(const pooled_case *c, const outcome *a, const outcome *b) {
    const sizes z = case_sizes(c);
    assert_memory_equal(a->y, b->y, c->batch * z.y * sizeof *a->y);
    assert_memory_equal(a->index, b->index, c->batch * z.y);
    assert_memory_equal(a->dx, b->dx, c->batch * z.x * sizeof *a->dx);
    if (!c->nan) {
        assert_memory_equal(a->dw, b->dw, z.weight * sizeof *a->dw);
    }
    assert_memory_equal(a->db, b->db, c->shape.out_channels * sizeof *a->db);
}

/* Device memory of a case. */
typedef struct tensors {
    void *x, *w, *bias, *full, *full_grad, *y, *dy, *dx, *dw, *db;
    uint8_t *index, *plain_index;
} tensors;

/* Multiples of unit, at most `most` of them. */
static void fill_rounded(double *values, size_t count, uint64_t seed, double most, double unit) {
    fill_random(values, count, seed);
    for (size_t i = 0; i < count; i++) {
        values[i] = round(values[i] * most) * unit;
    }
}

static tensors tensors_make(const pooled_case *c, ls_dtype dtype) {
    const sizes z = case_sizes(c);
    double *values = host_doubles(c->batch * z.full + c->batch * z.x + z.weight + c->shape.out_channels);
    tensors t;
    fill_rounded(values, c->batch * z.x, 1, 2, 1); /* few different values: equal ones meet in a window, and zeros */
    if (c->nan) {
        values[0] = NAN;
    }
    t.x = device_activation(dtype, values, c->batch, z.x);
    fill_rounded(values, z.weight, 2, 8, 0.125);
    t.w = device_values(dtype, values, z.weight);
    fill_rounded(values, c->shape.out_channels, 3, 8, 0.125);
    t.bias = device_values(dtype, values, c->shape.out_channels);
    fill_rounded(values, c->batch * z.y, 4, 4, 1);
    t.dy = device_activation(dtype, values, c->batch, z.y);
    free(values);
    t.full = device_unwritten(dtype, ls_activation_count(c->batch, z.full));
    t.full_grad = device_unwritten(dtype, ls_activation_count(c->batch, z.full));
    t.y = device_unwritten(dtype, ls_activation_count(c->batch, z.y));
    t.dx = device_unwritten(dtype, ls_activation_count(c->batch, z.x));
    t.dw = device_unwritten(dtype, z.weight);
    t.db = device_unwritten(dtype, c->shape.out_channels);
    t.index = device_alloc(ls_activation_count(c->batch, z.y));
    t.plain_index = device_alloc(c->batch * z.y);
    return t;
}

static void tensors_free(tensors *t) {
    void *all[] = {t->x,  t->w,  t->bias, t->full, t->full_grad, t->y,
                   t->dy, t->dx, t->dw,   t->db,   t->index,     t->plain_index};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        device_free(all[i]);
    }
}

static outcome outcome_read(const pooled_case *c, ls_dtype dtype, const tensors *t) {
    const sizes z = case_sizes(c);
    outcome o = {host_activation(dtype, t->y, c->batch, z.y), host_activation(dtype, t->dx, c->batch, z.x),
                 host_values(dtype, t->dw, z.weight), host_values(dtype, t->db, c->shape.out_channels),
                 host_alloc(c->batch * z.y + 1, 1)};
    CUDA_OK(ls_kernel_from_lanes(0, 1, ls_lanes(), c->batch, z.y, t->index, t->plain_index));
    CUDA_OK(cudaMemcpy(o.index, t->plain_index, c->batch * z.y, cudaMemcpyDeviceToHost));
    return o;
}

static outcome together(const pooled_case *c, ls_dtype dtype, ls_math *math, size_t max_batch) {
    tensors t = tensors_make(c, dtype);
    ls_conv *conv = NULL;
    const ls_conv_pool pool = {.kernel = c->kernel, .relu = c->relu, .index = t.index, .y = t.y};
    assert_int_equal(LS_OK, ls_conv_open(math, &c->shape, dtype, max_batch, &conv));
    assert_int_equal(LS_OK, ls_conv_attach(conv, &pool));
    assert_int_equal(LS_OK, ls_conv_forward(conv, c->batch, t.x, t.w, t.bias, t.y));
    assert_int_equal(LS_OK, ls_conv_backward_params(conv, c->batch, t.x, t.dy, t.dw, t.db));
    assert_int_equal(LS_OK, ls_conv_backward_input(conv, c->batch, t.dy, t.w, t.dx));
    outcome o = outcome_read(c, dtype, &t);
    ls_conv_close(conv);
    tensors_free(&t);
    return o;
}

static outcome apart(const pooled_case *c, ls_dtype dtype, ls_math *math, size_t max_batch) {
    const ls_conv_shape *s = &c->shape;
    const size_t height = ls_conv_out_height(s), width = ls_conv_out_width(s);
    const size_t count = ls_activation_count(c->batch, case_sizes(c).y);
    tensors t = tensors_make(c, dtype);
    ls_conv *conv = NULL;
    assert_int_equal(LS_OK, ls_conv_open(math, s, dtype, max_batch, &conv));
    assert_int_equal(LS_OK, ls_conv_forward(conv, c->batch, t.x, t.w, t.bias, t.full));
    CUDA_OK(ls_kernel_maxpool_forward(0, dtype, ls_lanes(), c->batch, s->out_channels, height, width, c->kernel,
                                      c->kernel, t.full, t.y, t.index));
    if (c->relu) {
        CUDA_OK(ls_kernel_relu_forward(0, dtype, count, t.y, t.y));
        CUDA_OK(ls_kernel_relu_backward(0, dtype, count, t.y, t.dy, t.dy));
    }
    CUDA_OK(ls_kernel_maxpool_backward(0, dtype, ls_lanes(), c->batch, s->out_channels, height, width, c->kernel,
                                       c->kernel, t.dy, t.index, t.full_grad));
    assert_int_equal(LS_OK, ls_conv_backward_params(conv, c->batch, t.x, t.full_grad, t.dw, t.db));
    assert_int_equal(LS_OK, ls_conv_backward_input(conv, c->batch, t.full_grad, t.w, t.dx));
    outcome o = outcome_read(c, dtype, &t);
    ls_conv_close(conv);
    tensors_free(&t);
    return o;
}

static const pooled_case cases[] = {
    {{1, 28, 28, 10, 5, 5, 1, 0}, 2, 17, true, false}, /* a kernel's rows side by side */
    {{3, 11, 13, 6, 3, 3, 1, 0}, 2, 33, false, false}, /* a row and a column that no window covers */
    {{3, 11, 13, 6, 3, 3, 1, 0}, 2, 33, false, true},
    {{2, 9, 12, 5, 3, 3, 1, 1}, 3, 5, true, false},
    {{2, 9, 12, 5, 3, 3, 1, 1}, 3, 5, true, true},
    {{4, 13, 13, 3, 3, 3, 2, 0}, 4, 16, true, false},
    {{3, 17, 15, 4, 3, 3, 2, 1}, 2, 7, true, false},
    {{2, 6, 6, 7, 1, 1, 1, 0}, 1, 20, true, false},
    {{30, 12, 12, 41, 5, 5, 1, 0}, 2, 18, true, false}, /* chunks of channels, rows in parts */
    {{2, 40, 70, 9, 3, 3, 1, 0}, 2, 3, false, false},   /* lists of some rows of windows */
    {{2, 6, 6, 4, 3, 3, 1, 0}, 2, 0, true, false},
    /* lists for the gradient of the input too, with rows and columns that no window covers; above, few channels have none */
    {{6, 19, 14, 12, 3, 3, 1, 1}, 3, 17, true, false},
    {{5, 27, 29, 14, 5, 5, 2, 0}, 4, 5, true, false},
    {{7, 13, 12, 19, 5, 5, 1, 2}, 2, 18, false, true},
    {{3, 20, 20, 9, 3, 3, 1, 1}, 7, 4, true, false},
    {{7, 13, 12, 19, 5, 5, 1, 2}, 2, 0, true, false},
};

/* On the instruction set of the environment; what opening the math gives. */
static ls_rc check_cases(void) {
    ls_math *math = NULL;
    ls_rc rc = ls_math_open(0, &math);
    if (rc != LS_OK) {
        return rc;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t d = 0; d < 2; d++) {
            const pooled_case *c = &cases[i];
            outcome a = together(c, value_dtypes[d], math, c->batch + 3);
            outcome b = apart(c, value_dtypes[d], math, c->batch + 3);
            assert_same(c, &a, &b);
            outcome_free(&a);
            outcome_free(&b);
        }
    }
    ls_math_close(math);
    return LS_OK;
}

static void check_isa(const char *name) {
    assert_int_equal(0, setenv("LOCKSTEP_VGPU_ISA", name, 1));
    assert_int_equal(LS_OK, check_cases()); /* which a build without it would not be */
}

/* For the platform's own choice of instruction set, and for each that this processor has by name. */
static void test_same_bits(void **state) {
    (void)state;
    if (ls_lanes() == 1) { /* GPUs leave it to the separate kernels */
        skip();
    }
    assert_true(ls_conv_pools(2, 2));
    assert_int_equal(LS_OK, check_cases());
    check_isa("baseline");
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        check_isa("AVX2");
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma")) {
        check_isa("AVX-512");
    }
#endif
    assert_int_equal(0, unsetenv("LOCKSTEP_VGPU_ISA"));
}

/* Windows that overlap are never taken, nor is a second pooling or one that does not fit. */
static void test_refused(void **state) {
    (void)state;
    assert_false(ls_conv_pools(3, 2));
    assert_false(ls_conv_pools(16, 16));
    const ls_conv_shape shape = {1, 6, 6, 2, 3, 3, 1, 0};
    const ls_conv_pool large = {.kernel = 5}, fits = {.kernel = 2};
    ls_math *math = NULL;
    ls_conv *conv = NULL;
    assert_int_equal(LS_OK, ls_math_open(0, &math));
    assert_int_equal(LS_OK, ls_conv_open(math, &shape, LS_FLOAT32, 4, &conv));
    assert_int_equal(LS_BAD_INPUT, ls_conv_attach(conv, &large));
    if (ls_lanes() > 1) {
        assert_int_equal(LS_OK, ls_conv_attach(conv, &fits));
    }
    assert_int_equal(LS_BAD_INPUT, ls_conv_attach(conv, &fits));
    ls_conv_close(conv);
    ls_math_close(math);
}

/* The second engine computes no pooling; an engine is chosen at open, and stays. */
static void test_other_engine(void **state) {
    (void)state;
    const ls_conv_shape shape = {1, 6, 6, 2, 3, 3, 1, 0};
    const ls_conv_pool pool = {.kernel = 2};
    ls_math *math = NULL;
    ls_conv *conv = NULL;
    ls_math_set_mode(LS_MATH_IM2COL);
    assert_false(ls_conv_pools(2, 2));
    assert_int_equal(LS_OK, ls_math_open(0, &math));
    assert_int_equal(LS_OK, ls_conv_open(math, &shape, LS_FLOAT32, 4, &conv));
    ls_math_set_mode(LS_MATH_EXACT);
    assert_int_equal(LS_BAD_INPUT, ls_conv_attach(conv, &pool));
    ls_conv_close(conv);
    ls_math_close(math);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_other_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
