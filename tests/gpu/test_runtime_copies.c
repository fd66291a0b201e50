/* Copies and fills: when host memory is read and written, what returns before it is done, directions, peers. */
#include "tests/gpu/runtime.h"

enum { BYTES = 4096, LARGE = 1 << 18 };

static void fill(unsigned char *bytes, size_t count, unsigned seed) {
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (unsigned char)((i * 37 + seed) % 251);
    }
}

static void round_trip_keeps_every_byte(void **state) {
    (void)state;
    size_t sizes[] = {1, 3, 255, 256, 257, 65536, 65537, LARGE};
    unsigned char *there = test_malloc(LARGE);
    unsigned char *back = test_malloc(LARGE);
    unsigned char *one = make_bytes(LARGE, 0);
    unsigned char *two = make_bytes(LARGE, 0);
    cudaStream_t stream = make_stream(cudaStreamDefault);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t count = sizes[i];
        fill(there, count, i);
        memset(back, 0, count);
        CHECK(cudaMemcpy(one, there, count, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpyAsync(two, one, count, cudaMemcpyDeviceToDevice, stream));
        CHECK(cudaMemcpyAsync(back, two, count, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        assert_memory_equal(there, back, count);
        memset(back, 0, count);
        CHECK(cudaMemcpyAsync(two, there, count, cudaMemcpyDefault, stream));
        CHECK(cudaMemcpyAsync(back, two, count, cudaMemcpyDefault, stream));
        CHECK(cudaStreamSynchronize(stream));
        assert_memory_equal(there, back, count);
    }
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(one));
    CHECK(cudaFree(two));
    test_free(there);
    test_free(back);
}

static void hold_at_most_200_ms(void *argument) {
    gate_state *g = argument;
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_nsec += 200000000;
    limit.tv_sec += limit.tv_nsec / 1000000000;
    limit.tv_nsec %= 1000000000;
    while (sem_timedwait(&g->open, &limit) != 0 && errno == EINTR) {
    }
}

/* The call may stage the bytes and return, or wait for the stream; after it the source belongs to the caller again. So the
 * gate opens by itself, for a runtime that waits. */
static void pageable_source_may_change_after_the_call(void **state) {
    (void)state;
    size_t sizes[] = {16, BYTES, 60000, LARGE};
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *device = make_bytes(LARGE, 0);
    unsigned char *host = test_malloc(LARGE);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        gate g;
        gate_make(&g);
        CHECK(cudaLaunchHostFunc(stream, hold_at_most_200_ms, g));
        memset(host, 1, sizes[i]);
        CHECK(cudaMemcpyAsync(device, host, sizes[i], cudaMemcpyHostToDevice, stream));
        memset(host, 2, sizes[i]);
        gate_open(&g);
        CHECK(cudaStreamSynchronize(stream));
        check_bytes(device, sizes[i], 1);
    }
    test_free(host);
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
}

static void check_pinned_reads_late(unsigned char *pinned) {
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *device = make_bytes(BYTES, 0);
    memset(pinned, 1, BYTES);
    gate g;
    gate_close(&g, stream);
    CHECK(cudaMemcpyAsync(device, pinned, BYTES, cudaMemcpyHostToDevice, stream)); /* hangs if it waited */
    memset(pinned, 2, BYTES);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(stream));
    check_bytes(device, BYTES, 2);

    CHECK(cudaMemset(device, 3, BYTES));
    CHECK(cudaDeviceSynchronize());
    gate_close(&g, stream);
    CHECK(cudaMemcpyAsync(pinned, device, BYTES, cudaMemcpyDeviceToHost, stream));
    let_errors_happen();
    assert_int_equal(pinned[0], 2);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(stream));
    assert_int_equal(pinned[0], 3);
    assert_int_equal(pinned[BYTES - 1], 3);
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
}

static void pinned_memory_is_read_when_the_stream_gets_there(void **state) {
    (void)state;
    unsigned char *pinned = NULL;
    CHECK(cudaMallocHost((void **)&pinned, 3 * BYTES));
    check_pinned_reads_late(pinned);
    check_pinned_reads_late(pinned + 2 * BYTES); /* any part of the range */
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaHostAlloc((void **)&pinned, BYTES, cudaHostAllocPortable));
    check_pinned_reads_late(pinned);
    CHECK(cudaFreeHost(pinned));
}

static void registered_memory_is_pinned(void **state) {
    (void)state;
    unsigned char *memory = test_malloc(BYTES);
    CHECK(cudaHostRegister(memory, BYTES, cudaHostRegisterDefault));
    check_pinned_reads_late(memory);
    CHECK(cudaHostUnregister(memory));
    test_free(memory);
}

static void copy_to_pageable_memory_returns_complete(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *device = make_bytes(LARGE, 0);
    unsigned char *host = test_malloc(LARGE);
    for (int value = 1; value < 20; value++) {
        CHECK(cudaMemsetAsync(device, value, LARGE, stream));
        CHECK(cudaMemcpyAsync(host, device, LARGE, cudaMemcpyDeviceToHost, stream));
        assert_int_equal(host[0], value);
        assert_int_equal(host[LARGE - 1], value);
    }
    test_free(host);
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
}

static void host_to_host_returns_complete(void **state) {
    (void)state;
    unsigned char *pinned = NULL;
    CHECK(cudaMallocHost((void **)&pinned, BYTES));
    unsigned char from[64];
    memset(from, 9, sizeof from);
    CHECK(cudaMemcpy(pinned, from, sizeof from, cudaMemcpyHostToHost));
    assert_memory_equal(pinned, from, sizeof from);
    memset(from, 8, sizeof from);
    CHECK(cudaMemcpyAsync(pinned, from, sizeof from, cudaMemcpyHostToHost, 0));
    assert_memory_equal(pinned, from, sizeof from);
    CHECK(cudaFreeHost(pinned));
}

static void device_to_device_and_memset_do_not_wait(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamDefault);
    unsigned char *from = make_bytes(BYTES, 1);
    unsigned char *to = make_bytes(BYTES, 2);
    gate g;
    gate_close(&g, stream); /* the default stream waits for it */
    CHECK(cudaMemset(from, 3, BYTES));
    CHECK(cudaMemcpy(to, from, BYTES, cudaMemcpyDeviceToDevice));
    assert_int_equal(cudaStreamQuery(0), cudaErrorNotReady);
    gate_open(&g);
    check_bytes(to, BYTES, 3);
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    CHECK(cudaStreamDestroy(stream));
}

static void bad_copies_are_refused(void **state) {
    (void)state;
    unsigned char host[64] = {0};
    unsigned char *device = make_bytes(256, 5);
    CHECK_REFUSED(cudaMemcpy(device, host, 64, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    CHECK_REFUSED(cudaMemcpy(NULL, host, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaMemcpy(host, NULL, 64, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaMemcpy(device, host, 64, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaMemset(host, 0, 64), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaMemsetAsync(NULL, 0, 64, 0), cudaErrorInvalidValue);
    CHECK(cudaMemcpy(device, host, 0, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(device, 1, 0));
    check_bytes(device, 256, 5);
    CHECK(cudaFree(device));
}

static void peer_copies_move_bytes_between_devices(void **state) {
    (void)state;
    if (device_count() < 2) {
        skip();
    }
    unsigned char *zero = make_bytes(LARGE, 1);
    CHECK(cudaSetDevice(1));
    unsigned char *one = make_bytes(LARGE, 2);
    cudaStream_t there = make_stream(cudaStreamNonBlocking);
    CHECK(cudaSetDevice(0));
    cudaStream_t here = make_stream(cudaStreamNonBlocking);
    cudaEvent_t written = make_event(cudaEventDisableTiming);
    gate g;
    gate_close(&g, here);
    CHECK(cudaMemsetAsync(zero, 7, LARGE, here));
    CHECK(cudaEventRecord(written, here));
    CHECK(cudaStreamWaitEvent(there, written, 0));
    CHECK(cudaMemcpyPeerAsync(one, 1, zero, 0, LARGE, there)); /* returns with the gate closed */
    assert_int_equal(cudaStreamQuery(there), cudaErrorNotReady);
    gate_open(&g);
    CHECK(cudaStreamSynchronize(there));
    check_bytes(one, LARGE, 7);
    CHECK(cudaMemset(zero, 8, LARGE));
    CHECK(cudaMemcpyPeer(one, 1, zero, 0, LARGE));
    check_bytes(one, LARGE, 8);
    CHECK(cudaMemset(zero, 9, LARGE));
    CHECK(cudaMemcpy(one, zero, LARGE, cudaMemcpyDefault));
    check_bytes(one, LARGE, 9);
    CHECK_REFUSED(cudaMemcpyPeer(one, device_count(), zero, 0, LARGE), cudaErrorInvalidDevice);
    CHECK_REFUSED(cudaMemcpyPeerAsync(one, 1, zero, -1, LARGE, here), cudaErrorInvalidDevice);
    CHECK(cudaFree(zero));
    CHECK(cudaFree(one));
    CHECK(cudaEventDestroy(written));
    CHECK(cudaStreamDestroy(here));
    CHECK(cudaStreamDestroy(there));
}

/* A peer copy is ordered with all work of both devices, whatever its stream. */
static void peer_copy_waits_for_both_devices(void **state) {
    (void)state;
    if (device_count() < 2) {
        skip();
    }
    unsigned char *zero = make_bytes(LARGE, 1);
    cudaStream_t here = make_stream(cudaStreamNonBlocking);
    CHECK(cudaSetDevice(1));
    unsigned char *one = make_bytes(LARGE, 2);
    CHECK(cudaSetDevice(0));
    for (int value = 3; value < 30; value++) {
        CHECK(cudaMemsetAsync(zero, value, LARGE, here));
        CHECK(cudaMemcpyPeer(one, 1, zero, 0, LARGE));
        CHECK(cudaMemsetAsync(zero, 0, LARGE, here));
        CHECK(cudaStreamSynchronize(here));
        check_bytes(one, LARGE, value);
    }
    CHECK(cudaFree(zero));
    CHECK(cudaFree(one));
    CHECK(cudaStreamDestroy(here));
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(round_trip_keeps_every_byte),
        RUNTIME_TEST(pageable_source_may_change_after_the_call),
        RUNTIME_TEST(pinned_memory_is_read_when_the_stream_gets_there),
        RUNTIME_TEST(registered_memory_is_pinned),
        RUNTIME_TEST(copy_to_pageable_memory_returns_complete),
        RUNTIME_TEST(host_to_host_returns_complete),
        RUNTIME_TEST(device_to_device_and_memset_do_not_wait),
        RUNTIME_TEST(bad_copies_are_refused),
        RUNTIME_TEST(peer_copies_move_bytes_between_devices),
        RUNTIME_TEST(peer_copy_waits_for_both_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
