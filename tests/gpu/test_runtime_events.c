/* Events: queries, records that replace one another, timing, destruction while pending. */
#include "tests/gpu/runtime.h"

static void event_never_recorded_is_complete(void **state) {
    (void)state;
    cudaEvent_t event = make_event(cudaEventDefault);
    CHECK(cudaEventQuery(event));
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaEventDestroy(event));
}

static void query_follows_the_stream(void **state) {
    (void)state;
    unsigned flags[] = {cudaEventDefault, cudaEventDisableTiming, cudaEventBlockingSync,
                        cudaEventBlockingSync | cudaEventDisableTiming};
    cudaStream_t stream = make_stream(cudaStreamDefault);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        cudaEvent_t before = make_event(flags[i]);
        cudaEvent_t after = make_event(flags[i]);
        gate g;
        CHECK(cudaEventRecord(before, stream));
        gate_close(&g, stream);
        CHECK(cudaEventRecord(after, stream));
        CHECK(cudaEventSynchronize(before));
        let_errors_happen();
        CHECK_REFUSED(cudaEventQuery(after), cudaErrorNotReady);
        gate_open(&g);
        CHECK(cudaEventSynchronize(after));
        CHECK(cudaEventQuery(after));
        CHECK(cudaEventDestroy(before));
        CHECK(cudaEventDestroy(after));
    }
    CHECK(cudaStreamDestroy(stream));
}

static void latest_record_counts(void **state) {
    (void)state;
    cudaStream_t held = make_stream(cudaStreamNonBlocking);
    cudaStream_t idle = make_stream(cudaStreamNonBlocking);
    cudaEvent_t event = make_event(cudaEventDefault);
    gate g;
    gate_close(&g, held);
    CHECK(cudaEventRecord(event, held));
    CHECK_REFUSED(cudaEventQuery(event), cudaErrorNotReady);
    CHECK(cudaEventRecord(event, idle));
    CHECK(cudaEventSynchronize(event)); /* hangs if the first record still counted */
    gate_open(&g);
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(held));
    CHECK(cudaStreamDestroy(idle));
}

static void pause_20_ms(void *unused) {
    (void)unused;
    struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, NULL);
}

static void elapsed_time_measures_the_stream(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    cudaEvent_t start = make_event(cudaEventDefault);
    cudaEvent_t end = make_event(cudaEventDefault);
    float ms = -1;
    CHECK(cudaEventRecord(start, stream));
    CHECK(cudaLaunchHostFunc(stream, pause_20_ms, NULL));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, start, end));
    /* The pause lies between the two; events resolve about 0.5 us. */
    assert_true(ms >= 19.999F);
    CHECK(cudaEventElapsedTime(&ms, end, start));
    assert_true(ms <= -19.999F);
    CHECK(cudaEventElapsedTime(&ms, start, start));
    assert_true(ms >= 0.0F && ms <= 0.0F);
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(stream));
}

static void elapsed_time_is_refused_without_two_times(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    cudaEvent_t start = make_event(cudaEventDefault);
    cudaEvent_t end = make_event(cudaEventDefault);
    cudaEvent_t untimed = make_event(cudaEventDisableTiming);
    float ms = 0;
    CHECK(cudaEventRecord(start, stream));
    CHECK(cudaEventRecord(untimed, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK_REFUSED(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle); /* end was never recorded */
    CHECK_REFUSED(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaEventElapsedTime(NULL, start, start), cudaErrorInvalidValue);
    gate g;
    gate_close(&g, stream);
    CHECK(cudaEventRecord(end, stream));
    CHECK_REFUSED(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, start, end));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaEventDestroy(untimed));
    CHECK(cudaStreamDestroy(stream));
}

static void destroyed_event_still_orders(void **state) {
    (void)state;
    enum { BYTES = 1024 };
    cudaStream_t first = make_stream(cudaStreamNonBlocking);
    cudaStream_t second = make_stream(cudaStreamNonBlocking);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    for (unsigned round = 0; round < 2; round++) {
        cudaEvent_t event = make_event(round == 0 ? cudaEventDefault : cudaEventDisableTiming);
        gate_close(&g, first);
        CHECK(cudaMemsetAsync(bytes, 1, BYTES, first));
        CHECK(cudaEventRecord(event, first));
        CHECK(cudaStreamWaitEvent(second, event, 0));
        CHECK(cudaMemsetAsync(bytes, 2, BYTES, second));
        CHECK(cudaEventDestroy(event));
        cudaEvent_t next = make_event(cudaEventDefault); /* may reuse what was destroyed */
        CHECK(cudaEventQuery(next));
        let_errors_happen();
        assert_int_equal(cudaStreamQuery(second), cudaErrorNotReady);
        gate_open(&g);
        CHECK(cudaStreamSynchronize(second));
        check_bytes(bytes, BYTES, 2);
        CHECK(cudaEventDestroy(next));
    }
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

static void event_belongs_to_its_device(void **state) {
    (void)state;
    if (device_count() < 2) {
        skip();
    }
    cudaEvent_t event = make_event(cudaEventDefault);
    cudaStream_t here = make_stream(cudaStreamNonBlocking);
    CHECK(cudaSetDevice(1));
    cudaStream_t there = make_stream(cudaStreamNonBlocking);
    CHECK_REFUSED(cudaEventRecord(event, there), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaEventRecord(event, 0), cudaErrorInvalidResourceHandle); /* device 1's default stream */
    CHECK(cudaEventRecord(event, here));
    CHECK(cudaStreamWaitEvent(there, event, 0)); /* waits may cross devices */
    CHECK(cudaStreamSynchronize(there));
    CHECK(cudaStreamDestroy(there));
    CHECK(cudaStreamDestroy(here));
    CHECK(cudaEventDestroy(event));
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(event_never_recorded_is_complete),
        RUNTIME_TEST(query_follows_the_stream),
        RUNTIME_TEST(latest_record_counts),
        RUNTIME_TEST(elapsed_time_measures_the_stream),
        RUNTIME_TEST(elapsed_time_is_refused_without_two_times),
        RUNTIME_TEST(destroyed_event_still_orders),
        RUNTIME_TEST(event_belongs_to_its_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
