/* Moving between sample-major values and the platform's layout, and making inputs of pixels: all exact. */
#include "tests/gpu/device_values.h"

static const size_t batches[] = {1, 5, 16, 17, 33};
static const size_t feature_counts[] = {1, 3, 49};
enum { BATCHES = sizeof batches / sizeof *batches, FEATURES = sizeof feature_counts / sizeof *feature_counts };

static uint8_t *random_bytes(size_t count) {
    uint8_t *bytes = host_alloc(count, 1);
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(1 + i * 37 % 255);
    }
    return bytes;
}

static uint8_t *download(const void *device, size_t count) {
    uint8_t *bytes = host_alloc(count, 1);
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(bytes, device, count, cudaMemcpyDeviceToHost));
    return bytes;
}

/* Where feature f of sample n lies: the layout that gpu/layer_math.h states. */
static size_t place(size_t n, size_t f, size_t features) {
    size_t lanes = ls_lanes();
    return (n / lanes * features + f) * lanes + n % lanes;
}

static void check_layout(size_t size, size_t batch, size_t features) {
    size_t lanes = ls_lanes(), count = ls_activation_count(batch, features);
    size_t padded = (batch + lanes - 1) / lanes * lanes;
    uint8_t *plain = random_bytes(batch * features * size);
    uint8_t *junk = random_bytes(count * size);
    void *dev_plain = device_bytes(plain, batch * features * size), *dev_lanes = device_bytes(junk, count * size);
    void *dev_back = device_alloc(batch * features * size);
    CUDA_OK(ls_kernel_to_lanes(0, size, lanes, batch, features, dev_plain, dev_lanes));
    CUDA_OK(ls_kernel_from_lanes(0, size, lanes, batch, features, dev_lanes, dev_back));
    uint8_t *laid = download(dev_lanes, count * size), *back = download(dev_back, batch * features * size);
    const uint8_t zeros[8] = {0};
    for (size_t n = 0; n < padded; n++) {
        for (size_t f = 0; f < features; f++) {
            const uint8_t *expected = n < batch ? plain + (n * features + f) * size : zeros;
            assert_memory_equal(laid + place(n, f, features) * size, expected, size);
        }
    }
    assert_memory_equal(back, plain, batch * features * size);
    uint8_t *host[] = {plain, junk, laid, back};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) {
        free(host[i]);
    }
    device_free(dev_plain);
    device_free(dev_lanes);
    device_free(dev_back);
}

static void test_layout(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 4, 8};
    for (size_t s = 0; s < 3; s++) {
        for (size_t b = 0; b < BATCHES; b++) {
            for (size_t f = 0; f < FEATURES; f++) {
                check_layout(sizes[s], batches[b], feature_counts[f]);
            }
        }
    }
    assert_int_equal(cudaErrorInvalidValue, ls_kernel_to_lanes(0, 2, ls_lanes(), 1, 1, NULL, NULL));
    assert_int_equal(cudaErrorInvalidValue, ls_kernel_from_lanes(0, 4, 3, 1, 1, NULL, NULL));
    CUDA_OK(ls_kernel_to_lanes(0, 4, ls_lanes(), 0, 3, NULL, NULL));
    CUDA_OK(ls_kernel_from_lanes(0, 4, ls_lanes(), 0, 3, NULL, NULL));
}

/* float32 arithmetic step by step, as torchvision's ToTensor and Normalize do it, whatever the dtype; from bytes and from
 * floats. */
static void check_input(ls_dtype dtype, size_t batch, size_t features, size_t channels) {
    ls_input_scale scale = {
        channels, channels > 0 ? features / channels : features, {0.1307f, 0.5f, -1}, {0.3081f, 0.25f, 3}};
    uint8_t *pixels = random_bytes(batch * features);
    float *values = malloc(batch * features * sizeof *values);
    assert_non_null(values);
    pixels[0] = 0;
    for (size_t i = 0; i < batch * features; i++) {
        values[i] = ((float)pixels[i] - 100.0f) / 7.0f;
    }
    void *dev_pixels = device_bytes(pixels, batch * features);
    void *dev_values = device_bytes(values, batch * features * sizeof *values);
    for (int floats = 0; floats < 2; floats++) {
        void *x = device_unwritten(dtype, ls_activation_count(batch, features));
        CUDA_OK(floats ? ls_kernel_input_values(0, dtype, ls_lanes(), batch, features, dev_values, &scale, x)
                       : ls_kernel_input(0, dtype, ls_lanes(), batch, features, dev_pixels, &scale, x));
        double *got = host_activation(dtype, x, batch, features);
        for (size_t i = 0; i < batch * features; i++) {
            size_t c = channels > 1 ? i % features / scale.plane : 0;
            volatile float scaled = floats ? values[i] : (float)pixels[i] / 255.0f;
            volatile float centred = scaled - scale.mean[c];
            volatile float expected = channels > 0 ? centred / scale.std[c] : scaled;
            assert_true(got[i] == (double)expected);
        }
        assert_unused_lanes_zero(dtype, x, batch, features);
        free(got);
        device_free(x);
    }
    free(pixels);
    free(values);
    device_free(dev_pixels);
    device_free(dev_values);
}

static void test_input(void **state) {
    (void)state;
    for (size_t b = 0; b < BATCHES; b++) {
        for (size_t d = 0; d < 2; d++) {
            check_input(value_dtypes[d], batches[b], 300, 0);
            check_input(value_dtypes[d], batches[b], 49, 1);
            check_input(value_dtypes[d], batches[b], 75, 3);
        }
    }
    const ls_input_scale none = {0};
    const ls_input_scale short_planes = {.channels = 3, .plane = 24};
    CUDA_OK(ls_kernel_input(0, LS_FLOAT32, ls_lanes(), 0, 784, NULL, &none, NULL));
    CUDA_OK(ls_kernel_input_values(0, LS_FLOAT32, ls_lanes(), 0, 784, NULL, &none, NULL));
    assert_int_equal(cudaErrorInvalidValue,
                     ls_kernel_input(0, LS_FLOAT32, ls_lanes(), 1, 75, NULL, &short_planes, NULL));
    assert_int_equal(cudaErrorInvalidValue,
                     ls_kernel_input_values(0, LS_FLOAT32, ls_lanes(), 1, 75, NULL, &short_planes, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layout), cmocka_unit_test(test_input)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
