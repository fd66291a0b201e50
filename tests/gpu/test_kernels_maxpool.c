/* Max-pooling: values, indices and gradients against plain loops; ties, NaN and infinities. */
#include "tests/gpu/device_values.h"

typedef struct pool_case {
    size_t channels, height, width, kernel, stride;
} pool_case;

static size_t out_size(size_t size, const pool_case *p) {
    return (size - p->kernel) / p->stride + 1;
}

/* What a pooling of a batch gives, sample-major. */
typedef struct pooled {
    double *y, *dx;
    uint8_t *index;
} pooled;

static void pooled_free(pooled *p) {
    free(p->y);
    free(p->dx);
    free(p->index);
}

/* PyTorch's rule (ATen/native/cpu/MaxPoolKernel.cpp): row by row, taken when larger or NaN. */
static pooled reference_pool(const pool_case *p, size_t planes, const double *x, const double *dy) {
    size_t oh = out_size(p->height, p), ow = out_size(p->width, p);
    pooled r = {host_doubles(planes * oh * ow), host_doubles(planes * p->height * p->width),
                host_alloc(planes * oh * ow, 1)};
    for (size_t out = 0; out < planes * oh * ow; out++) {
        size_t corner = (out / (oh * ow) * p->height + out / ow % oh * p->stride) * p->width + out % ow * p->stride;
        double top = -INFINITY;
        size_t best = 0;
        for (size_t k = 0; k < p->kernel * p->kernel; k++) {
            double value = x[corner + k / p->kernel * p->width + k % p->kernel];
            if (value > top || isnan(value)) {
                top = value;
                best = k;
            }
        }
        r.y[out] = top;
        r.index[out] = (uint8_t)best;
        r.dx[corner + best / p->kernel * p->width + best % p->kernel] += dy[out];
    }
    return r;
}

static pooled device_pool(ls_dtype dtype, const pool_case *p, size_t batch, const double *x, const double *dy) {
    size_t in = p->channels * p->height * p->width;
    size_t out = p->channels * out_size(p->height, p) * out_size(p->width, p);
    void *dev_x = device_activation(dtype, x, batch, in), *dev_dy = device_activation(dtype, dy, batch, out);
    void *dev_y = device_unwritten(dtype, ls_activation_count(batch, out));
    void *dev_dx = device_unwritten(dtype, ls_activation_count(batch, in));
    uint8_t *index = device_alloc(ls_activation_count(batch, out)), *plain = device_alloc(batch * out);
    CUDA_OK(ls_kernel_maxpool_forward(0, dtype, ls_lanes(), batch, p->channels, p->height, p->width, p->kernel,
                                      p->stride, dev_x, dev_y, index));
    CUDA_OK(ls_kernel_maxpool_backward(0, dtype, ls_lanes(), batch, p->channels, p->height, p->width, p->kernel,
                                       p->stride, dev_dy, index, dev_dx));
    CUDA_OK(ls_kernel_from_lanes(0, 1, ls_lanes(), batch, out, index, plain));
    pooled r = {host_activation(dtype, dev_y, batch, out), host_activation(dtype, dev_dx, batch, in),
                host_alloc(batch * out, 1)};
    CUDA_OK(cudaMemcpy(r.index, plain, batch * out, cudaMemcpyDeviceToHost));
    assert_unused_lanes_zero(dtype, dev_dx, batch, in);
    void *all[] = {dev_x, dev_dy, dev_y, dev_dx, index, plain};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        device_free(all[i]);
    }
    return r;
}

/* Values and indices are exact. A gradient is a sum of at most (kernel/stride rounded up)^2 terms of at most 1. */
static void check_pool(ls_dtype dtype, const pool_case *p, size_t batch, const double *x, const double *dy) {
    size_t in = p->channels * p->height * p->width;
    size_t out = p->channels * out_size(p->height, p) * out_size(p->width, p);
    size_t overlap = (p->kernel + p->stride - 1) / p->stride;
    pooled expected = reference_pool(p, batch * p->channels, x, dy);
    pooled got = device_pool(dtype, p, batch, x, dy);
    for (size_t i = 0; i < batch * out; i++) {
        assert_true(got.y[i] == expected.y[i] || (isnan(got.y[i]) && isnan(expected.y[i])));
    }
    assert_memory_equal(got.index, expected.index, batch * out);
    for (size_t i = 0; i < batch * in; i++) {
        double bound = overlap == 1 ? 0 : sum_bound(dtype, overlap * overlap, (double)(overlap * overlap));
        assert_true(fabs(got.dx[i] - expected.dx[i]) <= bound);
    }
    pooled_free(&expected);
    pooled_free(&got);
}

static void test_shapes(void **state) {
    (void)state;
    static const pool_case cases[] = {
        {1, 4, 4, 2, 2}, {10, 24, 24, 2, 2}, {3, 7, 5, 2, 2}, {3, 9, 7, 3, 2},    {2, 6, 8, 3, 3},
        {1, 5, 5, 2, 1}, {3, 5, 7, 1, 1},    {2, 9, 9, 2, 3}, {1, 15, 17, 15, 1}, {1, 7, 6, 4, 2},
    };
    static const size_t batches[] = {1, 5, 16, 17, 33};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const pool_case *p = &cases[c];
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            size_t in = batches[b] * p->channels * p->height * p->width;
            size_t out = batches[b] * p->channels * out_size(p->height, p) * out_size(p->width, p);
            double *x = host_doubles(in), *dy = host_doubles(out);
            fill_random(x, in, 12);
            fill_random(dy, out, 13);
            for (size_t i = 0; i < in; i++) {
                x[i] = rint(x[i] * 4) / 4; /* few different values: many ties */
            }
            check_pool(LS_FLOAT32, p, batches[b], x, dy);
            check_pool(LS_FLOAT64, p, batches[b], x, dy);
            free(x);
            free(dy);
        }
    }
}

/* Ties give the gradient to the first; -inf alone gives the first; NaN wins over everything. */
static void test_ties_and_special_values(void **state) {
    (void)state;
    static const struct {
        double x[4];
        uint8_t index;
    } cases[] = {
        {{0, 0, 0, 0}, 0},
        {{1, 2, 2, 0}, 1},
        {{-0.0, 0.0, -1, -1}, 0},
        {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, 0},
        {{1, NAN, 3, INFINITY}, 1},
        {{NAN, 5, NAN, 7}, 2},
        {{INFINITY, 1, INFINITY, 2}, 0},
    };
    const pool_case p = {1, 2, 2, 2, 2};
    const double dy = 3;
    for (size_t d = 0; d < 2; d++) {
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            pooled got = device_pool(value_dtypes[d], &p, 1, cases[c].x, &dy);
            assert_int_equal(got.index[0], cases[c].index);
            for (size_t i = 0; i < 4; i++) {
                assert_true(got.dx[i] == (i == cases[c].index ? dy : 0.0));
            }
            double top = cases[c].x[cases[c].index];
            assert_true(got.y[0] == top || (isnan(got.y[0]) && isnan(top)));
            pooled_free(&got);
        }
    }
}

static void test_empty_and_refused(void **state) {
    (void)state;
    size_t lanes = ls_lanes();
    CUDA_OK(ls_kernel_maxpool_forward(0, LS_FLOAT32, lanes, 0, 3, 4, 4, 2, 2, NULL, NULL, NULL));
    CUDA_OK(ls_kernel_maxpool_backward(0, LS_FLOAT32, lanes, 0, 3, 4, 4, 2, 2, NULL, NULL, NULL));
    static const pool_case refused[] = {{1, 4, 4, 0, 2}, {1, 4, 4, 2, 0}, {1, 4, 4, 5, 1}, {1, 20, 20, 16, 1}};
    for (size_t c = 0; c < sizeof refused / sizeof *refused; c++) {
        const pool_case *p = &refused[c];
        assert_int_equal(cudaErrorInvalidValue,
                         ls_kernel_maxpool_forward(0, LS_FLOAT32, lanes, 1, p->channels, p->height, p->width, p->kernel,
                                                   p->stride, NULL, NULL, NULL));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_ties_and_special_values),
        cmocka_unit_test(test_empty_and_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
