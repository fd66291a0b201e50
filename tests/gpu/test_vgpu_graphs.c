/* Graphs on virtual GPUs: handles that have ended are refused, the modes that look at operations see those of a graph, and a
 * launch is cheap. */
#include <stdio.h>

#include "gpu/vgpu/internal.h"
#include "gpu/vgpu/modes.h"
#include "tests/gpu/graph_test.h"
#include "tests/gpu/scenario.h"

static void what_has_ended_is_refused(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *bytes = make_bytes(BYTES, 0);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    begin(stream);
    CHECK(cudaMemsetAsync(bytes, 1, BYTES, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK_REFUSED(cudaGraphInstantiate(&exec, graph, 1), cudaErrorInvalidValue);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK_REFUSED(cudaGraphDestroy(graph), cudaErrorInvalidValue);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK_REFUSED(cudaGraphExecDestroy(exec), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaGraphInstantiate(&exec, graph, 0), cudaErrorInvalidValue);
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(stream));
}

static void what_is_not_captured_is_refused(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *bytes = make_bytes(BYTES, 0);
    begin(stream);
    CHECK(cudaMemsetAsync(bytes, 1, BYTES, stream));
    cudaGraphExec_t exec = end(stream);
    cudaGraph_t graph = NULL;
    begin(stream);
    CHECK_REFUSED(cudaGraphLaunch(exec, stream), cudaErrorStreamCaptureUnsupported);
    CHECK_REFUSED(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    begin(stream);
    CHECK_REFUSED(cudaStreamDestroy(stream), cudaErrorStreamCaptureUnsupported);
    CHECK_REFUSED(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(stream));
}

static void work_of_a_destroyed_graph_still_runs(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *bytes = make_bytes(BYTES, 0);
    gate g;
    begin(stream);
    CHECK(cudaMemsetAsync(bytes, 1, BYTES / 2, stream));
    CHECK(cudaMemsetAsync(bytes + BYTES / 2, 1, BYTES / 2, stream));
    cudaGraphExec_t exec = end(stream);
    gate_close(&g, stream);
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphExecDestroy(exec));
    gate_open(&g);
    CHECK(cudaStreamSynchronize(stream));
    check_bytes(bytes, BYTES, 1);
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(stream));
}

static void a_reset_ends_captures(void **state) {
    (void)state;
    CHECK(cudaSetDevice(1));
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    begin(stream);
    CHECK(cudaDeviceReset());
    unsigned char *bytes = make_bytes(BYTES, 1); /* nothing captures any more */
    CHECK(cudaFree(bytes));
}

/* Scenarios: one graph each, launched twice. */

static cudaStream_t a, b;
static cudaEvent_t event;
static unsigned char *x, *y;

static void launch_twice(cudaStream_t stream) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    DO(cudaStreamEndCapture(stream, &graph));
    DO(cudaGraphInstantiate(&exec, graph, 0));
    DO(cudaGraphLaunch(exec, stream));
    DO(cudaGraphLaunch(exec, stream));
    DO(cudaStreamSynchronize(stream));
    DO(cudaGraphExecDestroy(exec));
    DO(cudaGraphDestroy(graph));
}

/* Two branches of a graph write the same bytes, or each its own. */
static void two_branches(bool right) {
    DO(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    DO(cudaEventRecord(event, a));
    DO(cudaStreamWaitEvent(b, event, 0));
    DO(cudaMemsetAsync(x, 1, BYTES, b));
    DO(cudaMemsetAsync(right ? y : x, 2, BYTES, a));
    DO(cudaEventRecord(event, b));
    DO(cudaStreamWaitEvent(a, event, 0));
    DO(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDeviceToDevice, a));
    launch_twice(a);
}

/* What a graph has written is read on another stream, which has waited for the launch or not. */
static void read_elsewhere(bool right) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    DO(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    DO(cudaMemsetAsync(x, 1, BYTES, a));
    DO(cudaStreamEndCapture(a, &graph));
    DO(cudaGraphInstantiate(&exec, graph, 0));
    DO(cudaGraphLaunch(exec, a));
    DO(cudaEventRecord(event, a));
    if (right) {
        DO(cudaStreamWaitEvent(b, event, 0));
    }
    DO(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDeviceToDevice, b));
}

/* A graph uses memory that has been freed since it was captured. */
static void freed_memory(bool right) {
    DO(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    DO(cudaMemsetAsync(x, 1, BYTES, a));
    if (!right) {
        DO(cudaFree(x));
    }
    launch_twice(a);
}

static const struct {
    const char *name;
    void (*run)(bool right);
    const char *setting;
    const char *words[5];
} scenarios[] = {
    {"branches", two_branches, "LOCKSTEP_VGPU_SCHED=check", {"race", "fill (stream", "test_vgpu_graphs.c", NULL}},
    {"elsewhere", read_elsewhere, "LOCKSTEP_VGPU_SCHED=check", {"race", "fill (stream", "copy (stream", NULL}},
    {"freed", freed_memory, "LOCKSTEP_VGPU_GUARD=1", {"guard", "fill", "of which 0 lie in an allocation", NULL}},
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static void the_modes_see_into_graphs(void **state) {
    (void)state;
    for (size_t i = 0; i < SCENARIOS; i++) {
        const char *const settings[] = {scenarios[i].setting, NULL};
        expect_finding(run_scenario(scenarios[i].name, "wrong", settings), scenarios[i].words);
        expect_silence(run_scenario(scenarios[i].name, "right", settings));
    }
}

static int run_one(const char *name, bool right) {
    DO(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    DO(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    DO(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    DO(cudaMalloc((void **)&x, BYTES));
    DO(cudaMalloc((void **)&y, BYTES));
    for (size_t i = 0; i < SCENARIOS; i++) {
        if (strcmp(name, scenarios[i].name) == 0) {
            scenarios[i].run(right);
            DO(cudaDeviceSynchronize());
            return 0;
        }
    }
    return 98;
}

/* The figures are printed and not judged, since they depend on what else the machine does; the work is counted. */

enum { NODES = 40, LAUNCHES = 200 };

static cudaError_t count_one(void *payload) {
    ++**(unsigned long long **)payload;
    return cudaSuccess;
}

static void count_nodes(cudaStream_t stream, unsigned long long *count) {
    for (int i = 0; i < NODES; i++) {
        CHECK(vgpu_submit(stream, "count", count_one, &count, sizeof count));
    }
}

static void launching_against_queueing(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned long long count = 0, least[2] = {~0ULL, ~0ULL};
    begin(stream);
    count_nodes(stream, &count);
    cudaGraphExec_t exec = end(stream);
    for (int i = 0; i < 2 * LAUNCHES; i++) {
        unsigned long long start = vgpu_now_ns();
        if (i % 2 == 0) {
            count_nodes(stream, &count);
        } else {
            CHECK(cudaGraphLaunch(exec, stream));
        }
        unsigned long long spent = vgpu_now_ns() - start;
        least[i % 2] = spent < least[i % 2] ? spent : least[i % 2];
        CHECK(cudaStreamSynchronize(stream));
    }
    printf("%d operations, host time at best: queued %llu ns, launched as a graph %llu ns\n", (int)NODES, least[0],
           least[1]);
    assert_int_equal(count, 2 * LAUNCHES * NODES);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    alarm(TEST_SECONDS);
    if (argc == 3) {
        return run_one(argv[1], strcmp(argv[2], "right") == 0);
    }
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(what_has_ended_is_refused),
        RUNTIME_TEST(what_is_not_captured_is_refused),
        RUNTIME_TEST(work_of_a_destroyed_graph_still_runs),
        RUNTIME_TEST(a_reset_ends_captures),
        cmocka_unit_test(the_modes_see_into_graphs),
        RUNTIME_TEST(launching_against_queueing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
