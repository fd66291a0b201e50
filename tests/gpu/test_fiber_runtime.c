/* Fiber mode itself: sound kernels give their results without a report, and each planted fault is reported. */
#include <string.h>

#include "gpu/vgpu/fiber/fiber.h"
#include "tests/gpu/device_values.h"
#include "tests/gpu/fiber/samples.h"

#include "fiber_kernels.h"

static const unsigned orders[] = {0, 1, 20260704}; /* in which threads run */
enum { ORDERS = sizeof orders / sizeof *orders };

static void configure(unsigned block, unsigned order) {
    ls_fiber_clear();
    ls_fiber_configure((ls_fiber_config){.block = block, .order = order});
}

static void assert_sound(cudaError_t status) {
    if (ls_fiber_reports() > 0) {
        fail_msg("a sound kernel: %s", ls_fiber_report(0));
    }
    CUDA_OK(status);
}

/* The launch failed and one of its reports has both parts. */
static void assert_reported(cudaError_t status, const char *part, const char *other) {
    assert_int_equal(status, cudaErrorLaunchFailure);
    for (size_t i = 0; i < ls_fiber_reports(); i++) {
        const char *line = ls_fiber_report(i);
        if (strstr(line, part) != NULL && strstr(line, other) != NULL && strchr(line, '\n') == NULL) {
            return;
        }
    }
    fail_msg("no report of '%s' and '%s' among %zu, the first: %s", part, other, ls_fiber_reports(),
             ls_fiber_reports() > 0 ? ls_fiber_report(0) : "none");
}

enum { VALUES = 1024 };

/* Small integers, so that sums are exact in any order. */
static void fill(float *values) {
    for (size_t i = 0; i < VALUES; i++) {
        values[i] = (float)(i * 7 % 31);
    }
}

static float sum_of(const float *values, size_t count) {
    float sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return sum;
}

static void test_tree_sum(void **state) {
    (void)state;
    float in[VALUES], out[VALUES];
    fill(in);
    for (unsigned block = 32; block <= 256; block *= 2) {
        for (size_t o = 0; o < ORDERS; o++) {
            configure(block, orders[o]);
            ls_fiber_output("out", out, sizeof *out, 4);
            assert_sound(sample_tree_sum(SAMPLE_SOUND, 4, block, in, out));
            for (size_t b = 0; b < 4; b++) {
                assert_true(out[b] == sum_of(in + b * block, block));
            }
            assert_reported(sample_tree_sum(SAMPLE_FAULT, 4, block, in, out), "race on shared dynamic memory",
                            "block 0");
            configure(block, orders[o]);
            assert_reported(sample_tree_sum(SAMPLE_SOUND, 4, block - 1, in, out), "out of bounds (write)", "it has");
            configure(block, orders[o]);
            assert_reported(sample_tree_sum(SAMPLE_OTHER_FAULT, 4, block, in, out), "barrier divergence", "has ended");
        }
    }
}

static void test_static_shared(void **state) {
    (void)state;
    float in[VALUES], out[VALUES];
    fill(in);
    for (size_t o = 0; o < ORDERS; o++) {
        configure(64, orders[o]);
        assert_sound(sample_reverse(SAMPLE_SOUND, 3, in, out));
        for (size_t i = 0; i < 192; i++) {
            assert_true(out[i] == in[i / 64 * 64 + 63 - i % 64]);
        }
        assert_reported(sample_reverse(SAMPLE_FAULT, 3, in, out), "thread 0: shared tile[64] is out of bounds (read)",
                        "it has 64 elements");
        configure(64, orders[o]);
        /* written by the launches before, but not by this block */
        assert_reported(sample_reverse(SAMPLE_OTHER_FAULT, 3, in, out), "thread 58: shared tile[5] is used",
                        "not yet written");
    }
}

static void test_divergence(void **state) {
    (void)state;
    for (size_t o = 0; o < ORDERS; o++) {
        configure(40, orders[o]);
        assert_sound(sample_barrier(SAMPLE_SOUND));
        assert_reported(sample_barrier(SAMPLE_FAULT),
                        "barrier divergence: thread 0 (and 38 more) waits at __syncthreads", "; thread 3 has ended");
        configure(40, orders[o]);
        assert_reported(sample_barrier(SAMPLE_OTHER_FAULT), "thread 0 (and 19 more) waits at __syncthreads",
                        "; thread 1 (and 19 more) waits at __syncthreads");
        assert_int_equal(ls_fiber_reports(), 1);
        configure(40, orders[o]);
        assert_sound(sample_barrier(SAMPLE_SOUND)); /* the fibers that were left behind run again */
    }
}

static void test_unwritten_output(void **state) {
    (void)state;
    float in[VALUES], out[VALUES];
    fill(in);
    configure(96, 0);
    ls_fiber_output("out", out, sizeof *out, VALUES);
    assert_sound(sample_copy(SAMPLE_SOUND, VALUES, in, out));
    assert_memory_equal(out, in, sizeof in);
    ls_fiber_output("out", out, sizeof *out, VALUES);
    assert_reported(sample_copy(SAMPLE_FAULT, VALUES, in, out), "kernel copy_kernel",
                    "output out: 1 of 1024 elements are unwritten, the first is 1023");
}

static void test_partial_warps(void **state) {
    (void)state;
    float in[VALUES], out[32];
    fill(in);
    for (unsigned block = 1; block <= 100; block += 9) {
        configure(block, block % 2);
        assert_sound(sample_warp_sum(SAMPLE_SOUND, in, out));
        for (size_t warp = 0; warp * 32 < block; warp++) {
            size_t lanes = block - warp * 32 < 32 ? block - warp * 32 : 32;
            assert_true(out[warp] == sum_of(in + warp * 32, lanes));
        }
        if (block % 32 != 0) {
            assert_reported(sample_warp_sum(SAMPLE_FAULT, in, out), "__shfl_sync, mask 0xffffffff, reads from lane",
                            "which takes no part");
        }
        configure(block, block % 2);
        if (block > 2) {
            assert_reported(sample_warp_sum(SAMPLE_OTHER_FAULT, in, out), "thread 2", "waits in __shfl_sync");
        }
    }
}

static void test_syncwarp(void **state) {
    (void)state;
    float in[VALUES], out = 0;
    fill(in);
    for (size_t o = 0; o < ORDERS; o++) {
        configure(32, orders[o]);
        assert_sound(sample_syncwarp_sum(SAMPLE_SOUND, in, &out));
        assert_true(out == sum_of(in, 32));
        assert_reported(sample_syncwarp_sum(SAMPLE_FAULT, in, &out), "race on shared partial[", "no barrier between");
    }
}

static void test_atomics(void **state) {
    (void)state;
    unsigned values[VALUES], expected[4] = {0};
    for (size_t i = 0; i < VALUES; i++) {
        values[i] = (unsigned)(i * i % 11 % 4);
        expected[values[i]]++;
    }
    for (size_t o = 0; o < ORDERS; o++) {
        unsigned counts[4] = {0};
        configure(128, orders[o]);
        assert_sound(sample_histogram(SAMPLE_SOUND, VALUES / 128, values, counts));
        assert_memory_equal(counts, expected, sizeof expected);
        assert_reported(sample_histogram(SAMPLE_FAULT, 1, values, counts), "race on shared own[", "atomic");
        configure(128, orders[o]);
        assert_reported(sample_histogram(SAMPLE_OTHER_FAULT, 1, values, counts), "race on shared own[", "write at");
    }
}

/* The definitions of the CUDA C++ Programming Guide, written out for one lane. */
static void test_warp_operations(void **state) {
    (void)state;
    static double out[64 * SAMPLE_OPERATIONS];
    for (size_t o = 0; o < ORDERS; o++) {
        configure(64, orders[o]);
        assert_sound(sample_operations(SAMPLE_SOUND, out));
        for (unsigned thread = 0; thread < 64; thread++) {
            const unsigned lane = thread % 32;
            const double expected[SAMPLE_OPERATIONS] = {
                7 * 1.5,
                (lane / 8 * 8 + 3) * 1.5,
                (lane >= 2 ? lane - 2 : lane) * 1.5,
                (lane % 16 + 3 < 16 ? lane + 3 : lane) * 1.5,
                (lane ^ 9) * 1.5,
                (lane ^ 12) / 8 <= lane / 8 ? lane ^ 12 : lane,
                0x55555555u, /* lane^5 is odd where lane is even */
                1,
                0,
                1,
            };
            for (size_t k = 0; k < SAMPLE_OPERATIONS; k++) {
                if (out[thread * SAMPLE_OPERATIONS + k] != expected[k]) {
                    fail_msg("thread %u, operation %zu: %g, expected %g", thread, k,
                             out[thread * SAMPLE_OPERATIONS + k], expected[k]);
                }
            }
        }
        assert_reported(sample_operations(SAMPLE_FAULT, out), "__shfl_sync, mask 0xfffffffd, is called by lane 1",
                        "not in the mask");
    }
}

/* Every barrier of a real reduction, taken away in turn. batchnorm_statistics has four for each of its channels, two for each
 * of two sums; the first of all has nothing to wait for. */
static void test_every_barrier_matters(void **state) {
    (void)state;
    enum { CHANNELS = 3, SAMPLES = 200 };
    float x[CHANNELS * SAMPLES];
    double mean[CHANNELS], invstd[CHANNELS];
    ls_batchnorm_shape shape = {.lanes = 1, .batch = SAMPLES, .channels = CHANNELS, .plane = 1};
    for (size_t i = 0; i < CHANNELS * SAMPLES; i++) {
        x[i] = (float)(i % 13);
    }
    for (unsigned barrier = 0; barrier <= 4 * CHANNELS; barrier++) {
        ls_fiber_clear();
        ls_fiber_configure((ls_fiber_config){.block = 96, .grid = 1, .drop_barrier = barrier});
        cudaError_t status =
            fiber_ls_kernel_batchnorm_statistics(0, LS_FLOAT32, &shape, 1e-5, 0.1, x, mean, invstd, NULL, NULL, NULL);
        if (barrier <= 1) {
            assert_sound(status);
        } else {
            assert_reported(status, "kernel batchnorm_statistics<T, L>, block 0: ", "race on shared partial[");
            assert_non_null(strstr(ls_fiber_report(0), "kernel.h:"));
        }
    }
}

static void test_impossible_launches(void **state) {
    (void)state;
    configure(0, 0);
    assert_int_equal(sample_barrier(SAMPLE_SOUND), cudaErrorInvalidConfiguration);
    configure(LS_FIBER_MAX_THREADS + 1, 0);
    assert_int_equal(sample_barrier(SAMPLE_SOUND), cudaErrorInvalidConfiguration);
    configure(LS_FIBER_MAX_THREADS, 0);
    assert_sound(sample_barrier(SAMPLE_SOUND));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree_sum),
        cmocka_unit_test(test_static_shared),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_unwritten_output),
        cmocka_unit_test(test_partial_warps),
        cmocka_unit_test(test_syncwarp),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_warp_operations),
        cmocka_unit_test(test_impossible_launches),
        cmocka_unit_test(test_every_barrier_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
