/* Convolution and linear layers against plain loops in double precision. */
#include "tests/gpu/device_values.h"

#include <stdio.h>

/* Sums of the reference and of the absolute values of their terms, for the bounds. */
typedef struct reference {
    double *y, *y_size;
    double *dx, *dx_size;
    double *dw, *dw_size;
    double *db, *db_size;
} reference;

typedef struct sizes {
    size_t x, y, w;
} sizes;

static sizes shape_sizes(const ls_conv_shape *s) {
    return (sizes){s->in_channels * s->in_height * s->in_width,
                   s->out_channels * ls_conv_out_height(s) * ls_conv_out_width(s),
                   s->out_channels * s->in_channels * s->kernel_height * s->kernel_width};
}

static void add(double *sum, double *size, double term) {
    *sum += term;
    *size += fabs(term);
}

/* Every (output pixel, tap) pair inside the image, once: its terms of y, dx and dw. */
static void reference_sample(const ls_conv_shape *s, const double *x, const double *w, const double *dy, reference *r,
                             size_t sample) {
    const sizes z = shape_sizes(s);
    const size_t oh = ls_conv_out_height(s), ow = ls_conv_out_width(s), kw = s->kernel_width, kh = s->kernel_height;
    for (size_t out = 0; out < z.y; out++) {
        size_t o = out / (oh * ow), oy = out / ow % oh, ox = out % ow;
        for (size_t tap = 0; tap < s->in_channels * kh * kw; tap++) {
            size_t iy = oy * s->stride + tap / kw % kh, ix = ox * s->stride + tap % kw;
            if (iy < s->padding || iy - s->padding >= s->in_height || ix < s->padding ||
                ix - s->padding >= s->in_width) {
                continue;
            }
            size_t in = (tap / (kh * kw) * s->in_height + iy - s->padding) * s->in_width + ix - s->padding;
            size_t weight = o * s->in_channels * kh * kw + tap;
            size_t yi = sample * z.y + out, xi = sample * z.x + in;
            add(&r->y[yi], &r->y_size[yi], x[xi] * w[weight]);
            add(&r->dx[xi], &r->dx_size[xi], dy[yi] * w[weight]);
            add(&r->dw[weight], &r->dw_size[weight], dy[yi] * x[xi]);
        }
        add(&r->db[o], &r->db_size[o], dy[sample * z.y + out]);
    }
}

static reference reference_make(const ls_conv_shape *s, size_t batch, const double *x, const double *w,
                                const double *bias, const double *dy) {
    const sizes z = shape_sizes(s);
    reference r = {host_doubles(batch * z.y),
                   host_doubles(batch * z.y),
                   host_doubles(batch * z.x),
                   host_doubles(batch * z.x),
                   host_doubles(z.w),
                   host_doubles(z.w),
                   host_doubles(s->out_channels),
                   host_doubles(s->out_channels)};
    for (size_t sample = 0; sample < batch; sample++) {
        reference_sample(s, x, w, dy, &r, sample);
        for (size_t out = 0; bias != NULL && out < z.y; out++) {
            size_t i = sample * z.y + out;
            add(&r.y[i], &r.y_size[i], bias[out / (z.y / s->out_channels)]);
        }
    }
    return r;
}

static void reference_free(reference *r) {
    double *all[] = {r->y, r->y_size, r->dx, r->dx_size, r->dw, r->dw_size, r->db, r->db_size};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

/* The layer under test: a convolution, or the linear layer of the same numbers. */
typedef struct layer {
    ls_conv *conv;
    ls_linear *linear;
} layer;

static void layer_forward(layer l, size_t batch, const void *x, const void *w, const void *bias, void *y) {
    assert_int_equal(LS_OK, l.conv != NULL ? ls_conv_forward(l.conv, batch, x, w, bias, y)
                                           : ls_linear_forward(l.linear, batch, x, w, bias, y));
}

static void layer_backward(layer l, size_t batch, const void *x, const void *w, const void *dy, void *dx, void *dw,
                           void *db) {
    assert_int_equal(LS_OK, l.conv != NULL ? ls_conv_backward_input(l.conv, batch, dy, w, dx)
                                           : ls_linear_backward_input(l.linear, batch, dy, w, dx));
    assert_int_equal(LS_OK, l.conv != NULL ? ls_conv_backward_params(l.conv, batch, x, dy, dw, db)
                                           : ls_linear_backward_params(l.linear, batch, x, dy, dw, db));
}

/* A case's tensors on the host and on the device. */
typedef struct tensors {
    double *x, *w, *bias, *dy;
    void *dev_x, *dev_w, *dev_bias, *dev_dy, *dev_y, *dev_dx, *dev_dw, *dev_db;
} tensors;

static tensors tensors_make(const ls_conv_shape *s, ls_dtype dtype, size_t batch) {
    const sizes z = shape_sizes(s);
    tensors t = {host_doubles(batch * z.x),
                 host_doubles(z.w),
                 host_doubles(s->out_channels),
                 host_doubles(batch * z.y),
                 NULL,
                 NULL,
                 NULL,
                 NULL,
                 NULL,
                 NULL,
                 NULL,
                 NULL};
    fill_random(t.x, batch * z.x, 1);
    fill_random(t.w, z.w, 2);
    fill_random(t.bias, s->out_channels, 3);
    fill_random(t.dy, batch * z.y, 4);
    t.dev_x = device_activation(dtype, t.x, batch, z.x);
    t.dev_dy = device_activation(dtype, t.dy, batch, z.y);
    t.dev_w = device_values(dtype, t.w, z.w);
    t.dev_bias = device_values(dtype, t.bias, s->out_channels);
    t.dev_y = device_unwritten(dtype, ls_activation_count(batch, z.y));
    t.dev_dx = device_unwritten(dtype, ls_activation_count(batch, z.x));
    t.dev_dw = device_unwritten(dtype, z.w);
    t.dev_db = device_unwritten(dtype, s->out_channels);
    return t;
}

static void tensors_free(tensors *t) {
    double *host[] = {t->x, t->w, t->bias, t->dy};
    void *device[] = {t->dev_x, t->dev_w, t->dev_bias, t->dev_dy, t->dev_y, t->dev_dx, t->dev_dw, t->dev_db};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) {
        free(host[i]);
    }
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) {
        device_free(device[i]);
    }
}

static void compare(const char *what, const ls_conv_shape *s, ls_dtype dtype, size_t batch, const tensors *t,
                    const reference *r) {
    const sizes z = shape_sizes(s);
    size_t pixels = z.y / s->out_channels;
    size_t window = s->kernel_height * s->kernel_width;
    double *y = host_activation(dtype, t->dev_y, batch, z.y);
    double *dx = host_activation(dtype, t->dev_dx, batch, z.x);
    double *dw = host_values(dtype, t->dev_dw, z.w);
    double *db = host_values(dtype, t->dev_db, s->out_channels);
    /* terms: the products of one sum, and the bias; padded lanes and pixels add exact zeros, which cost no rounding */
    assert_sums_close(what, dtype, y, r->y, r->y_size, batch * z.y, s->in_channels * window + 1);
    assert_sums_close(what, dtype, dx, r->dx, r->dx_size, batch * z.x, s->out_channels * window);
    assert_sums_close(what, dtype, dw, r->dw, r->dw_size, z.w, batch * pixels);
    assert_sums_close(what, dtype, db, r->db, r->db_size, s->out_channels, batch * pixels);
    assert_unused_lanes_zero(dtype, t->dev_dx, batch, z.x);
    free(y);
    free(dx);
    free(dw);
    free(db);
}

static void check_layer(const ls_conv_shape *s, ls_dtype dtype, size_t batch, int linear) {
    char what[160];
    snprintf(what, sizeof what, "%zux%zux%zu to %zu, kernel %zux%zu stride %zu padding %zu, batch %zu", s->in_channels,
             s->in_height, s->in_width, s->out_channels, s->kernel_height, s->kernel_width, s->stride, s->padding,
             batch);
    tensors t = tensors_make(s, dtype, batch);
    ls_math *math = NULL;
    layer l = {NULL, NULL};
    assert_int_equal(LS_OK, ls_math_open(0, &math));
    size_t max_batch = batch + 7; /* a call may be smaller than the plan */
    if (linear) {
        assert_int_equal(LS_OK, ls_linear_open(math, s->in_channels, s->out_channels, dtype, max_batch, &l.linear));
    } else {
        assert_int_equal(LS_OK, ls_conv_open(math, s, dtype, max_batch, &l.conv));
    }
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        reference r = reference_make(s, batch, t.x, t.w, with_bias ? t.bias : NULL, t.dy);
        layer_forward(l, batch, t.dev_x, t.dev_w, with_bias ? t.dev_bias : NULL, t.dev_y);
        /* backward with dbias first and without after: the second call must not touch it */
        layer_backward(l, batch, t.dev_x, t.dev_w, t.dev_dy, t.dev_dx, t.dev_dw, with_bias ? NULL : t.dev_db);
        compare(what, s, dtype, batch, &t, &r);
        reference_free(&r);
    }
    ls_conv_close(l.conv);
    ls_linear_close(l.linear);
    ls_math_close(math);
    tensors_free(&t);
}

/* Runs `check` for the platform's own choice of instruction set and for the plainest (on cuda, the platform with one lane, there
 * is no such choice), and for every other mode that is held to the bounds. */
static void for_engines(void (*check)(void)) {
    check();
    if (ls_lanes() > 1) {
        assert_int_equal(0, setenv("LOCKSTEP_VGPU_ISA", "baseline", 1));
        check();
        assert_int_equal(0, unsetenv("LOCKSTEP_VGPU_ISA"));
    }
    ls_math_set_mode(LS_MATH_IM2COL);
    assert_non_null(strstr(ls_math_description(), "im2col"));
    check();
    ls_math_set_mode(LS_MATH_EXACT);
    assert_true(ls_math_mode_is_exact(LS_MATH_EXACT) && ls_math_mode_is_exact(LS_MATH_IM2COL));
}

/* channels, height, width, outputs, kernel height and width, stride, padding */
static const ls_conv_shape odd_shapes[] = {
    {3, 9, 7, 10, 3, 3, 1, 1},  {10, 8, 11, 3, 3, 3, 2, 1}, {3, 7, 9, 1, 5, 3, 2, 2},  {1, 5, 5, 7, 1, 1, 1, 0},
    {10, 6, 5, 13, 1, 1, 2, 0}, {3, 6, 6, 2, 5, 5, 1, 2},   {2, 4, 3, 5, 1, 1, 1, 1}, /* whole windows in the padding */
    {2, 8, 8, 6, 2, 2, 3, 0},                                                         /* inputs that no window reads */
    {1, 12, 12, 4, 5, 5, 1, 0}, {4, 3, 3, 1, 3, 3, 1, 0},   {2, 6, 11, 6, 5, 5, 1, 0}, {2, 5, 8, 6, 4, 4, 1, 1},
    {1, 8, 9, 5, 7, 7, 1, 3},
};
/* Whole blocks of lanes, part of one and more than one. The second engine, and a platform with one lane, where a batch is like
 * another, have those of `few`. */
static const size_t batches[] = {5, 17, 1, 16, 33};
static const size_t few = 2;

static bool is_thorough(void) {
    return ls_lanes() > 1 && ls_math_get_mode() != LS_MATH_IM2COL;
}

static size_t batch_count(void) {
    return is_thorough() ? sizeof batches / sizeof *batches : few;
}

static void check_odd_shapes(void) {
    for (size_t i = 0; i < sizeof odd_shapes / sizeof *odd_shapes; i++) {
        for (size_t b = 0; b < batch_count(); b++) {
            check_layer(&odd_shapes[i], LS_FLOAT32, batches[b], 0);
            check_layer(&odd_shapes[i], LS_FLOAT64, batches[b], 0);
        }
    }
}

/* Large enough that rows are tiled, that sums are kept between tiles, that they are not, and for chunks of channels. */
static void check_large_shapes(void) {
    static const ls_conv_shape shapes[] = {
        {1, 28, 28, 10, 5, 5, 1, 0}, {10, 12, 12, 20, 5, 5, 1, 0}, {3, 32, 32, 16, 3, 3, 1, 1},
        {40, 6, 6, 41, 3, 3, 1, 1},  {40, 7, 7, 41, 3, 3, 2, 0},   {20, 7, 9, 11, 5, 5, 1, 2},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_layer(&shapes[i], LS_FLOAT32, 18, 0);
        if (is_thorough()) {
            check_layer(&shapes[i], LS_FLOAT64, 18, 0);
        }
    }
}

static void check_linear(void) {
    static const size_t features[][2] = {{1, 1}, {3, 10}, {50, 10}, {320, 50}, {7, 13}};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        for (size_t b = 0; b < batch_count(); b++) {
            ls_conv_shape s = {features[i][0], 1, 1, features[i][1], 1, 1, 1, 0};
            check_layer(&s, LS_FLOAT32, batches[b], 1);
            check_layer(&s, LS_FLOAT64, batches[b], 1);
        }
    }
}

/* Large enough for several panels of terms and of rows in each pass; weights whose rows compete for a cache's places; groups of
 * blocks that are full and not. */
static void check_linear_panels(void) {
    static const struct {
        size_t in, out, batch;
    } cases[] = {{1100, 130, 66}, {130, 900, 18}, {1024, 40, 50}, {3, 2, 401}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_conv_shape s = {cases[i].in, 1, 1, cases[i].out, 1, 1, 1, 0};
        check_layer(&s, LS_FLOAT32, cases[i].batch, 1);
        check_layer(&s, LS_FLOAT64, cases[i].batch, 1);
    }
}

static void test_conv_odd_shapes(void **state) {
    (void)state;
    for_engines(check_odd_shapes);
}

static void test_conv_large_shapes(void **state) {
    (void)state;
    for_engines(check_large_shapes);
}

static void test_linear(void **state) {
    (void)state;
    for_engines(check_linear);
    for_engines(check_linear_panels);
}

/* An empty batch has the gradient zero, and nothing else to write. */
static void check_empty_batch(void) {
    const ls_conv_shape s = {2, 4, 4, 3, 3, 3, 1, 1};
    for (size_t d = 0; d < 2; d++) {
        ls_dtype dtype = value_dtypes[d];
        tensors t = tensors_make(&s, dtype, 0);
        ls_math *math = NULL;
        layer l = {NULL, NULL};
        assert_int_equal(LS_OK, ls_math_open(0, &math));
        assert_int_equal(LS_OK, ls_conv_open(math, &s, dtype, 4, &l.conv));
        layer_forward(l, 0, t.dev_x, t.dev_w, t.dev_bias, t.dev_y);
        layer_backward(l, 0, t.dev_x, t.dev_w, t.dev_dy, t.dev_dx, t.dev_dw, t.dev_db);
        double *dw = host_values(dtype, t.dev_dw, shape_sizes(&s).w);
        double *db = host_values(dtype, t.dev_db, s.out_channels);
        for (size_t i = 0; i < shape_sizes(&s).w; i++) {
            assert_true(dw[i] == 0.0);
        }
        for (size_t i = 0; i < s.out_channels; i++) {
            assert_true(db[i] == 0.0);
        }
        free(dw);
        free(db);
        ls_conv_close(l.conv);
        ls_math_close(math);
        tensors_free(&t);
    }
}

static void test_empty_batch(void **state) {
    (void)state;
    for_engines(check_empty_batch);
}

/* Two runs of the same numbers give the same bits. */
static void check_deterministic(void) {
    const ls_conv_shape s = {3, 32, 32, 16, 3, 3, 1, 1};
    tensors t = tensors_make(&s, LS_FLOAT32, 33);
    ls_math *math = NULL;
    layer l = {NULL, NULL};
    double *dw[2];
    assert_int_equal(LS_OK, ls_math_open(0, &math));
    assert_int_equal(LS_OK, ls_conv_open(math, &s, LS_FLOAT32, 64, &l.conv));
    for (int run = 0; run < 2; run++) {
        layer_backward(l, 33, t.dev_x, t.dev_w, t.dev_dy, t.dev_dx, t.dev_dw, t.dev_db);
        dw[run] = host_values(LS_FLOAT32, t.dev_dw, shape_sizes(&s).w);
    }
    assert_memory_equal(dw[0], dw[1], shape_sizes(&s).w * sizeof(double));
    free(dw[0]);
    free(dw[1]);
    ls_conv_close(l.conv);
    ls_math_close(math);
    tensors_free(&t);
}

static void test_deterministic(void **state) {
    (void)state;
    for_engines(check_deterministic);
}

/* The names of modes, both ways. */
static void test_modes(void **state) {
    (void)state;
    const ls_math_mode modes[] = {LS_MATH_EXACT, LS_MATH_FAST, LS_MATH_IM2COL};
    for (size_t i = 0; i < 3; i++) {
        ls_math_mode found = LS_MATH_EXACT;
        assert_true(ls_math_mode_find(ls_math_mode_name(modes[i]), &found));
        assert_int_equal(found, modes[i]);
    }
    ls_math_mode kept = LS_MATH_FAST;
    assert_false(ls_math_mode_find("tf32", &kept));
    assert_int_equal(kept, LS_MATH_FAST);
}

static void test_refused(void **state) {
    (void)state;
    ls_math *math = NULL;
    ls_conv *conv = NULL;
    ls_linear *linear = NULL;
    assert_int_equal(LS_OK, ls_math_open(0, &math));
    const ls_conv_shape bad[] = {{0, 4, 4, 3, 3, 3, 1, 0}, {1, 4, 4, 3, 5, 3, 1, 0}, {1, 4, 4, 3, 3, 3, 0, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(LS_BAD_INPUT, ls_conv_open(math, &bad[i], LS_FLOAT32, 4, &conv));
        assert_null(conv);
    }
    assert_int_equal(LS_BAD_INPUT, ls_linear_open(math, 0, 3, LS_FLOAT32, 4, &linear));
    assert_null(linear);
    assert_int_equal(LS_OK, ls_linear_open(math, 2, 3, LS_FLOAT32, 4, &linear));
    assert_int_equal(LS_BAD_INPUT, ls_linear_forward(linear, 5, NULL, NULL, NULL, NULL));
    ls_linear_close(linear);
    ls_math_close(math);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv_odd_shapes), cmocka_unit_test(test_conv_large_shapes), cmocka_unit_test(test_linear),
        cmocka_unit_test(test_empty_batch),     cmocka_unit_test(test_deterministic),     cmocka_unit_test(test_modes),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
