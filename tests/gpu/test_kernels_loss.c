/* log-softmax, cross-entropy and accuracy against double precision and PyTorch's values. */
#include "tests/gpu/device_values.h"

static const size_t batches[] = {1, 5, 16, 17, 33};
static const size_t class_counts[] = {1, 3, 10};
enum { BATCHES = sizeof batches / sizeof *batches, CLASS_COUNTS = sizeof class_counts / sizeof *class_counts };

/* log sum_c exp(z_c) in double. */
static double log_sum_exp(const double *z, size_t classes) {
    double top = z[0], sum = 0;
    for (size_t c = 1; c < classes; c++) {
        top = fmax(top, z[c]);
    }
    for (size_t c = 0; c < classes; c++) {
        sum += exp(z[c] - top);
    }
    return top + log(sum);
}

/* How far log sum exp and z - log sum exp may lie off, for |z_c| <= size. In units of u: z - top is one rounding of at
 * most 2 size, and an error e there turns exp(z - top) by the factor 1 + e, so log sum exp by at most 2 size as well; exp
 * and log of the CUDA and C libraries err by at most 2 ulp = 4 u (CUDA C++ Programming Guide, mathematical functions),
 * the sum by classes - 1; log(sum) <= log(classes) is rounded, and two differences of at most 2 size + log(classes). The
 * reference errs alike in double, which the factor 2 covers. */
static double softmax_bound(ls_dtype dtype, double size, size_t classes) {
    double log_classes = log((double)classes) + 1;
    double units = 2 * size + 4 + (double)classes + 5 * log_classes + 2 * (2 * size + log_classes) + 2 * size;
    return 2 * units * unit_roundoff(dtype);
}

static double *random_logits(size_t count, double size, uint64_t seed) {
    double *z = host_doubles(count);
    fill_random(z, count, seed);
    for (size_t i = 0; i < count; i++) {
        z[i] *= size; /* a power of two: still a float32 */
    }
    return z;
}

static void check_log_softmax(ls_dtype dtype, size_t batch, size_t classes, double size) {
    size_t count = batch * classes;
    double *x = random_logits(count, size, 14), *dy = random_logits(count, 1, 15);
    void *dev_x = device_activation(dtype, x, batch, classes), *dev_dy = device_activation(dtype, dy, batch, classes);
    void *dev_y = device_unwritten(dtype, ls_activation_count(batch, classes));
    void *dev_dx = device_unwritten(dtype, ls_activation_count(batch, classes));
    CUDA_OK(ls_kernel_log_softmax_forward(0, dtype, ls_lanes(), batch, classes, dev_x, dev_y));
    CUDA_OK(ls_kernel_log_softmax_backward(0, dtype, ls_lanes(), batch, classes, dev_y, dev_dy, dev_dx));
    double *y = host_activation(dtype, dev_y, batch, classes), *dx = host_activation(dtype, dev_dx, batch, classes);
    double bound = softmax_bound(dtype, size, classes);
    for (size_t n = 0; n < batch; n++) {
        double lse = log_sum_exp(x + n * classes, classes), sum = 0;
        for (size_t c = 0; c < classes; c++) {
            sum += dy[n * classes + c];
        }
        for (size_t i = n * classes; i < (n + 1) * classes; i++) {
            double softmax = exp(x[i] - lse);
            assert_true(fabs(y[i] - (x[i] - lse)) <= bound);
            /* exp(y) carries y's error as a factor; the sum of dy, a product and a difference of numbers of at most
             * `classes` follow */
            double rounding = ((double)classes + 8) * (double)classes * 2 * unit_roundoff(dtype);
            assert_true(fabs(dx[i] - (dy[i] - softmax * sum)) <= bound * softmax * (double)classes + rounding);
        }
    }
    assert_unused_lanes_zero(dtype, dev_dx, batch, classes);
    free(x);
    free(dy);
    free(y);
    free(dx);
    void *all[] = {dev_x, dev_dy, dev_y, dev_dx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        device_free(all[i]);
    }
}

static void test_log_softmax(void **state) {
    (void)state;
    for (size_t b = 0; b < BATCHES; b++) {
        for (size_t c = 0; c < CLASS_COUNTS; c++) {
            for (size_t d = 0; d < 2; d++) {
                check_log_softmax(value_dtypes[d], batches[b], class_counts[c], 4);
                check_log_softmax(value_dtypes[d], batches[b], class_counts[c], 512); /* exp alone would overflow */
            }
        }
    }
}

/* Losses and the gradient of one batch. */
typedef struct outcome {
    double *losses, *dlogits;
} outcome;

static outcome cross_entropy(ls_dtype dtype, size_t batch, size_t classes, const double *z, const int32_t *labels,
                             double denominator) {
    void *dev_z = device_activation(dtype, z, batch, classes);
    int32_t *dev_labels = device_bytes(labels, batch * sizeof *labels);
    void *losses = device_unwritten(dtype, batch), *alone = device_unwritten(dtype, batch);
    void *dlogits = device_unwritten(dtype, ls_activation_count(batch, classes));
    CUDA_OK(ls_kernel_cross_entropy(0, dtype, ls_lanes(), batch, classes, dev_z, dev_labels, 0, denominator, losses,
                                    dlogits));
    CUDA_OK(
        ls_kernel_cross_entropy(0, dtype, ls_lanes(), batch, classes, dev_z, dev_labels, 0, denominator, alone, NULL));
    outcome o = {host_values(dtype, losses, batch), host_activation(dtype, dlogits, batch, classes)};
    double *without = host_values(dtype, alone, batch);
    assert_memory_equal(without, o.losses, batch * sizeof *without);
    assert_unused_lanes_zero(dtype, dlogits, batch, classes);
    free(without);
    void *all[] = {dev_z, dev_labels, losses, alone, dlogits};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        device_free(all[i]);
    }
    return o;
}

static void outcome_free(outcome *o) {
    free(o->losses);
    free(o->dlogits);
}

/* torch.nn.CrossEntropyLoss: mean 1.06710744, sum 2.13421488 of these logits. */
static void test_cross_entropy_golden(void **state) {
    (void)state;
    const double z[] = {2, 0, -1, .5, 1.5, 0};
    const int32_t labels[] = {0, 2};
    for (size_t d = 0; d < 2; d++) {
        outcome o = cross_entropy(value_dtypes[d], 2, 3, z, labels, 2);
        /* two losses are added; PyTorch's values are float32 and carry the same error */
        double bound = 2 * (softmax_bound(value_dtypes[d], 2, 3) + softmax_bound(LS_FLOAT32, 2, 3));
        assert_true(fabs(o.losses[0] + o.losses[1] - 2.13421488) <= bound);
        assert_true(fabs((o.losses[0] + o.losses[1]) / 2 - 1.06710744) <= bound);
        outcome_free(&o);
    }
}

static void check_cross_entropy(ls_dtype dtype, size_t batch, size_t classes, double size) {
    double *z = random_logits(batch * classes, size, 16);
    int32_t *labels = host_alloc(batch, sizeof *labels);
    for (size_t n = 0; n < batch; n++) {
        labels[n] = (int32_t)(n * 7 % classes);
    }
    outcome o = cross_entropy(dtype, batch, classes, z, labels, 37);
    double bound = softmax_bound(dtype, size, classes);
    for (size_t n = 0; n < batch; n++) {
        double lse = log_sum_exp(z + n * classes, classes);
        assert_true(fabs(o.losses[n] - (lse - z[n * classes + (size_t)labels[n]])) <= bound);
        for (size_t c = 0; c < classes; c++) {
            double softmax = exp(z[n * classes + c] - lse);
            double expected = (softmax - (c == (size_t)labels[n] ? 1 : 0)) / 37;
            /* softmax carries the error of log sum exp as a factor; a quotient, a difference and a quotient follow */
            double allowed = (bound * softmax + 8 * unit_roundoff(dtype)) / 37;
            assert_true(fabs(o.dlogits[n * classes + c] - expected) <= allowed);
        }
    }
    outcome_free(&o);
    free(z);
    free(labels);
}

static void test_cross_entropy(void **state) {
    (void)state;
    for (size_t b = 0; b < BATCHES; b++) {
        for (size_t c = 0; c < CLASS_COUNTS; c++) {
            for (size_t d = 0; d < 2; d++) {
                check_cross_entropy(value_dtypes[d], batches[b], class_counts[c], 4);
                check_cross_entropy(value_dtypes[d], batches[b], class_counts[c], 512);
            }
        }
    }
}

/* A label that names no class cannot pass unseen, and spoils its own sample only. */
static void test_label_out_of_range(void **state) {
    (void)state;
    const double z[] = {1, 2, 3, 1, 2, 3, 1, 2, 3};
    const int32_t labels[] = {3, -1, 1};
    outcome o = cross_entropy(LS_FLOAT32, 3, 3, z, labels, 3);
    assert_true(isnan(o.losses[0]) && isnan(o.losses[1]) && isfinite(o.losses[2]));
    for (size_t c = 0; c < 3; c++) {
        assert_true(isnan(o.dlogits[c]) && isnan(o.dlogits[3 + c]) && isfinite(o.dlogits[6 + c]));
    }
    outcome_free(&o);
}

static void test_nan_logit(void **state) {
    (void)state;
    const double z[] = {1, NAN, 3, 0, 0, 0};
    const int32_t labels[] = {0, 1};
    outcome o = cross_entropy(LS_FLOAT64, 2, 3, z, labels, 2);
    assert_true(isnan(o.losses[0]) && isfinite(o.losses[1]));
    outcome_free(&o);
}

static void test_accuracy(void **state) {
    (void)state;
    enum { N = 19, CLASSES = 3 };
    double z[N * CLASSES];
    int32_t labels[N];
    uint8_t expected[N], got[N];
    for (size_t n = 0; n < N; n++) { /* the largest moves; in every fifth sample all are equal and the first counts */
        for (size_t c = 0; c < CLASSES; c++) {
            z[n * CLASSES + c] = n % 5 == 0 ? 1.0 : (c == n % CLASSES ? 2.0 : -1.0);
        }
        labels[n] = (int32_t)(n % 2 == 0 ? (n % 5 == 0 ? 0 : n % CLASSES) : (n % 5 == 0 ? 2 : (n + 1) % CLASSES));
        expected[n] = n % 2 == 0;
    }
    z[2 * CLASSES] = NAN; /* torch.argmax: NaN is the largest */
    labels[2] = 0;
    labels[4] = -1;
    expected[4] = 0;
    for (size_t d = 0; d < 2; d++) {
        void *dev_z = device_activation(value_dtypes[d], z, N, CLASSES);
        int32_t *dev_labels = device_bytes(labels, sizeof labels);
        uint8_t *correct = device_alloc(N);
        CUDA_OK(ls_kernel_accuracy(0, value_dtypes[d], ls_lanes(), N, CLASSES, dev_z, dev_labels, correct));
        CUDA_OK(cudaDeviceSynchronize());
        CUDA_OK(cudaMemcpy(got, correct, N, cudaMemcpyDeviceToHost));
        assert_memory_equal(got, expected, N);
        device_free(dev_z);
        device_free(dev_labels);
        device_free(correct);
    }
}

static void test_empty(void **state) {
    (void)state;
    CUDA_OK(ls_kernel_log_softmax_forward(0, LS_FLOAT32, ls_lanes(), 0, 3, NULL, NULL));
    CUDA_OK(ls_kernel_log_softmax_backward(0, LS_FLOAT32, ls_lanes(), 0, 3, NULL, NULL, NULL));
    CUDA_OK(ls_kernel_cross_entropy(0, LS_FLOAT32, ls_lanes(), 0, 3, NULL, NULL, 0, 1, NULL, NULL));
    CUDA_OK(ls_kernel_accuracy(0, LS_FLOAT32, ls_lanes(), 0, 3, NULL, NULL, NULL));
    CUDA_OK(cudaDeviceSynchronize());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_softmax),   cmocka_unit_test(test_cross_entropy_golden),
        cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_label_out_of_range),
        cmocka_unit_test(test_nan_logit),     cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
