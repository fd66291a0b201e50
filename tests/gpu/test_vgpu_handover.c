/* The cost of handing operations to streams: figures for whoever changes the queue, printed and not judged, since they
 * depend on what else the machine does. The work handed over is counted. */
#include <stdio.h>

#include "gpu/vgpu/internal.h"
#include "tests/gpu/runtime.h"

typedef struct counting {
    unsigned long long *count;
    unsigned char rest[56]; /* a kernel's usual arguments */
} counting;

static cudaError_t count_one(void *payload) {
    counting *c = payload;
    ++*c->count;
    return cudaSuccess;
}

static void show(const char *what, unsigned long long start, int operations) {
    printf("%-58s %8.0f ns\n", what, (double)(vgpu_now_ns() - start) / operations);
}

static void submit_to_a_busy_stream(void **state) {
    (void)state;
    enum { OPERATIONS = 50000 };
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned long long count = 0;
    counting c = {.count = &count};
    unsigned long long start = vgpu_now_ns();
    for (int i = 0; i < OPERATIONS; i++) {
        CHECK(vgpu_submit(stream, "count", count_one, &c, sizeof c));
    }
    CHECK(cudaStreamSynchronize(stream));
    show("hand-over to a busy stream", start, OPERATIONS);
    assert_int_equal(count, OPERATIONS);
    CHECK(cudaStreamDestroy(stream));
}

static void submit_and_synchronize(void **state) {
    (void)state;
    enum { OPERATIONS = 5000 };
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned long long count = 0;
    counting c = {.count = &count};
    unsigned long long start = vgpu_now_ns();
    for (int i = 0; i < OPERATIONS; i++) {
        CHECK(vgpu_submit(stream, "count", count_one, &c, sizeof c));
        CHECK(cudaStreamSynchronize(stream));
    }
    show("submit and synchronize, round trip", start, OPERATIONS);
    assert_int_equal(count, OPERATIONS);
    CHECK(cudaStreamDestroy(stream));
}

/* The same counter from every device in turn: it is exact only if every wait holds. */
static void hop_between_devices(void **state) {
    (void)state;
    enum { DEVICES = 16, HOPS = 8000 };
    int devices = device_count() < DEVICES ? device_count() : DEVICES;
    cudaStream_t streams[DEVICES];
    cudaEvent_t events[DEVICES];
    for (int d = 0; d < devices; d++) {
        CHECK(cudaSetDevice(d));
        streams[d] = make_stream(cudaStreamNonBlocking);
        events[d] = make_event(cudaEventDisableTiming);
    }
    unsigned long long count = 0;
    counting c = {.count = &count};
    unsigned long long start = vgpu_now_ns();
    for (int hop = 0; hop < HOPS; hop++) {
        int d = hop % devices;
        CHECK(cudaStreamWaitEvent(streams[d], events[(d + devices - 1) % devices], 0));
        CHECK(cudaSetDevice(d));
        CHECK(vgpu_submit(streams[d], "count", count_one, &c, sizeof c));
        CHECK(cudaEventRecord(events[d], streams[d]));
    }
    CHECK(cudaEventSynchronize(events[(HOPS - 1) % devices]));
    show("operation after an event of another device", start, HOPS);
    assert_int_equal(count, HOPS);
    for (int d = 0; d < devices; d++) {
        CHECK(cudaStreamDestroy(streams[d]));
        CHECK(cudaEventDestroy(events[d]));
    }
}

static void feed_all_devices(void **state) {
    (void)state;
    enum { DEVICES = 16, OPERATIONS = 80000 };
    int devices = device_count() < DEVICES ? device_count() : DEVICES;
    cudaStream_t streams[DEVICES];
    unsigned long long counts[DEVICES][8] = {{0}}; /* a cache line each */
    for (int d = 0; d < devices; d++) {
        CHECK(cudaSetDevice(d));
        streams[d] = make_stream(cudaStreamDefault);
    }
    unsigned long long start = vgpu_now_ns();
    for (int i = 0; i < OPERATIONS; i++) {
        counting c = {.count = counts[i % devices]};
        CHECK(cudaSetDevice(i % devices));
        CHECK(vgpu_submit(streams[i % devices], "count", count_one, &c, sizeof c));
    }
    unsigned long long total = 0;
    for (int d = 0; d < devices; d++) {
        CHECK(cudaStreamSynchronize(streams[d]));
        total += counts[d][0];
    }
    show("hand-over to all devices in turn", start, OPERATIONS);
    assert_int_equal(total, OPERATIONS);
    for (int d = 0; d < devices; d++) {
        CHECK(cudaStreamDestroy(streams[d]));
    }
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(submit_to_a_busy_stream),
        RUNTIME_TEST(submit_and_synchronize),
        RUNTIME_TEST(hop_between_devices),
        RUNTIME_TEST(feed_all_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
