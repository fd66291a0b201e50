/* Memory of ncclMemAlloc and registered buffers: device memory like any other, collectives in parts of it, handles, and what is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/gpu/nccl_test.h"

enum { COUNT = 100000, OFFSET = 4096 };

static void allocations_are_device_memory(void **state) {
    (void)state;
    static float host[COUNT], back[COUNT];
    void *memory = NULL;
    struct cudaPointerAttributes attributes;
    CUDA(cudaSetDevice(0));
    NCCL(ncclMemAlloc(&memory, sizeof host));
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 256, 0);
    CUDA(cudaPointerGetAttributes(&attributes, memory));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
    assert_int_equal(attributes.device, 0);
    for (int i = 0; i < COUNT; i++) {
        host[i] = (float)i;
    }
    CUDA(cudaMemset(memory, 0xff, sizeof host));
    CUDA(cudaMemcpy(memory, host, sizeof host, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(back, memory, sizeof host, cudaMemcpyDeviceToHost));
    assert_memory_equal(back, host, sizeof host);
    NCCL(ncclMemFree(memory));
    NCCL(ncclMemFree(NULL));
}

static void impossible_allocations_fail(void **state) {
    (void)state;
    void *memory = NULL;
    CUDA(cudaSetDevice(0));
    assert_int_not_equal(ncclMemAlloc(NULL, 1024), ncclSuccess);
    assert_int_not_equal(ncclMemAlloc(&memory, (size_t)1 << 46), ncclSuccess); /* 64 TiB */
    (void)cudaGetLastError();
    NCCL(ncclMemAlloc(&memory, 1024));
    NCCL(ncclMemFree(memory));
}

/* A sum over all ranks in registered memory, whole and in part, in place and not; then in memory that is registered no more. */
static void sums(rank_context *r) {
    static const size_t from[] = {0, OFFSET, 0}, counts[] = {COUNT, 1000, COUNT};
    float *host = malloc(COUNT * sizeof *host), *memory[2];
    void *handles[2] = {NULL, NULL};
    MUST(host != NULL);
    for (int b = 0; b < 2; b++) {
        NCCL(ncclMemAlloc((void **)&memory[b], COUNT * sizeof *host));
        NCCL(ncclCommRegister(r->comm, memory[b], COUNT * sizeof *host, &handles[b]));
    }
    for (int round = 0; round < 6; round++) {
        const size_t at = from[round % 3], count = counts[round % 3];
        float *result = memory[round % 2] + at;
        for (size_t i = 0; i < COUNT; i++) {
            host[i] = (float)(r->rank + 1) * (float)(i % 100);
        }
        if (round == 4) {
            CUDA(cudaStreamSynchronize(r->stream));
            NCCL(ncclCommDeregister(r->comm, handles[0]));
            NCCL(ncclCommDeregister(r->comm, handles[1]));
        }
        CUDA(cudaMemcpy(memory[0], host, COUNT * sizeof *host, cudaMemcpyHostToDevice));
        NCCL(ncclAllReduce(memory[0] + at, result, count, ncclFloat32, ncclSum, r->comm, r->stream));
        CUDA(cudaStreamSynchronize(r->stream));
        CUDA(cudaMemcpy(host, result, count * sizeof *host, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < count; i++) {
            MUST(host[i] == (float)(r->ranks * (r->ranks + 1) / 2) * (float)((at + i) % 100));
        }
    }
    NCCL(ncclMemFree(memory[0]));
    NCCL(ncclMemFree(memory[1]));
    free(host);
}

static int ranks_here(void) {
    return device_count() < 4 ? device_count() : 4;
}

static void threads_sum_in_registered_memory(void **state) {
    (void)state;
    run_threads(ranks_here(), sums, NULL);
}

static void processes_sum_in_registered_memory(void **state) {
    (void)state;
    assert_true(run_processes("sums", ranks_here()));
}

/* Two handles of one rank, and what is none. */
static void handles_are_checked(void **state) {
    (void)state;
    ncclComm_t comm = NULL;
    float *memory = NULL;
    void *first = NULL, *second = NULL;
    int unknown = 0;
    CUDA(cudaSetDevice(0));
    NCCL(ncclCommInitAll(&comm, 1, NULL));
    NCCL(ncclMemAlloc((void **)&memory, COUNT * sizeof *memory));
    NCCL(ncclCommRegister(comm, memory, COUNT * sizeof *memory, &first));
    NCCL(ncclCommRegister(comm, memory + OFFSET, 1000 * sizeof *memory, &second)); /* within the first */
    assert_non_null(first);
    assert_int_equal(ncclCommRegister(NULL, memory, sizeof *memory, &second), ncclInvalidArgument);
    assert_int_equal(ncclCommDeregister(NULL, first), ncclInvalidArgument);
    assert_int_equal(ncclCommDeregister(comm, &unknown), ncclInvalidUsage);
    NCCL(ncclCommDeregister(comm, NULL));
    NCCL(ncclCommDeregister(comm, second));
    NCCL(ncclCommDeregister(comm, first));
    assert_int_equal(ncclCommDeregister(comm, first), ncclInvalidUsage);
    NCCL(ncclMemFree(memory));
    NCCL(ncclCommDestroy(comm));
}

/* An abort needs no deregistration before it. */
static void an_abort_deregisters(void **state) {
    (void)state;
    ncclComm_t comm = NULL;
    void *memory = NULL, *handle = NULL;
    CUDA(cudaSetDevice(0));
    NCCL(ncclCommInitAll(&comm, 1, NULL));
    NCCL(ncclMemAlloc(&memory, COUNT));
    NCCL(ncclCommRegister(comm, memory, COUNT, &handle));
    NCCL(ncclCommAbort(comm));
    NCCL(ncclMemFree(memory));
}

int main(int argc, char **argv) {
    const named_body bodies[] = {{"sums", sums}};
    become_rank(argc, argv, bodies, sizeof bodies / sizeof bodies[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_device_memory),
        cmocka_unit_test(impossible_allocations_fail),
        cmocka_unit_test(threads_sum_in_registered_memory),
        cmocka_unit_test(processes_sum_in_registered_memory),
        cmocka_unit_test(handles_are_checked),
        cmocka_unit_test(an_abort_deregisters),
    };
    return cmocka_run_group_tests_name("nccl register", tests, NULL, NULL);
}
