/* Prints how long an allreduce of two processes takes inside its stream, every buffer rewritten before each call (without that
 * the data would still lie in the caches of the right core). Figures are for reading; what is asserted is the sum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/gpu/nccl_test.h"

enum { WARMUP = 3, CALLS_MAX = 101 };

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void measure(rank_context *r, size_t bytes) {
    const int calls = bytes > 1 << 20 ? 15 : CALLS_MAX;
    size_t count = bytes / sizeof(float);
    float *buffer, *pristine, *host = malloc(bytes), times[CALLS_MAX];
    cudaEvent_t before[CALLS_MAX], after[CALLS_MAX];
    MUST(host != NULL);
    CUDA(cudaMalloc((void **)&buffer, bytes));
    CUDA(cudaMalloc((void **)&pristine, bytes));
    for (size_t i = 0; i < count; i++) {
        host[i] = (float)(r->rank + 1) + (float)(i % 1000);
    }
    CUDA(cudaMemcpy(pristine, host, bytes, cudaMemcpyHostToDevice));
    for (int call = -WARMUP; call < calls; call++) {
        int k = call < 0 ? 0 : call;
        CUDA(cudaMemcpyAsync(buffer, pristine, bytes, cudaMemcpyDeviceToDevice, r->stream));
        /* Ranks meet here, so that the time measured is not the wait for the other's rewriting. */
        NCCL(ncclAllReduce(buffer, buffer, 0, ncclFloat32, ncclSum, r->comm, r->stream));
        if (call >= 0) {
            CUDA(cudaEventCreate(&before[k]));
            CUDA(cudaEventCreate(&after[k]));
            CUDA(cudaEventRecord(before[k], r->stream));
        }
        NCCL(ncclAllReduce(buffer, buffer, count, ncclFloat32, ncclSum, r->comm, r->stream));
        if (call >= 0) {
            CUDA(cudaEventRecord(after[k], r->stream));
        }
    }
    CUDA(cudaStreamSynchronize(r->stream));
    for (int k = 0; k < calls; k++) {
        CUDA(cudaEventElapsedTime(&times[k], before[k], after[k]));
        CUDA(cudaEventDestroy(before[k]));
        CUDA(cudaEventDestroy(after[k]));
    }
    CUDA(cudaMemcpy(host, buffer, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) {
        MUST(host[i] == 3.0F + 2.0F * (float)(i % 1000));
    }
    qsort(times, (size_t)calls, sizeof times[0], ascending);
    if (r->rank == 0) {
        printf("allreduce, 2 processes, %9zu bytes: median %8.2f us, fastest %8.2f us\n", bytes,
               1e3 * (double)times[calls / 2], 1e3 * (double)times[0]);
        fflush(stdout);
    }
    CUDA(cudaFree(buffer));
    CUDA(cudaFree(pristine));
    free(host);
}

static void body_measure(rank_context *r) {
    static const size_t sizes[] = {4, 1024, 4096, 8192, 87360, 1 << 20, 1 << 24};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        measure(r, sizes[i]);
    }
}

static void two_processes(void **state) {
    (void)state;
    assert_true(run_processes("measure", 2));
}

int main(int argc, char **argv) {
    const named_body bodies[] = {{"measure", body_measure}};
    become_rank(argc, argv, bodies, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_processes)};
    return cmocka_run_group_tests_name("vgpu nccl speed", tests, NULL, NULL);
}
