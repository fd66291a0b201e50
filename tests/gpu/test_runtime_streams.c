/* Streams: order within one, independence and waits between several, the legacy default stream, host functions. */
#include "tests/gpu/runtime.h"

enum { BYTES = 4096 };

static void operations_run_in_order(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamDefault);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, stream);
    for (int value = 1; value <= 200; value++) {
        CHECK(cudaMemsetAsync(bytes, value, BYTES, stream));
    }
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamQuery(stream));
    check_bytes(bytes, BYTES, 200);
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(stream));
}

typedef struct note {
    int *next;
    int seen;
} note;

static void write_note(void *argument) {
    note *n = argument;
    n->seen = (*n->next)++;
}

static void host_functions_run_in_order_with_other_work(void **state) {
    (void)state;
    enum { NOTES = 100 };
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *pinned = NULL;
    CHECK(cudaMallocHost((void **)&pinned, BYTES));
    unsigned char *bytes = make_bytes(BYTES, 0);
    note notes[NOTES];
    int next = 0;
    for (int i = 0; i < NOTES; i++) {
        notes[i] = (note){&next, -1};
        CHECK(cudaLaunchHostFunc(stream, write_note, &notes[i]));
        CHECK(cudaMemsetAsync(bytes, i, BYTES, stream));
    }
    CHECK(cudaMemcpyAsync(pinned, bytes, BYTES, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < NOTES; i++) {
        assert_int_equal(notes[i].seen, i);
    }
    assert_int_equal(pinned[BYTES - 1], NOTES - 1);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(stream));
}

static void streams_are_independent(void **state) {
    (void)state;
    cudaStream_t held = make_stream(cudaStreamDefault);
    cudaStream_t other = make_stream(cudaStreamDefault);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, held);
    CHECK(cudaMemsetAsync(bytes, 5, BYTES, other));
    CHECK(cudaStreamSynchronize(other)); /* hangs if it waited for the held one */
    assert_int_equal(cudaStreamQuery(held), cudaErrorNotReady);
    gate_open(&g);
    check_bytes(bytes, BYTES, 5);
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(held));
    CHECK(cudaStreamDestroy(other));
}

static void wait_event_orders_two_streams(void **state) {
    (void)state;
    cudaStream_t first = make_stream(cudaStreamNonBlocking);
    cudaStream_t second = make_stream(cudaStreamNonBlocking);
    cudaEvent_t written = make_event(cudaEventDisableTiming);
    unsigned char *from = make_bytes(BYTES, 1);
    unsigned char *to = make_bytes(BYTES, 2);
    gate g;
    gate_close(&g, first);
    CHECK(cudaMemsetAsync(from, 7, BYTES, first));
    CHECK(cudaEventRecord(written, first));
    CHECK(cudaStreamWaitEvent(second, written, 0));
    CHECK(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, second));
    let_errors_happen();
    assert_int_equal(cudaStreamQuery(second), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(second));
    check_bytes(to, BYTES, 7);
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    CHECK(cudaEventDestroy(written));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

static void wait_event_leaves_earlier_work_alone(void **state) {
    (void)state;
    cudaStream_t first = make_stream(cudaStreamNonBlocking);
    cudaStream_t second = make_stream(cudaStreamNonBlocking);
    cudaEvent_t late = make_event(cudaEventDisableTiming);
    cudaEvent_t early = make_event(cudaEventDisableTiming);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, first);
    CHECK(cudaEventRecord(late, first));
    CHECK(cudaMemsetAsync(bytes, 3, BYTES, second));
    CHECK(cudaEventRecord(early, second));
    CHECK(cudaStreamWaitEvent(second, late, 0));
    CHECK(cudaMemsetAsync(bytes, 4, BYTES, second));
    CHECK(cudaEventSynchronize(early)); /* queued before the wait */
    assert_int_equal(cudaStreamQuery(second), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(second));
    check_bytes(bytes, BYTES, 4);
    CHECK(cudaFree(bytes));
    CHECK(cudaEventDestroy(late));
    CHECK(cudaEventDestroy(early));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

static void wait_binds_to_the_record_at_the_call(void **state) {
    (void)state;
    cudaStream_t first = make_stream(cudaStreamNonBlocking);
    cudaStream_t second = make_stream(cudaStreamNonBlocking);
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate one, two;
    gate_close(&one, first);
    CHECK(cudaEventRecord(event, first));
    CHECK(cudaStreamWaitEvent(second, event, 0));
    CHECK(cudaMemsetAsync(bytes, 9, BYTES, second));
    gate_close(&two, first);
    CHECK(cudaEventRecord(event, first));
    let_errors_happen();
    assert_int_equal(cudaStreamQuery(second), cudaErrorNotReady);
    gate_open(&one);
    CHECK(cudaStreamSynchronize(second)); /* hangs if it waited for the second record */
    assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    gate_open(&two);
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaFree(bytes));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

static void waiting_for_an_event_never_recorded_is_no_wait(void **state) {
    (void)state;
    cudaStream_t first = make_stream(cudaStreamNonBlocking);
    cudaStream_t second = make_stream(cudaStreamNonBlocking);
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, first);
    CHECK(cudaStreamWaitEvent(second, event, 0));
    CHECK(cudaEventRecord(event, first));
    CHECK(cudaMemsetAsync(bytes, 9, BYTES, second));
    CHECK(cudaStreamSynchronize(second));
    gate_open(&g);
    CHECK(cudaEventSynchronize(event));
    check_bytes(bytes, BYTES, 9);
    CHECK(cudaFree(bytes));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

static void destroyed_stream_finishes_its_work(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    cudaStream_t other = make_stream(cudaStreamNonBlocking);
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    gate_close(&g, stream);
    CHECK(cudaMemsetAsync(bytes, 6, BYTES, stream));
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamDestroy(stream)); /* returns at once */
    assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    cudaStream_t next = make_stream(cudaStreamNonBlocking); /* must not disturb what is still queued */
    CHECK(cudaStreamWaitEvent(other, event, 0));
    gate_open(&g);
    CHECK(cudaStreamSynchronize(other));
    CHECK(cudaEventSynchronize(event));
    check_bytes(bytes, BYTES, 6);
    CHECK(cudaFree(bytes));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(next));
    CHECK(cudaStreamDestroy(other));
}

static void device_synchronize_waits_for_every_stream(void **state) {
    (void)state;
    enum { STREAMS = 20 };
    cudaStream_t streams[STREAMS];
    unsigned char *bytes = make_bytes(STREAMS * BYTES, 0);
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = make_stream(i % 2 == 0 ? cudaStreamDefault : cudaStreamNonBlocking);
        for (int value = 1; value <= 50; value++) {
            CHECK(cudaMemsetAsync(bytes + i * BYTES, value, BYTES, streams[i]));
        }
    }
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaStreamQuery(streams[i]));
        CHECK(cudaStreamDestroy(streams[i]));
    }
    check_bytes(bytes, STREAMS * BYTES, 50);
    CHECK(cudaFree(bytes));
}

static void priorities_and_flags_are_kept(void **state) {
    (void)state;
    int least = -1000;
    int greatest = 1000;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    assert_true(greatest <= least);
    cudaStream_t stream = NULL;
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 10));
    int priority = 1000;
    unsigned flags = 1000;
    CHECK(cudaStreamGetPriority(stream, &priority));
    CHECK(cudaStreamGetFlags(stream, &flags));
    assert_int_equal(priority, greatest); /* clamped */
    assert_int_equal(flags, cudaStreamNonBlocking);
    CHECK(cudaStreamDestroy(stream));
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(operations_run_in_order),
        RUNTIME_TEST(host_functions_run_in_order_with_other_work),
        RUNTIME_TEST(streams_are_independent),
        RUNTIME_TEST(wait_event_orders_two_streams),
        RUNTIME_TEST(wait_event_leaves_earlier_work_alone),
        RUNTIME_TEST(wait_binds_to_the_record_at_the_call),
        RUNTIME_TEST(waiting_for_an_event_never_recorded_is_no_wait),
        RUNTIME_TEST(destroyed_stream_finishes_its_work),
        RUNTIME_TEST(device_synchronize_waits_for_every_stream),
        RUNTIME_TEST(priorities_and_flags_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
