/* One device each for a few ranks of one thread, for the tests of failing cliques. Include it after cmocka.h. */
#ifndef LS_TESTS_GPU_NCCL_CLIQUE_H
#define LS_TESTS_GPU_NCCL_CLIQUE_H

#include "gpu/base/clock.h"
#include "tests/gpu/nccl_test.h"

enum { COUNT = 5000 };

typedef struct clique {
    int ranks;
    ncclComm_t comms[4];
    cudaStream_t streams[4];
    float *buffers[4];
} clique;

static inline void clique_open(clique *q, int ranks) {
    q->ranks = ranks;
    NCCL(ncclCommInitAll(q->comms, ranks, NULL));
    for (int rank = 0; rank < ranks; rank++) {
        CUDA(cudaSetDevice(rank));
        CUDA(cudaStreamCreateWithFlags(&q->streams[rank], cudaStreamNonBlocking));
        CUDA(cudaMalloc((void **)&q->buffers[rank], COUNT * sizeof(float)));
    }
}

static inline ncclResult_t sum(clique *q, int rank, size_t count) {
    return ncclAllReduce(q->buffers[rank], q->buffers[rank], count, ncclFloat32, ncclSum, q->comms[rank],
                         q->streams[rank]);
}

/* The communicator's asynchronous error, once it has one; it must come within limit seconds. */
static inline ncclResult_t await_error(ncclComm_t comm, double limit) {
    double end = ls_now_seconds() + limit;
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) {
        NCCL(ncclCommGetAsyncError(comm, &error));
        MUST(ls_now_seconds() < end);
        usleep(1000);
    }
    return error;
}

static inline void expect_text(ncclComm_t comm, const char *part) {
    const char *text = ncclGetLastError(comm);
    if (strstr(text, part) == NULL) {
        fprintf(stderr, "expected '%s' in '%s'\n", part, text);
        exit(6);
    }
}

#endif
