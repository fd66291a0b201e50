/* Helpers of the tests of graphs. Only the public CUDA API, so that they run unchanged on real GPUs. */
#ifndef LS_TESTS_GPU_GRAPH_TEST_H
#define LS_TESTS_GPU_GRAPH_TEST_H

#include "tests/gpu/runtime.h"

enum { BYTES = 4096 };

static inline void begin(cudaStream_t stream) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static inline cudaGraphExec_t end(cudaStream_t stream) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    CHECK(cudaStreamEndCapture(stream, &graph));
    assert_non_null(graph);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph)); /* what was instantiated does not need it any more */
    return exec;
}

static inline void expect_status(cudaStream_t stream, enum cudaStreamCaptureStatus expected) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CHECK(cudaStreamIsCapturing(stream, &status));
    assert_int_equal(status, expected);
}

#endif
