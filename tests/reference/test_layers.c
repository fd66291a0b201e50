/* Average pooling and batch normalisation on the device: values of PyTorch, double references on odd batches, what lies in
 * unused lanes. */
#include "tests/reference/layer_bench.h"

#include "tests/reference/golden/layers.h"

/* Average pooling. */

static ls_layer pool_layer(size_t channels, size_t height, size_t width, size_t kernel, size_t stride) {
    return (ls_layer){.kind = LS_LAYER_AVGPOOL,
                      .name = "pool",
                      .in = {channels, height, width},
                      .out = {channels, (height - kernel) / stride + 1, (width - kernel) / stride + 1},
                      .kernel = kernel,
                      .stride = stride};
}

/* A mean of k values of at most 2.25 takes k roundings on each side; 4 windows of 9 in the gradient. */
static void check_pool_golden(const ls_layer *layer, size_t batch, const double *x, const double *dy, const double *y,
                              const double *dx) {
    for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
        bench b;
        bench_open(&b, layer, dtype, batch);
        forward(&b, x);
        backward(&b, dy);
        assert_values("avgpool forward", dtype, result(&b, b.pass.y, b.out), y, batch * b.out, 20, 2.25);
        assert_values("avgpool backward", dtype, result(&b, b.pass.dx, b.in), dx, batch * b.in, 80, 2.25);
        bench_close(&b);
    }
}

static void test_avgpool_equals_torch(void **state) {
    (void)state;
    ls_layer apart = pool_layer(2, 3, 5, 2, 2);
    check_pool_golden(&apart, 2, pool2_x, pool2_dy, pool2_y, pool2_dx);
    ls_layer overlapping = pool_layer(2, 6, 5, 3, 2);
    check_pool_golden(&overlapping, 1, pool3_x, pool3_dy, pool3_y, pool3_dx);
}

/* The definition, one window after the other. */
static void pool_reference(const ls_layer *l, size_t batch, const double *x, const double *dy, double *y, double *dx) {
    size_t planes = batch * l->in.channels;
    double share = 1 / (double)(l->kernel * l->kernel);
    for (size_t plane = 0; plane < planes; plane++) {
        for (size_t out = 0; out < l->out.height * l->out.width; out++) {
            size_t to = plane * l->out.height * l->out.width + out;
            for (size_t k = 0; k < l->kernel * l->kernel; k++) {
                size_t row = out / l->out.width * l->stride + k / l->kernel;
                size_t column = out % l->out.width * l->stride + k % l->kernel;
                size_t from = (plane * l->in.height + row) * l->in.width + column;
                y[to] += x[from] * share;
                dx[from] += dy[to] * share;
            }
        }
    }
}

static void test_avgpool_on_odd_batches(void **state) {
    (void)state;
    const size_t windows[][2] = {{2, 2}, {3, 1}, {2, 3}, {7, 7}};
    for (size_t i = 0; i < ODD_BATCHES * 4; i++) {
        ls_layer layer = pool_layer(3, 8, 7, windows[i % 4][0], windows[i % 4][1]);
        ls_dtype dtype = i % 3 == 0 ? LS_FLOAT64 : LS_FLOAT32;
        size_t batch = odd_batches[i / 4];
        bench b;
        bench_open(&b, &layer, dtype, batch);
        double *x = host_doubles(batch * b.in);
        double *dy = host_doubles(batch * b.out);
        double *y = host_doubles(batch * b.out);
        double *dx = host_doubles(batch * b.in);
        fill_random(x, batch * b.in, i);
        fill_random(dy, batch * b.out, i + 100);
        pool_reference(&layer, batch, x, dy, y, dx);
        forward(&b, x);
        backward(&b, dy);
        /* 49 values of at most 1, and 9 windows of 9: each passes at most 50 roundings on each side */
        assert_values("avgpool forward", dtype, result(&b, b.pass.y, b.out), y, batch * b.out, 100, 1);
        assert_values("avgpool backward", dtype, result(&b, b.pass.dx, b.in), dx, batch * b.in, 100, 1);
        free(x);
        free(dy);
        free(y);
        free(dx);
        bench_close(&b);
    }
}

/* Batch normalisation. */

typedef struct norm_values {
    const double *weight, *bias, *running_mean, *running_var;
} norm_values;

static void norm_open(bench *b, const ls_layer *layer, ls_dtype dtype, size_t batch, const norm_values *v) {
    size_t channels = layer->in.channels;
    int64_t none = 0;
    bench_open(b, layer, dtype, batch);
    b->params[0] = device_values(dtype, v->weight, channels);
    b->params[1] = device_values(dtype, v->bias, channels);
    b->params[2] = device_unwritten(dtype, channels);
    b->params[3] = device_unwritten(dtype, channels);
    b->running[0] = device_values(dtype, v->running_mean, channels);
    b->running[1] = device_values(dtype, v->running_var, channels);
    b->pass.weight = b->params[0];
    b->pass.bias = b->params[1];
    b->pass.dweight = b->params[2];
    b->pass.dbias = b->params[3];
    b->pass.running_mean = b->running[0];
    b->pass.running_var = b->running[1];
    b->pass.tracked = device_bytes(&none, sizeof none);
}

typedef struct norm_golden {
    const double *first, *x, *dy, *weight, *bias, *y, *dx, *dweight, *dbias, *mean, *var, *evaluated;
} norm_golden;

/* Everything is computed in double and rounded once to dtype; sums of n <= 36 terms of at most 2.25*3 in double add 36
 * roundings of 2^-53, on values that a division by a standard deviation above 0.5 at most doubles: 200 roundings of the
 * dtype, for float32 nearly all of it room. */
static void check_norm_golden(const ls_layer *layer, size_t batch, const norm_golden *g) {
    const double zeros[3] = {0, 0, 0};
    const double ones[3] = {1, 1, 1};
    for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
        double factor = dtype == LS_FLOAT64 ? 200 : 4;
        bench b;
        norm_open(&b, layer, dtype, batch, &(norm_values){g->weight, g->bias, zeros, ones});
        size_t channels = layer->in.channels;
        forward(&b, g->first);
        forward(&b, g->x);
        assert_unused_lanes_zero(dtype, b.pass.y, batch, b.out);
        backward(&b, g->dy);
        assert_values("y", dtype, result(&b, b.pass.y, b.out), g->y, batch * b.out, factor, 1);
        assert_values("dx", dtype, result(&b, b.pass.dx, b.in), g->dx, batch * b.in, factor, 1);
        assert_values("dweight", dtype, host_values(dtype, b.params[2], channels), g->dweight, channels, factor, 8);
        assert_values("dbias", dtype, host_values(dtype, b.params[3], channels), g->dbias, channels, factor, 8);
        assert_values("mean", dtype, host_values(dtype, b.running[0], channels), g->mean, channels, factor, 1);
        assert_values("var", dtype, host_values(dtype, b.running[1], channels), g->var, channels, factor, 1);
        int64_t tracked = 0;
        CUDA_OK(cudaMemcpy(&tracked, b.pass.tracked, sizeof tracked, cudaMemcpyDeviceToHost));
        assert_int_equal(tracked, 2);
        b.pass.training = false;
        forward(&b, g->x);
        assert_values("evaluated", dtype, result(&b, b.pass.y, b.out), g->evaluated, batch * b.out, 4 * factor, 1);
        assert_values("mean after evaluation", dtype, host_values(dtype, b.running[0], channels), g->mean, channels,
                      factor, 1);
        bench_close(&b);
    }
}

static ls_layer norm_layer(size_t channels, size_t height, size_t width, double eps, double momentum) {
    return (ls_layer){.kind = LS_LAYER_BATCHNORM,
                      .name = "norm",
                      .in = {channels, height, width},
                      .out = {channels, height, width},
                      .eps = eps,
                      .momentum = momentum};
}

static void test_batchnorm_equals_torch(void **state) {
    (void)state;
    ls_layer images = norm_layer(2, 2, 3, 1e-5, 0.1);
    check_norm_golden(&images, 3,
                      &(norm_golden){norm2d_first, norm2d_x, norm2d_dy, norm2d_weight, norm2d_bias, norm2d_y, norm2d_dx,
                                     norm2d_dweight, norm2d_dbias, norm2d_running_mean, norm2d_running_var,
                                     norm2d_evaluated});
    ls_layer features = norm_layer(3, 1, 1, 1e-3, 0.25);
    check_norm_golden(&features, 5,
                      &(norm_golden){norm1d_first, norm1d_x, norm1d_dy, norm1d_weight, norm1d_bias, norm1d_y, norm1d_dx,
                                     norm1d_dweight, norm1d_dbias, norm1d_running_mean, norm1d_running_var,
                                     norm1d_evaluated});
}

/* x = 1..4: biased variance 1.25, unbiased 5/3. */
static void test_running_variance_is_unbiased(void **state) {
    (void)state;
    const double x[] = {1, 2, 3, 4};
    const double one = 1;
    const double zero = 0;
    ls_layer layer = norm_layer(1, 1, 1, 1e-5, 0.1);
    bench b;
    norm_open(&b, &layer, LS_FLOAT64, 4, &(norm_values){&one, &zero, &zero, &one});
    forward(&b, x);
    const double mean = 0.25;
    const double var = 0.9 + 0.1 * 5 / 3;
    assert_values("mean", LS_FLOAT64, host_values(LS_FLOAT64, b.running[0], 1), &mean, 1, 8, 0);
    assert_values("var", LS_FLOAT64, host_values(LS_FLOAT64, b.running[1], 1), &var, 1, 8, 0);
    bench_close(&b);
}

/* The definition: normalised columns, and the gradient through mean and variance term by term. */
static void norm_reference(size_t batch, size_t channels, size_t plane, const double *x, const double *dy, double *y,
                           double *dx) {
    double n = (double)(batch * plane);
    for (size_t c = 0; c < channels; c++) {
        double mean = 0;
        double var = 0;
        double sum = 0;
        double sum_xhat = 0;
#define EACH(at) \
    for (size_t i_ = 0, at = c * plane; i_ < batch * plane; i_++, at = (i_ / plane * channels + c) * plane + i_ % plane)
        EACH(at) {
            mean += x[at] / n;
        }
        EACH(at) {
            var += (x[at] - mean) * (x[at] - mean) / n;
        }
        double inverse = 1 / sqrt(var + 1e-5);
        EACH(at) {
            y[at] = (x[at] - mean) * inverse * 1.5 - 0.25;
            sum += dy[at];
            sum_xhat += dy[at] * (x[at] - mean) * inverse;
        }
        EACH(at) {
            dx[at] = 1.5 * inverse * (dy[at] - sum / n - (x[at] - mean) * inverse * sum_xhat / n);
        }
#undef EACH
    }
}

/* Statistics must not count the unused lanes of the last block: x has a mean far from what lies there. n <= 198 terms of at
 * most 4 in double: 400 roundings of 2^-53. */
static void test_batchnorm_on_odd_batches(void **state) {
    (void)state;
    const double weight[] = {1.5, 1.5, 1.5};
    const double bias[] = {-0.25, -0.25, -0.25};
    const double zeros[] = {0, 0, 0};
    const double ones[] = {1, 1, 1};
    for (size_t i = 0; i < 2 * ODD_BATCHES; i++) {
        size_t batch = odd_batches[i / 2];
        ls_dtype dtype = i % 2 == 0 ? LS_FLOAT32 : LS_FLOAT64;
        ls_layer layer = norm_layer(3, 2, 3, 1e-5, 0.1);
        bench b;
        norm_open(&b, &layer, dtype, batch, &(norm_values){weight, bias, zeros, ones});
        size_t count = batch * b.in;
        double *x = host_doubles(count);
        double *dy = host_doubles(count);
        double *y = host_doubles(count);
        double *dx = host_doubles(count);
        fill_random(x, count, i);
        fill_random(dy, count, i + 100);
        for (size_t k = 0; k < count; k++) {
            x[k] = 3 + (double)(float)(x[k] / 4);
            x[k] = (double)(float)x[k];
        }
        norm_reference(batch, 3, 6, x, dy, y, dx);
        forward(&b, x);
        assert_unused_lanes_zero(dtype, b.pass.y, batch, b.out);
        backward(&b, dy);
        double factor = dtype == LS_FLOAT64 ? 4000 : 4; /* 400, on deviations a tenth of x */
        assert_values("y", dtype, result(&b, b.pass.y, b.out), y, count, factor, 4);
        assert_values("dx", dtype, result(&b, b.pass.dx, b.in), dx, count, factor, 16);
        free(x);
        free(dy);
        free(y);
        free(dx);
        bench_close(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_avgpool_equals_torch),     cmocka_unit_test(test_avgpool_on_odd_batches),
        cmocka_unit_test(test_batchnorm_equals_torch),   cmocka_unit_test(test_running_variance_is_unbiased),
        cmocka_unit_test(test_batchnorm_on_odd_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
