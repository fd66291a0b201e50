/* Capture of streams into graphs, as the CUDA Programming Guide describes it: what is captured, and in what order it runs when
 * the graph is launched. */
#include <nccl.h>

#include "gpu/kernels/kernels.h"
#include "tests/gpu/graph_test.h"

/* count floats, each +1 for every time that the addition has run. */
typedef struct counter {
    float *one, *sum;
} counter;
enum { FLOATS = 100 };

static counter make_counter(void) {
    float ones[FLOATS];
    for (size_t i = 0; i < FLOATS; i++) {
        ones[i] = 1;
    }
    counter c = {NULL, NULL};
    CHECK(cudaMalloc((void **)&c.one, sizeof ones));
    CHECK(cudaMalloc((void **)&c.sum, sizeof ones));
    CHECK(cudaMemcpy(c.one, ones, sizeof ones, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(c.sum, 0, sizeof ones));
    CHECK(cudaDeviceSynchronize());
    return c;
}

static void count_once(counter c, cudaStream_t stream) {
    CHECK(ls_kernel_add(stream, LS_FLOAT32, FLOATS, c.one, c.sum));
}

static void expect_count(counter c, float expected) {
    float sums[FLOATS];
    CHECK(cudaMemcpy(sums, c.sum, sizeof sums, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < FLOATS; i++) {
        assert_true(sums[i] == expected);
    }
}

static void free_counter(counter c) {
    CHECK(cudaFree(c.one));
    CHECK(cudaFree(c.sum));
}

static void captured_work_runs_at_every_launch_and_not_before(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    counter c = make_counter();
    begin(stream);
    expect_status(stream, cudaStreamCaptureStatusActive);
    count_once(c, stream);
    count_once(c, stream);
    cudaGraphExec_t exec = end(stream);
    expect_status(stream, cudaStreamCaptureStatusNone);
    CHECK(cudaStreamSynchronize(stream));
    expect_count(c, 0);
    for (int launch = 1; launch <= 3; launch++) {
        CHECK(cudaGraphLaunch(exec, stream));
        count_once(c, stream); /* eager work goes on in the same stream */
        CHECK(cudaStreamSynchronize(stream));
        expect_count(c, 3.0F * (float)launch);
    }
    CHECK(cudaGraphExecDestroy(exec));
    free_counter(c);
    CHECK(cudaStreamDestroy(stream));
}

static void a_graph_runs_in_its_place_in_the_stream(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *from = make_bytes(BYTES, 1);
    unsigned char *to = make_bytes(BYTES, 2);
    begin(stream);
    CHECK(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, stream));
    cudaGraphExec_t exec = end(stream);
    gate g;
    gate_close(&g, stream);
    CHECK(cudaMemsetAsync(from, 3, BYTES, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemsetAsync(from, 4, BYTES, stream));
    let_errors_happen();
    gate_open(&g);
    CHECK(cudaStreamSynchronize(stream));
    check_bytes(to, BYTES, 3);
    check_bytes(from, BYTES, 4);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    CHECK(cudaStreamDestroy(stream));
}

static void pinned_memory_is_read_at_the_launch(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *device = make_bytes(BYTES, 0);
    void *pinned = NULL;
    CHECK(cudaMallocHost(&pinned, BYTES));
    memset(pinned, 1, BYTES);
    begin(stream);
    CHECK(cudaMemcpyAsync(device, pinned, BYTES, cudaMemcpyHostToDevice, stream));
    cudaGraphExec_t exec = end(stream);
    for (int value = 5; value < 8; value++) {
        memset(pinned, value, BYTES);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        check_bytes(device, BYTES, value);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
}

/* origin: fork, then a fill of `own`; other: held by the gate, then a fill of `forked`; origin, joined: a copy of `forked`. */
static void a_fork_runs_beside_its_origin_and_a_join_waits_for_it(void **state) {
    (void)state;
    cudaStream_t origin = make_stream(cudaStreamNonBlocking);
    cudaStream_t other = make_stream(cudaStreamNonBlocking);
    cudaEvent_t fork = make_event(cudaEventDisableTiming);
    cudaEvent_t join = make_event(cudaEventDisableTiming);
    unsigned char *own = make_bytes(BYTES, 0);
    unsigned char *forked = make_bytes(BYTES, 0);
    unsigned char *joined = make_bytes(BYTES, 0);
    void *seen = NULL;
    CHECK(cudaMallocHost(&seen, BYTES));
    gate g;
    begin(origin);
    CHECK(cudaEventRecord(fork, origin));
    CHECK(cudaStreamWaitEvent(other, fork, 0));
    expect_status(other, cudaStreamCaptureStatusActive);
    gate_close(&g, other);
    CHECK(cudaMemsetAsync(forked, 6, BYTES, other));
    CHECK(cudaMemsetAsync(own, 5, BYTES, origin));
    CHECK(cudaEventRecord(join, other));
    CHECK(cudaStreamWaitEvent(origin, join, 0));
    CHECK(cudaMemcpyAsync(joined, forked, BYTES, cudaMemcpyDeviceToDevice, origin));
    cudaGraphExec_t exec = end(origin);
    expect_status(other, cudaStreamCaptureStatusNone);
    CHECK(cudaGraphLaunch(exec, origin));
    CHECK(cudaMemcpyAsync(seen, joined, BYTES, cudaMemcpyDeviceToHost, origin));
    let_errors_happen();
    assert_int_equal(cudaStreamQuery(origin), cudaErrorNotReady);
    (void)cudaGetLastError();
    CHECK(cudaStreamSynchronize(other)); /* the stream itself has nothing to do with the launch */
    gate_open(&g);
    CHECK(cudaStreamSynchronize(origin));
    assert_int_equal(((unsigned char *)seen)[BYTES - 1], 6);
    check_bytes(own, BYTES, 5);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFree(own));
    CHECK(cudaFree(forked));
    CHECK(cudaFree(joined));
    CHECK(cudaFreeHost(seen));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(origin));
    CHECK(cudaStreamDestroy(other));
}

/* A fork may come before any work of its origin, and still starts after the work before the launch. */
static void a_fork_starts_after_what_the_stream_had_before_the_launch(void **state) {
    (void)state;
    cudaStream_t origin = make_stream(cudaStreamNonBlocking);
    cudaStream_t other = make_stream(cudaStreamNonBlocking);
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    unsigned char *from = make_bytes(BYTES, 1);
    unsigned char *to = make_bytes(BYTES, 0);
    begin(origin);
    CHECK(cudaEventRecord(event, origin));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    CHECK(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, other));
    CHECK(cudaEventRecord(event, other));
    CHECK(cudaStreamWaitEvent(origin, event, 0));
    cudaGraphExec_t exec = end(origin);
    gate g;
    gate_close(&g, origin);
    CHECK(cudaMemsetAsync(from, 8, BYTES, origin));
    CHECK(cudaGraphLaunch(exec, origin));
    CHECK(cudaMemsetAsync(from, 9, BYTES,
                          origin)); /* after the whole graph, whichever stream its last node was captured on */
    let_errors_happen();
    gate_open(&g);
    CHECK(cudaStreamSynchronize(origin));
    check_bytes(to, BYTES, 8);
    check_bytes(from, BYTES, 9);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(origin));
    CHECK(cudaStreamDestroy(other));
}

static void launches_of_one_graph_follow_each_other_over_streams(void **state) {
    (void)state;
    cudaStream_t first = make_stream(cudaStreamNonBlocking);
    cudaStream_t second = make_stream(cudaStreamNonBlocking);
    counter c = make_counter();
    begin(first);
    count_once(c, first);
    cudaGraphExec_t exec = end(first);
    gate g;
    gate_close(&g, first);
    CHECK(cudaGraphLaunch(exec, first));
    CHECK(cudaGraphLaunch(exec, second));
    let_errors_happen();
    assert_int_equal(cudaStreamQuery(second), cudaErrorNotReady);
    (void)cudaGetLastError();
    gate_open(&g);
    CHECK(cudaStreamSynchronize(second));
    expect_count(c, 2);
    CHECK(cudaGraphLaunch(exec, 0)); /* the legacy stream takes it, too */
    CHECK(cudaDeviceSynchronize());
    expect_count(c, 3);
    CHECK(cudaGraphExecDestroy(exec));
    free_counter(c);
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

static void one_capture_spans_devices(void **state) {
    (void)state;
    if (device_count() < 2) {
        skip();
    }
    unsigned char *from = make_bytes(BYTES, 1);
    unsigned char *back = make_bytes(BYTES, 0);
    cudaStream_t first = make_stream(cudaStreamNonBlocking);
    cudaEvent_t fork = make_event(cudaEventDisableTiming);
    CHECK(cudaSetDevice(1));
    unsigned char *there = make_bytes(BYTES, 0);
    cudaStream_t second = make_stream(cudaStreamNonBlocking);
    cudaEvent_t join = make_event(cudaEventDisableTiming);
    CHECK(cudaSetDevice(0));
    begin(first);
    CHECK(cudaMemsetAsync(from, 7, BYTES, first));
    CHECK(cudaEventRecord(fork, first));
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamWaitEvent(second, fork, 0));
    CHECK(cudaMemcpyPeerAsync(there, 1, from, 0, BYTES, second));
    CHECK(cudaEventRecord(join, second));
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamWaitEvent(first, join, 0));
    CHECK(cudaMemcpyPeerAsync(back, 0, there, 1, BYTES, first));
    cudaGraphExec_t exec = end(first);
    for (int launch = 0; launch < 2; launch++) {
        CHECK(cudaMemsetAsync(back, 0, BYTES, first));
        CHECK(cudaGraphLaunch(exec, first));
        CHECK(cudaStreamSynchronize(first));
        check_bytes(back, BYTES, 7);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFree(from));
    CHECK(cudaFree(back));
    CHECK(cudaFree(there));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
}

/* Collectives. */

enum { RANKS = 2 };

static void check_nccl(ncclResult_t result) {
    assert_int_equal(result, ncclSuccess);
}

/* sum = allreduce(sum + one) on every rank, between a fork to `side` and a join; ranks in one capture, which device 0 begins. */
static void capture_allreduce(int ranks, ncclComm_t *comms, cudaStream_t *streams, cudaEvent_t *events, counter *c) {
    begin(streams[0]);
    count_once(c[0], streams[0]);
    CHECK(cudaEventRecord(events[0], streams[0]));
    for (int r = 1; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        CHECK(cudaStreamWaitEvent(streams[r], events[0], 0));
        count_once(c[r], streams[r]);
    }
    check_nccl(ncclGroupStart());
    for (int r = 0; r < ranks; r++) {
        check_nccl(ncclAllReduce(c[r].sum, c[r].sum, FLOATS, ncclFloat32, ncclSum, comms[r], streams[r]));
    }
    check_nccl(ncclGroupEnd());
    for (int r = 1; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        CHECK(cudaEventRecord(events[r], streams[r]));
        CHECK(cudaSetDevice(0));
        CHECK(cudaStreamWaitEvent(streams[0], events[r], 0));
    }
}

/* The largest sum to every rank, eagerly, after the graph; the first stream then goes on after it. */
static void take_largest(int ranks, ncclComm_t *comms, cudaStream_t *streams, cudaEvent_t *events, counter *c) {
    CHECK(cudaEventRecord(events[0], streams[0]));
    for (int r = 1; r < ranks; r++) {
        CHECK(cudaStreamWaitEvent(streams[r], events[0], 0));
    }
    check_nccl(ncclGroupStart());
    for (int r = 0; r < ranks; r++) {
        check_nccl(ncclAllReduce(c[r].sum, c[r].sum, FLOATS, ncclFloat32, ncclMax, comms[r], streams[r]));
    }
    check_nccl(ncclGroupEnd());
    for (int r = 1; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        CHECK(cudaEventRecord(events[r], streams[r]));
        CHECK(cudaSetDevice(0));
        CHECK(cudaStreamWaitEvent(streams[0], events[r], 0));
    }
}

static void collectives_are_captured(void **state) {
    (void)state;
    int ranks = device_count() < RANKS ? 1 : RANKS;
    ncclComm_t comms[RANKS];
    cudaStream_t streams[RANKS];
    cudaEvent_t events[RANKS];
    counter c[RANKS];
    check_nccl(ncclCommInitAll(comms, ranks, NULL));
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        streams[r] = make_stream(cudaStreamNonBlocking);
        events[r] = make_event(cudaEventDisableTiming);
        c[r] = make_counter();
    }
    CHECK(cudaSetDevice(0));
    take_largest(ranks, comms, streams, events, c);
    capture_allreduce(ranks, comms, streams, events, c);
    cudaGraphExec_t exec = end(streams[0]);
    float expected = 0;
    for (int launch = 0; launch < 3; launch++) {
        CHECK(cudaGraphLaunch(exec, streams[0]));
        expected = (float)ranks * (expected + 1);
        take_largest(ranks, comms, streams, events, c);
    }
    CHECK(cudaStreamSynchronize(streams[0]));
    CHECK(cudaGraphExecDestroy(exec));
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        expect_count(c[r], expected);
        check_nccl(ncclCommDestroy(comms[r]));
        free_counter(c[r]);
        CHECK(cudaEventDestroy(events[r]));
        CHECK(cudaStreamDestroy(streams[r]));
    }
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(captured_work_runs_at_every_launch_and_not_before),
        RUNTIME_TEST(a_graph_runs_in_its_place_in_the_stream),
        RUNTIME_TEST(pinned_memory_is_read_at_the_launch),
        RUNTIME_TEST(a_fork_runs_beside_its_origin_and_a_join_waits_for_it),
        RUNTIME_TEST(a_fork_starts_after_what_the_stream_had_before_the_launch),
        RUNTIME_TEST(launches_of_one_graph_follow_each_other_over_streams),
        RUNTIME_TEST(one_capture_spans_devices),
        RUNTIME_TEST(collectives_are_captured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
