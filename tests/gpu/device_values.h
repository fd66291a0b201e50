/* For tests of kernels and layer math: values as doubles on the host, in dtype and the platform's layout on the device.
 * Uses the CUDA API alone; every failure fails the running test. */
#ifndef LS_TESTS_GPU_DEVICE_VALUES_H
#define LS_TESTS_GPU_DEVICE_VALUES_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/gpu.h"
#include "gpu/kernels/kernels.h"
#include "gpu/layer_math.h"

static const ls_dtype value_dtypes[] = {LS_FLOAT32, LS_FLOAT64};

/* Runs a CUDA call and fails the test with its name when it fails. */
#define CUDA_OK(call) assert_int_equal((call), cudaSuccess)

/* malloc that cannot return NULL. */
static inline void *host_alloc(size_t count, size_t size) {
    void *memory = ls_calloc(count, size, "a test's values");
    assert_non_null(memory);
    return memory;
}

static inline double *host_doubles(size_t count) {
    return host_alloc(count, sizeof(double));
}

/* Numbers in (-1, 1) that float32 holds exactly, from a seed. */
static inline void fill_random(double *values, size_t count, uint64_t seed) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        values[i] = (double)((int64_t)(state >> 40) - (1 << 23)) / (1 << 23);
    }
}

static inline void *device_alloc(size_t bytes) {
    void *memory = NULL;
    CUDA_OK(cudaMalloc(&memory, bytes > 0 ? bytes : 1));
    return memory;
}

static inline void *device_bytes(const void *host, size_t bytes) {
    void *memory = device_alloc(bytes);
    CUDA_OK(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
    return memory;
}

static inline void device_free(void *memory) {
    CUDA_OK(cudaFree(memory));
}

/* count values of dtype on the device. */
static inline void *device_values(ls_dtype dtype, const double *values, size_t count) {
    void *typed = host_alloc(count, ls_dtype_size(dtype));
    for (size_t i = 0; i < count; i++) {
        if (dtype == LS_FLOAT64) {
            ((double *)typed)[i] = values[i];
        } else {
            ((float *)typed)[i] = (float)values[i];
        }
    }
    void *memory = device_bytes(typed, count * ls_dtype_size(dtype));
    free(typed);
    return memory;
}

/* count values of dtype from the device, after all work of the device. */
static inline double *host_values(ls_dtype dtype, const void *memory, size_t count) {
    double *values = host_doubles(count);
    void *typed = host_alloc(count, ls_dtype_size(dtype));
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(typed, memory, count * ls_dtype_size(dtype), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) {
        values[i] = dtype == LS_FLOAT64 ? ((double *)typed)[i] : (double)((float *)typed)[i];
    }
    free(typed);
    return values;
}

/* An activation of [batch][features] values on the device, in the platform's layout. */
static inline void *device_activation(ls_dtype dtype, const double *values, size_t batch, size_t features) {
    void *plain = device_values(dtype, values, batch * features);
    void *memory = device_alloc(ls_activation_count(batch, features) * ls_dtype_size(dtype));
    CUDA_OK(ls_kernel_to_lanes(0, ls_dtype_size(dtype), ls_lanes(), batch, features, plain, memory));
    CUDA_OK(cudaDeviceSynchronize());
    device_free(plain);
    return memory;
}

/* An activation for results, full of a value that no result has, so that what is not written shows. */
static inline void *device_unwritten(ls_dtype dtype, size_t count) {
    double *values = host_doubles(count);
    for (size_t i = 0; i < count; i++) {
        values[i] = 12345.0;
    }
    void *memory = device_values(dtype, values, count);
    free(values);
    return memory;
}

/* The activation as [batch][features]. */
static inline double *host_activation(ls_dtype dtype, const void *memory, size_t batch, size_t features) {
    void *plain = device_alloc(batch * features * ls_dtype_size(dtype));
    CUDA_OK(ls_kernel_from_lanes(0, ls_dtype_size(dtype), ls_lanes(), batch, features, memory, plain));
    double *values = host_values(dtype, plain, batch * features);
    device_free(plain);
    return values;
}

/* Asserts that every lane at or beyond the batch holds an exact zero. */
static inline void assert_unused_lanes_zero(ls_dtype dtype, const void *memory, size_t batch, size_t features) {
    size_t lanes = ls_lanes();
    size_t count = ls_activation_count(batch, features);
    double *values = host_values(dtype, memory, count);
    for (size_t i = 0; i < count; i++) {
        size_t sample = i / (features * lanes) * lanes + i % lanes;
        if (sample >= batch && values[i] != 0.0) {
            fail_msg("%s: value %zu of unused sample %zu is %g, expected 0", ls_dtype_name(dtype), i / lanes % features,
                     sample, values[i]);
        }
    }
    free(values);
}

static inline double unit_roundoff(ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? 0x1p-53 : 0x1p-24;
}

/* gamma_n = n u/(1 - n u): a sum of n rounded products, in any order and with or without fused multiply-add, lies within
 * gamma_n * sum |x_i w_i| of the exact one (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). The reference is
 * such a sum too, in double, hence the second term; the smallest normal number covers underflow. */
static inline double sum_bound(ls_dtype dtype, size_t terms, double magnitude) {
    double n = (double)terms;
    double device = n * unit_roundoff(dtype) / (1 - n * unit_roundoff(dtype));
    double reference = n * 0x1p-53 / (1 - n * 0x1p-53);
    return (device + reference) * magnitude + (dtype == LS_FLOAT64 ? 0x1p-1022 : 0x1p-126);
}

/* Asserts |got - expected| <= sum_bound(terms, magnitude[i]) for every element. */
static inline void assert_sums_close(const char *what, ls_dtype dtype, const double *got, const double *expected,
                                     const double *magnitude, size_t count, size_t terms) {
    for (size_t i = 0; i < count; i++) {
        double bound = sum_bound(dtype, terms, magnitude[i]);
        if (!(fabs(got[i] - expected[i]) <= bound)) {
            fail_msg("%s, %s, element %zu: got %.17g, expected %.17g within %g", what, ls_dtype_name(dtype), i, got[i],
                     expected[i], bound);
        }
    }
}

#endif
