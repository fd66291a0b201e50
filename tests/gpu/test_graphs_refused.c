/* What capturing forbids, and with which codes: the CUDA Programming Guide ("Prohibited and Unhandled Operations",
 * "Invalidation") and the descriptions of cudaStreamBeginCapture, cudaStreamEndCapture, cudaStreamIsCapturing,
 * cudaThreadExchangeStreamCaptureMode and of the error codes. */
#include <pthread.h>

#include "tests/gpu/graph_test.h"

/* The capture was invalidated: its streams are of no use until it is ended, which gives no graph. Then they work again. */
static void expect_invalidated(cudaStream_t stream, unsigned char *bytes) {
    cudaGraph_t graph = (cudaGraph_t)(uintptr_t)1;
    expect_status(stream, cudaStreamCaptureStatusInvalidated);
    CHECK_REFUSED(cudaMemsetAsync(bytes, 9, BYTES, stream), cudaErrorStreamCaptureInvalidated);
    CHECK_REFUSED(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    assert_null(graph);
    expect_status(stream, cudaStreamCaptureStatusNone);
    CHECK(cudaMemsetAsync(bytes, 1, BYTES, stream));
    CHECK(cudaStreamSynchronize(stream));
    check_bytes(bytes, BYTES, 1);
}

/* A stream that captures, and memory. */
typedef struct fixture {
    cudaStream_t stream;
    unsigned char *bytes;
} fixture;

static fixture make_fixture(void) {
    return (fixture){make_stream(cudaStreamNonBlocking), make_bytes(BYTES, 0)};
}

static void free_fixture(fixture f) {
    CHECK(cudaFree(f.bytes));
    CHECK(cudaStreamDestroy(f.stream));
}

/* Ends a capture that is still good. */
static void expect_good(cudaStream_t stream) {
    expect_status(stream, cudaStreamCaptureStatusActive);
    CHECK(cudaGraphExecDestroy(end(stream)));
}

static void where_a_capture_cannot_begin(void **state) {
    (void)state;
    fixture f = make_fixture();
    CHECK_REFUSED(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal), cudaErrorStreamCaptureUnsupported);
    CHECK_REFUSED(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeThreadLocal),
                  cudaErrorStreamCaptureUnsupported);
    CHECK_REFUSED(cudaStreamBeginCapture(f.stream, (enum cudaStreamCaptureMode)7), cudaErrorInvalidValue);
    begin(f.stream);
    CHECK_REFUSED(cudaStreamBeginCapture(f.stream, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
    expect_good(f.stream);
    free_fixture(f);
}

static void where_a_capture_cannot_end(void **state) {
    (void)state;
    fixture f = make_fixture();
    cudaGraph_t graph = NULL;
    cudaStream_t other = make_stream(cudaStreamNonBlocking);
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    CHECK_REFUSED(cudaStreamEndCapture(f.stream, &graph), cudaErrorIllegalState);
    begin(f.stream);
    CHECK(cudaEventRecord(event, f.stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    CHECK(cudaEventRecord(event, other));
    CHECK(cudaStreamWaitEvent(f.stream, event, 0));
    CHECK_REFUSED(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
    assert_null(graph);
    (void)cudaStreamEndCapture(f.stream, &graph); /* whether there is a graph then is not documented */
    (void)cudaGetLastError();
    if (graph != NULL) {
        CHECK(cudaGraphDestroy(graph));
    }
    expect_status(other, cudaStreamCaptureStatusNone);
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(other));
    free_fixture(f);
}

static void *end_elsewhere(void *stream) {
    cudaGraph_t graph = NULL;
    return (void *)(uintptr_t)cudaStreamEndCapture(stream, &graph);
}

static void only_the_thread_that_began_ends_unless_relaxed(void **state) {
    (void)state;
    fixture f = make_fixture();
    pthread_t thread;
    void *status = NULL;
    begin(f.stream);
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, f.stream), 0);
    assert_int_equal(pthread_join(thread, &status), 0);
    assert_int_equal((uintptr_t)status, cudaErrorStreamCaptureWrongThread);
    expect_good(f.stream);
    CHECK(cudaStreamBeginCapture(f.stream, cudaStreamCaptureModeRelaxed));
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, f.stream), 0);
    assert_int_equal(pthread_join(thread, &status), 0);
    assert_int_equal((uintptr_t)status, cudaSuccess);
    expect_status(f.stream, cudaStreamCaptureStatusNone);
    free_fixture(f);
}

static void a_fork_must_be_joined(void **state) {
    (void)state;
    fixture f = make_fixture();
    cudaStream_t other = make_stream(cudaStreamNonBlocking);
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    cudaGraph_t graph = (cudaGraph_t)(uintptr_t)1;
    begin(f.stream);
    CHECK(cudaMemsetAsync(f.bytes, 2, BYTES, f.stream));
    CHECK(cudaEventRecord(event, f.stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    CHECK(cudaMemsetAsync(f.bytes, 3, BYTES, other));
    CHECK_REFUSED(cudaStreamEndCapture(f.stream, &graph), cudaErrorStreamCaptureUnjoined);
    assert_null(graph);
    expect_status(f.stream, cudaStreamCaptureStatusNone);
    expect_status(other, cudaStreamCaptureStatusNone);
    CHECK(cudaMemsetAsync(f.bytes, 4, BYTES, other));
    CHECK(cudaStreamSynchronize(other));
    check_bytes(f.bytes, BYTES, 4);
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(other));
    free_fixture(f);
}

static void a_capturing_stream_cannot_be_awaited(void **state) {
    (void)state;
    fixture f = make_fixture();
    begin(f.stream);
    CHECK_REFUSED(cudaStreamSynchronize(f.stream), cudaErrorStreamCaptureUnsupported);
    expect_invalidated(f.stream, f.bytes);
    begin(f.stream);
    CHECK_REFUSED(cudaStreamQuery(f.stream), cudaErrorStreamCaptureUnsupported);
    expect_invalidated(f.stream, f.bytes);
    begin(f.stream);
    CHECK_REFUSED(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    expect_invalidated(f.stream, f.bytes);
    free_fixture(f);
}

static void a_captured_event_cannot_be_asked(void **state) {
    (void)state;
    fixture f = make_fixture();
    cudaEvent_t event = make_event(cudaEventDefault);
    begin(f.stream);
    CHECK(cudaEventRecord(event, f.stream));
    CHECK_REFUSED(cudaEventQuery(event), cudaErrorCapturedEvent);
    expect_invalidated(f.stream, f.bytes);
    begin(f.stream);
    CHECK(cudaEventRecord(event, f.stream));
    CHECK_REFUSED(cudaEventSynchronize(event), cudaErrorCapturedEvent);
    expect_invalidated(f.stream, f.bytes);
    CHECK(cudaEventRecord(event, f.stream)); /* outside, it is an event like any other */
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaEventDestroy(event));
    free_fixture(f);
}

static void a_capture_does_not_wait_for_what_is_not_part_of_it(void **state) {
    (void)state;
    fixture f = make_fixture();
    cudaStream_t other = make_stream(cudaStreamNonBlocking);
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    CHECK(cudaEventRecord(event, other));
    begin(f.stream);
    CHECK_REFUSED(cudaStreamWaitEvent(f.stream, event, 0), cudaErrorStreamCaptureIsolation);
    expect_invalidated(f.stream, f.bytes);
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(other));
    free_fixture(f);
}

static void two_captures_are_not_merged(void **state) {
    (void)state;
    fixture f = make_fixture();
    fixture g = make_fixture();
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    begin(f.stream);
    begin(g.stream);
    CHECK(cudaEventRecord(event, f.stream));
    CHECK_REFUSED(cudaStreamWaitEvent(g.stream, event, 0), cudaErrorStreamCaptureMerge);
    cudaGraph_t graph = NULL;
    (void)cudaStreamEndCapture(f.stream, &graph); /* which of them is invalidated is not documented */
    if (graph != NULL) {
        CHECK(cudaGraphDestroy(graph));
    }
    (void)cudaGetLastError();
    expect_invalidated(g.stream, g.bytes);
    CHECK(cudaEventDestroy(event));
    free_fixture(f);
    free_fixture(g);
}

static void *allocate_elsewhere(void *mode) {
    void *memory = NULL;
    cudaError_t status = cudaThreadExchangeStreamCaptureMode(mode);
    status = status == cudaSuccess ? cudaMalloc(&memory, BYTES) : status;
    if (status == cudaSuccess) {
        status = cudaFree(memory);
    }
    return (void *)(uintptr_t)status;
}

static cudaError_t allocation_elsewhere(enum cudaStreamCaptureMode mode) {
    pthread_t thread;
    void *status = NULL;
    assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, &mode), 0);
    assert_int_equal(pthread_join(thread, &status), 0);
    return (cudaError_t)(uintptr_t)status;
}

static void unsafe_calls_of_the_capturing_thread(void **state) {
    (void)state;
    const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal};
    fixture f = make_fixture();
    void *memory = NULL;
    for (size_t i = 0; i < 2; i++) {
        CHECK(cudaStreamBeginCapture(f.stream, modes[i]));
        CHECK_REFUSED(cudaMalloc(&memory, BYTES), cudaErrorStreamCaptureUnsupported);
        expect_invalidated(f.stream, f.bytes);
    }
    CHECK(cudaStreamBeginCapture(f.stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMalloc(&memory, BYTES));
    expect_good(f.stream);
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    begin(f.stream);
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, cudaStreamCaptureModeGlobal); /* a thread's mode at first */
    CHECK(cudaFree(memory));
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, cudaStreamCaptureModeRelaxed);
    expect_good(f.stream);
    free_fixture(f);
}

static void unsafe_calls_of_other_threads(void **state) {
    (void)state;
    fixture f = make_fixture();
    CHECK(cudaStreamBeginCapture(f.stream, cudaStreamCaptureModeGlobal));
    assert_int_equal(allocation_elsewhere(cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_int_equal(allocation_elsewhere(cudaStreamCaptureModeRelaxed), cudaSuccess);
    expect_status(f.stream, cudaStreamCaptureStatusActive);
    assert_int_equal(allocation_elsewhere(cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
    expect_invalidated(f.stream, f.bytes);
    begin(f.stream);
    assert_int_equal(allocation_elsewhere(cudaStreamCaptureModeGlobal), cudaSuccess);
    expect_good(f.stream);
    free_fixture(f);
}

static void the_legacy_stream_beside_a_blocking_capture(void **state) {
    (void)state;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    fixture f = {make_stream(cudaStreamDefault), make_bytes(BYTES, 0)};
    unsigned char host[16];
    begin(f.stream);
    CHECK_REFUSED(cudaStreamIsCapturing(NULL, &status), cudaErrorStreamCaptureImplicit);
    expect_status(f.stream, cudaStreamCaptureStatusActive);
    CHECK_REFUSED(cudaMemsetAsync(f.bytes, 2, BYTES, NULL), cudaErrorStreamCaptureImplicit);
    expect_invalidated(f.stream, f.bytes);
    begin(f.stream);
    CHECK_REFUSED(cudaMemcpy(host, f.bytes, sizeof host, cudaMemcpyDeviceToHost), cudaErrorStreamCaptureImplicit);
    expect_invalidated(f.stream, f.bytes);
    free_fixture(f);
}

static void the_legacy_stream_beside_a_non_blocking_capture(void **state) {
    (void)state;
    fixture f = make_fixture();
    begin(f.stream);
    CHECK(cudaMemsetAsync(f.bytes, 2, BYTES, NULL));
    expect_good(f.stream);
    CHECK(cudaDeviceSynchronize());
    check_bytes(f.bytes, BYTES, 2);
    free_fixture(f);
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(where_a_capture_cannot_begin),
        RUNTIME_TEST(where_a_capture_cannot_end),
        RUNTIME_TEST(only_the_thread_that_began_ends_unless_relaxed),
        RUNTIME_TEST(a_fork_must_be_joined),
        RUNTIME_TEST(a_capturing_stream_cannot_be_awaited),
        RUNTIME_TEST(a_captured_event_cannot_be_asked),
        RUNTIME_TEST(a_capture_does_not_wait_for_what_is_not_part_of_it),
        RUNTIME_TEST(two_captures_are_not_merged),
        RUNTIME_TEST(unsafe_calls_of_the_capturing_thread),
        RUNTIME_TEST(unsafe_calls_of_other_threads),
        RUNTIME_TEST(the_legacy_stream_beside_a_blocking_capture),
        RUNTIME_TEST(the_legacy_stream_beside_a_non_blocking_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
