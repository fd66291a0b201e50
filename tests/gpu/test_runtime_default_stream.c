/* The legacy default stream: it and the blocking streams of its device wait for one another; nothing else does. */
#include "tests/gpu/runtime.h"

enum { BYTES = 4096 };

static void default_stream_waits_for_blocking_streams(void **state) {
    (void)state;
    cudaStream_t blocking = make_stream(cudaStreamDefault);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, blocking);
    CHECK(cudaMemsetAsync(bytes, 1, BYTES, blocking));
    CHECK(cudaMemsetAsync(bytes, 2, BYTES, 0));
    let_errors_happen();
    assert_int_equal(cudaStreamQuery(0), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(0));
    CHECK(cudaStreamQuery(blocking));
    check_bytes(bytes, BYTES, 2);
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(blocking));
}

static void blocking_streams_wait_for_the_default_stream(void **state) {
    (void)state;
    cudaStream_t blocking = make_stream(cudaStreamDefault);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, 0);
    CHECK(cudaMemsetAsync(bytes, 1, BYTES, 0));
    CHECK(cudaMemsetAsync(bytes, 2, BYTES, blocking));
    let_errors_happen();
    assert_int_equal(cudaStreamQuery(blocking), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(blocking));
    check_bytes(bytes, BYTES, 2);
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(blocking));
}

static void default_stream_orders_two_blocking_streams(void **state) {
    (void)state;
    cudaStream_t before = make_stream(cudaStreamDefault);
    cudaStream_t after = make_stream(cudaStreamDefault);
    unsigned char *bytes = make_bytes(BYTES, 0);
    unsigned char *copy = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, before);
    CHECK(cudaMemsetAsync(bytes, 1, BYTES, before));
    CHECK(cudaMemsetAsync(bytes, 2, BYTES / 2, 0));
    CHECK(cudaMemcpyAsync(copy, bytes, BYTES, cudaMemcpyDeviceToDevice, after));
    let_errors_happen();
    assert_int_equal(cudaStreamQuery(after), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(after));
    check_bytes(copy, BYTES / 2, 2);
    check_bytes(copy + BYTES / 2, BYTES / 2, 1);
    CHECK(cudaFree(bytes));
    CHECK(cudaFree(copy));
    CHECK(cudaStreamDestroy(before));
    CHECK(cudaStreamDestroy(after));
}

static void non_blocking_stream_ignores_the_default_stream(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, 0);
    CHECK(cudaMemsetAsync(bytes, 3, BYTES, stream));
    CHECK(cudaStreamSynchronize(stream));
    gate_open(&g);
    check_bytes(bytes, BYTES, 3);
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(stream));
}

static void default_stream_ignores_non_blocking_streams(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, stream);
    CHECK(cudaMemsetAsync(bytes, 4, BYTES, 0));
    CHECK(cudaStreamSynchronize(0));
    check_bytes(bytes, BYTES, 4); /* a copy on the default stream, still with the gate closed */
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(stream));
}

static void event_on_the_default_stream_covers_blocking_streams(void **state) {
    (void)state;
    cudaStream_t blocking = make_stream(cudaStreamDefault);
    cudaStream_t other = make_stream(cudaStreamNonBlocking);
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    unsigned char *from = make_bytes(BYTES, 0);
    unsigned char *to = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, blocking);
    CHECK(cudaMemsetAsync(from, 1, BYTES, blocking));
    CHECK(cudaEventRecord(event, 0));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    CHECK(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, other));
    let_errors_happen();
    assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(other));
    check_bytes(to, BYTES, 1);
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(blocking));
    CHECK(cudaStreamDestroy(other));
}

static void wait_on_the_default_stream_holds_blocking_streams(void **state) {
    (void)state;
    cudaStream_t source = make_stream(cudaStreamNonBlocking);
    cudaStream_t blocking = make_stream(cudaStreamDefault);
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    unsigned char *from = make_bytes(BYTES, 0);
    unsigned char *to = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, source);
    CHECK(cudaMemsetAsync(from, 8, BYTES, source));
    CHECK(cudaEventRecord(event, source));
    CHECK(cudaStreamWaitEvent(0, event, 0));
    CHECK(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, blocking));
    let_errors_happen();
    assert_int_equal(cudaStreamQuery(blocking), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(blocking));
    check_bytes(to, BYTES, 8);
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(source));
    CHECK(cudaStreamDestroy(blocking));
}

static void default_streams_of_devices_are_apart(void **state) {
    (void)state;
    if (device_count() < 2) {
        skip();
    }
    CHECK(cudaSetDevice(1));
    cudaStream_t blocking = make_stream(cudaStreamDefault);
    unsigned char *bytes = make_bytes(BYTES, 0);
    CHECK(cudaSetDevice(0));
    gate g;
    gate_close(&g, 0);
    CHECK(cudaSetDevice(1));
    CHECK(cudaMemsetAsync(bytes, 1, BYTES, blocking));
    CHECK(cudaStreamSynchronize(blocking));
    CHECK(cudaMemsetAsync(bytes, 2, BYTES, 0)); /* the default stream of device 1 */
    CHECK(cudaStreamSynchronize(0));
    gate_open(&g);
    check_bytes(bytes, BYTES, 2);
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(blocking));
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(default_stream_waits_for_blocking_streams),
        RUNTIME_TEST(blocking_streams_wait_for_the_default_stream),
        RUNTIME_TEST(default_stream_orders_two_blocking_streams),
        RUNTIME_TEST(non_blocking_stream_ignores_the_default_stream),
        RUNTIME_TEST(default_stream_ignores_non_blocking_streams),
        RUNTIME_TEST(event_on_the_default_stream_covers_blocking_streams),
        RUNTIME_TEST(wait_on_the_default_stream_holds_blocking_streams),
        RUNTIME_TEST(default_streams_of_devices_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
