/* The kernels that treat every element alike: relu, sign, scale, add, SGD; and the sum. */
#include "tests/gpu/device_values.h"

static const size_t counts[] = {0, 1, 7, 16, 33, 1000};
enum { COUNTS = sizeof counts / sizeof *counts };

/* NaN equals NaN; zeros of either sign are equal. */
static void assert_same(const double *got, const double *expected, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!(got[i] == expected[i] || (isnan(got[i]) && isnan(expected[i])))) {
            fail_msg("element %zu: got %.17g, expected %.17g", i, got[i], expected[i]);
        }
    }
}

static const double special[] = {-1.5, -0.0, 0.0, 2.5, NAN, INFINITY, -INFINITY, 0x1p-126, -0x1p-126};
enum { SPECIAL = sizeof special / sizeof *special };

static void test_relu_special_values(void **state) {
    (void)state;
    const double forward[] = {0, 0, 0, 2.5, NAN, INFINITY, 0, 0x1p-126, 0};
    const double dy[SPECIAL] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const double backward[] = {0, 0, 0, 4, 5, 6, 0, 8, 0}; /* relu'(0) = relu'(-0) = 0; a NaN passes its gradient */
    for (size_t d = 0; d < 2; d++) {
        ls_dtype dtype = value_dtypes[d];
        void *x = device_values(dtype, special, SPECIAL);
        void *gradient = device_values(dtype, dy, SPECIAL);
        CUDA_OK(ls_kernel_relu_forward(0, dtype, SPECIAL, x, x)); /* in place */
        CUDA_OK(ls_kernel_relu_backward(0, dtype, SPECIAL, x, gradient, gradient));
        double *got_y = host_values(dtype, x, SPECIAL);
        double *got_dx = host_values(dtype, gradient, SPECIAL);
        assert_same(got_y, forward, SPECIAL);
        assert_same(got_dx, backward, SPECIAL);
        free(got_y);
        free(got_dx);
        device_free(x);
        device_free(gradient);
    }
}

/* The input of a ReLU, rather than its output, gives the same gradient. */
static void test_relu_backward_signed_zero(void **state) {
    (void)state;
    const double y[] = {0.0, -0.0, 1.0};
    const double dy[] = {3, 3, 3};
    const double expected[] = {0, 0, 3};
    void *dev_y = device_values(LS_FLOAT32, y, 3);
    void *dev_dy = device_values(LS_FLOAT32, dy, 3);
    void *dev_dx = device_unwritten(LS_FLOAT32, 3);
    CUDA_OK(ls_kernel_relu_backward(0, LS_FLOAT32, 3, dev_y, dev_dy, dev_dx));
    double *got = host_values(LS_FLOAT32, dev_dx, 3);
    assert_same(got, expected, 3);
    free(got);
    device_free(dev_y);
    device_free(dev_dy);
    device_free(dev_dx);
}

static void test_positive(void **state) {
    (void)state;
    const uint8_t expected[] = {0, 0, 0, 1, 0, 1, 0, 1, 0};
    for (size_t d = 0; d < 2; d++) {
        void *x = device_values(value_dtypes[d], special, SPECIAL);
        uint8_t got[SPECIAL];
        uint8_t *positive = device_alloc(sizeof got);
        CUDA_OK(ls_kernel_positive(0, value_dtypes[d], SPECIAL, x, positive));
        CUDA_OK(cudaDeviceSynchronize());
        CUDA_OK(cudaMemcpy(got, positive, sizeof got, cudaMemcpyDeviceToHost));
        assert_memory_equal(got, expected, sizeof got);
        device_free(x);
        device_free(positive);
    }
}

/* Every count: elements up to count are computed, the one after is not touched. */
static void check_arithmetic(ls_dtype dtype, size_t count) {
    double *x = host_doubles(count + 1), *y = host_doubles(count + 1), *scaled = host_doubles(count + 1);
    fill_random(x, count + 1, 5);
    fill_random(y, count + 1, 6);
    void *dev_x = device_values(dtype, x, count + 1);
    void *dev_y = device_values(dtype, y, count + 1);
    CUDA_OK(ls_kernel_scale(0, dtype, count, 0.1, dev_y));
    for (size_t i = 0; i <= count; i++) {
        double product = dtype == LS_FLOAT64 ? y[i] * 0.1 : (double)((float)y[i] * 0.1f);
        scaled[i] = i < count ? product : y[i];
    }
    double *got = host_values(dtype, dev_y, count + 1);
    assert_same(got, scaled, count + 1); /* one rounding: exact */
    free(got);
    CUDA_OK(ls_kernel_add(0, dtype, count, dev_x, dev_y));
    for (size_t i = 0; i < count; i++) {
        scaled[i] = dtype == LS_FLOAT64 ? scaled[i] + x[i] : (double)((float)scaled[i] + (float)x[i]);
    }
    got = host_values(dtype, dev_y, count + 1);
    assert_same(got, scaled, count + 1);
    free(got);
    free(x);
    free(y);
    free(scaled);
    device_free(dev_x);
    device_free(dev_y);
}

static void test_scale_and_add(void **state) {
    (void)state;
    for (size_t c = 0; c < COUNTS; c++) {
        check_arithmetic(LS_FLOAT32, counts[c]);
        check_arithmetic(LS_FLOAT64, counts[c]);
    }
}

static void test_relu_counts(void **state) {
    (void)state;
    for (size_t c = 0; c < COUNTS; c++) {
        size_t count = counts[c];
        double *x = host_doubles(count + 1), *expected = host_doubles(count + 1);
        fill_random(x, count + 1, 7);
        void *dev_x = device_values(LS_FLOAT32, x, count + 1);
        CUDA_OK(ls_kernel_relu_forward(0, LS_FLOAT32, count, dev_x, dev_x));
        for (size_t i = 0; i <= count; i++) {
            expected[i] = i < count && x[i] < 0 ? 0 : x[i];
        }
        double *got = host_values(LS_FLOAT32, dev_x, count + 1);
        assert_same(got, expected, count + 1);
        free(got);
        free(x);
        free(expected);
        device_free(dev_x);
    }
}

/* Added in double: for float32 values of up to 2^20 elements the sum has at most count-1 roundings in double. */
static void check_sum(ls_dtype dtype, size_t count) {
    double *values = host_doubles(count);
    fill_random(values, count, 11);
    double exact = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        exact += values[i];
        size += fabs(values[i]);
    }
    void *dev = device_values(dtype, values, count);
    double junk = NAN;
    double *sum = device_bytes(&junk, sizeof junk);
    CUDA_OK(ls_kernel_sum(0, dtype, count, dev, sum));
    double *got = host_values(LS_FLOAT64, sum, 1);
    assert_true(fabs(*got - exact) <= 2 * (double)count * 0x1p-53 * size);
    free(got);
    free(values);
    device_free(dev);
    device_free(sum);
}

static void test_sum(void **state) {
    (void)state;
    for (size_t c = 0; c < COUNTS; c++) {
        check_sum(LS_FLOAT32, counts[c]);
        check_sum(LS_FLOAT64, counts[c]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relu_special_values), cmocka_unit_test(test_relu_backward_signed_zero),
        cmocka_unit_test(test_relu_counts),         cmocka_unit_test(test_positive),
        cmocka_unit_test(test_scale_and_add),       cmocka_unit_test(test_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
