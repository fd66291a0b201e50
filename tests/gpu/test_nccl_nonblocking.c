/* Communicators that are made without blocking (blocking = 0): in progress until all ranks have come, then like any other; aborted
 * while a peer is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "gpu/base/clock.h"
#include "tests/gpu/nccl_test.h"

enum { COUNT = 1000 };

static void pause_ms(long milliseconds) {
    struct timespec pause = {.tv_nsec = milliseconds * 1000000L};
    (void)nanosleep(&pause, NULL);
}

/* What a call that may go on behind the scenes comes to. */
static ncclResult_t settled(ncclComm_t comm, ncclResult_t status) {
    double end = ls_now_seconds() + 60;
    MUST(status == ncclSuccess || status == ncclInProgress);
    while (status == ncclInProgress && ls_now_seconds() < end) {
        pause_ms(1);
        NCCL(ncclCommGetAsyncError(comm, &status));
    }
    return status;
}

static ncclComm_t begin(int ranks, ncclUniqueId id, int rank, ncclResult_t *status) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    *status = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
    MUST(comm != NULL);
    return comm;
}

typedef struct member {
    ncclUniqueId id;
    int rank, ranks;
} member;

static void *run_member(void *argument) {
    const member *m = argument;
    CUDA(cudaSetDevice(m->rank));
    float *values = NULL, host[COUNT];
    cudaStream_t stream = NULL;
    CUDA(cudaMalloc((void **)&values, sizeof host));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ncclResult_t status;
    ncclComm_t comm = begin(m->ranks, m->id, m->rank, &status);
    MUST(settled(comm, status) == ncclSuccess);
    for (int i = 0; i < COUNT; i++) {
        host[i] = (float)(m->rank + 1);
    }
    CUDA(cudaMemcpy(values, host, sizeof host, cudaMemcpyHostToDevice));
    for (int round = 0; round < 2; round++) {
        status = ncclAllReduce(values, values, COUNT, ncclFloat32, ncclSum, comm, stream);
        MUST(settled(comm, status) == ncclSuccess);
    }
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(host, values, sizeof host, cudaMemcpyDeviceToHost));
    int sum = m->ranks * (m->ranks + 1) / 2;
    for (int i = 0; i < COUNT; i++) {
        MUST(host[i] == (float)(sum * m->ranks));
    }
    MUST(settled(comm, ncclCommFinalize(comm)) == ncclSuccess);
    NCCL(ncclCommDestroy(comm));
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(values));
    return NULL;
}

static void comes_to_be_and_computes(void **state) {
    (void)state;
    int ranks = device_count() < 2 ? 1 : 2;
    member members[2];
    pthread_t threads[2];
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    for (int rank = 0; rank < ranks; rank++) {
        members[rank] = (member){id, rank, ranks};
        assert_int_equal(pthread_create(&threads[rank], NULL, run_member, &members[rank]), 0);
    }
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(pthread_join(threads[rank], NULL), 0);
    }
}

static void waits_for_a_peer_until_aborted(void **state) {
    (void)state;
    ncclUniqueId id;
    ncclResult_t status;
    if (device_count() < 2) {
        skip();
    }
    NCCL(ncclGetUniqueId(&id));
    CUDA(cudaSetDevice(0));
    ncclComm_t comm = begin(2, id, 0, &status);
    assert_int_equal(status, ncclInProgress);
    double start = ls_now_seconds();
    for (int i = 0; i < 20; i++) {
        pause_ms(5);
        NCCL(ncclCommGetAsyncError(comm, &status));
        assert_int_equal(status, ncclInProgress);
    }
    assert_int_equal(ncclCommAbort(comm), ncclSuccess);
    assert_true(ls_now_seconds() - start < 30.0);
}

static void what_is_not_there_yet_is_refused(void **state) {
    (void)state;
    ncclUniqueId id;
    ncclResult_t status;
    float *values = NULL;
    if (device_count() < 2) {
        skip();
    }
    NCCL(ncclGetUniqueId(&id));
    CUDA(cudaSetDevice(0));
    CUDA(cudaMalloc((void **)&values, COUNT * sizeof *values));
    ncclComm_t comm = begin(2, id, 0, &status);
    assert_int_equal(ncclAllReduce(values, values, COUNT, ncclFloat32, ncclSum, comm, NULL), ncclInvalidArgument);
    assert_int_equal(ncclCommAbort(comm), ncclSuccess);
    CUDA(cudaFree(values));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_to_be_and_computes),
        cmocka_unit_test(waits_for_a_peer_until_aborted),
        cmocka_unit_test(what_is_not_there_yet_is_refused),
    };
    return cmocka_run_group_tests_name("nccl nonblocking", tests, NULL, NULL);
}
