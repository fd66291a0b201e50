/* The ranges that a profiler sees of a step, and that each ends, also when the step fails in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu/range.h"
#include "gpu/vgpu/ranges.h"
#include "impls/step_graph.h"
#include "reference/batcher.h"
#include "tests/impls/range_trace.h"
#include "tests/impls/stderr_capture.h"
#include "tests/impls/training.h"

enum { BATCH = 8, GRAPH_STEPS = 4 };

static ls_model model;
static ls_dataset data;

static int open_all(void **state) {
    (void)state;
    training_resolve(TRAINING_SMALL, &model);
    vgpu_ranges_listen(trace_listen);
    return ls_dataset_open("synthetic:256", LS_SPLIT_TRAIN, &data) == LS_OK ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    vgpu_ranges_listen(NULL);
    ls_dataset_close(&data);
    return 0;
}

static ls_rc step_of(const ls_impl *impl, void *self, size_t count) {
    ls_batch batch = {.count = count, .pixels = data.pixels, .labels = data.labels};
    return impl->step(self, &batch, count);
}

static void run_of(ls_run *run, const char *impl, size_t devices) {
    training_run(run, impl, devices, LS_FLOAT32);
    run->bucket_bytes = 2048; /* more than one bucket */
}

/* The steps of one rank on devices from `device` on; the trace is of the steps alone. */
static void *open_rank(const ls_run *run, int device) {
    void *self = NULL;
    ls_rank rank = {.world = 1, .device = device, .timeout = 60.0};
    assert_int_equal(ls_impl_find(run->impl)->open(run, &rank, &model, BATCH, &self), LS_OK);
    return self;
}

static void trace_steps(const ls_run *run, size_t steps, trace *out) {
    const ls_impl *impl = ls_impl_find(run->impl);
    void *self = open_rank(run, 0);
    trace_begin(out);
    for (size_t s = 0; s < steps; s++) {
        assert_int_equal(step_of(impl, self, BATCH), LS_OK);
    }
    assert_int_equal(impl->synchronize(self), LS_OK);
    trace_check(out);
    impl->close(self);
}

static void test_single(void **state) {
    (void)state;
    ls_run run;
    trace t;
    run_of(&run, "single", 1);
    trace_steps(&run, 2, &t);
    assert_string_equal(t.text, "step 0(input()scale()forward()loss()backward()update())"
                                "step 1(input()scale()forward()loss()backward()update())"
                                "wait()");
}

static void test_dp(void **state) {
    (void)state;
    ls_run run;
    trace t;
    run_of(&run, "dp", 2);
    trace_steps(&run, 1, &t);
    assert_string_equal(t.text, "step 0(scatter(input()input())"
                                "scale()forward()scale()parameters()forward()"
                                "loss()backward()backward()reduce()update())"
                                "wait()");
}

static void test_ddp(void **state) {
    (void)state;
    ls_run run;
    trace t;
    char expected[TRACE_TEXT];
    run_of(&run, "ddp", 1);
    trace_steps(&run, 1, &t);
    (void)snprintf(expected, sizeof expected, "step 0(input()scale()forward()loss()backward(%s)update())wait()",
                   trace_buckets(&run, &model, "bucket", "", "join()"));
    assert_string_equal(t.text, expected);
    run.bucket_bytes = SIZE_MAX; /* one bucket, and so no other stream to join */
    trace_steps(&run, 1, &t);
    assert_string_equal(t.text, "step 0(input()scale()forward()loss()backward(bucket 0())update())wait()");
    run_of(&run, "ddp", 1);
    run.reverse_buckets = true; /* reduced after backward */
    trace_steps(&run, 1, &t);
    assert_non_null(strstr(t.text, "backward()bucket "));
    assert_non_null(strstr(t.text, "bucket 1()bucket 0(join())update())"));
}

/* Two ranks as threads: each has the ranges of its own step. */
typedef struct member {
    ls_rank rank;
    trace trace;
    ls_rc rc;
} member;

static void *run_member(void *argument) {
    member *m = argument;
    const ls_impl *impl = ls_impl_find("ddp");
    void *self = NULL;
    ls_run run;
    run_of(&run, "ddp", 2);
    m->rc = impl->open(&run, &m->rank, &model, BATCH, &self);
    if (m->rc == LS_OK) {
        trace_begin(&m->trace);
        m->rc = step_of(impl, self, BATCH);
        traced = NULL;
        m->rc = m->rc == LS_OK ? impl->synchronize(self) : m->rc;
        impl->close(self);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    member members[2] = {0};
    pthread_t threads[2];
    ls_thread_group *group = NULL;
    ls_run run;
    char expected[TRACE_TEXT];
    assert_int_equal(ls_thread_group_open(2, &group), LS_OK);
    for (size_t r = 0; r < 2; r++) {
        members[r].rank =
            (ls_rank){.rank = r, .world = 2, .local_rank = r, .device = (int)r, .timeout = 60.0, .shared = group};
        assert_int_equal(pthread_create(&threads[r], NULL, run_member, &members[r]), 0);
    }
    run_of(&run, "ddp", 2);
    (void)snprintf(expected, sizeof expected, "step 0(input()scale()forward()loss()backward(%s)update())",
                   trace_buckets(&run, &model, "bucket", "", "join()"));
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        assert_int_equal(members[r].rc, LS_OK);
        trace_check(&members[r].trace);
        assert_string_equal(members[r].trace.text, expected);
    }
    ls_thread_group_close(group);
}

/* Two steps as they are, one that is captured and launched, one that is launched. */
static void test_graph(void **state) {
    (void)state;
    static const char *const names[] = {"single", "dp", "ddp"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ls_run run;
        trace t;
        run_of(&run, names[i], strcmp(names[i], "dp") == 0 ? 2 : 1);
        run.graph = true;
        trace_steps(&run, GRAPH_STEPS, &t);
        const char *captured = strstr(t.text, "step 2("), *launched = strstr(t.text, "step 3(");
        assert_non_null(captured);
        assert_non_null(launched);
        const char *capture = strstr(captured, "graph capture(scale()forward()");
        assert_true(capture != NULL && capture < launched);
        assert_non_null(strstr(capture, "update())graph launch())step 3("));
        const char *end = strcmp(names[i], "dp") == 0 ? "step 3(scatter(input()input())graph launch())wait()"
                                                      : "step 3(input()graph launch())wait()";
        assert_string_equal(launched, end);
    }
}

/* Whether the trace is the beginning of the whole one, up to the range in which it failed, and then ends of ranges only. */
static bool breaks_off(const trace *t, const trace *whole) {
    size_t length = t->used;
    while (length > 0 && t->text[length - 1] == ')') {
        length--;
    }
    return length > 0 && strncmp(t->text, whole->text, length) == 0;
}

/* The step after `before` others; a device breaks as its range number fails_at begins. */
static ls_rc break_in_step(const ls_run *run, size_t before, size_t fails_at, trace *out) {
    const ls_impl *impl = ls_impl_find(run->impl);
    void *self = open_rank(run, 0);
    for (size_t s = 0; s < before; s++) {
        assert_int_equal(step_of(impl, self, BATCH), LS_OK);
        assert_int_equal(impl->synchronize(self), LS_OK);
    }
    trace_begin(out);
    out->fails_at = fails_at;
    ls_rc rc = step_of(impl, self, BATCH);
    trace_check(out);
    impl->close(self);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
    return rc;
}

/* A device breaks as range number n begins, for every n: the step fails at the next call to that device, and ends every range that
 * has begun. before: the steps that go well. */
static void fail_everywhere(const char *name, size_t devices, bool graph, size_t before) {
    ls_run run;
    trace whole, t;
    run_of(&run, name, devices);
    run.graph = graph;
    assert_int_equal(break_in_step(&run, before, SIZE_MAX, &whole), LS_OK);
    assert_true(whole.begun >= 3);
    for (size_t n = 0; n < whole.begun; n++) {
        stderr_capture capture;
        assert_int_equal(stderr_capture_begin(&capture), 0);
        ls_rc rc = break_in_step(&run, before, n, &t);
        stderr_capture_end(&capture);
        assert_int_equal(rc, LS_DEVICE_FAILED);
        assert_true(capture.lines >= 1);
        assert_true(t.begun > n);
        assert_true(breaks_off(&t, &whole));
    }
}

static void test_failures(void **state) {
    (void)state;
    fail_everywhere("single", 1, false, 0);
    fail_everywhere("ddp", 1, false, 0);
    fail_everywhere("dp", 2, false, 0);
}

static void test_graph_failures(void **state) {
    (void)state;
    for (size_t before = LS_GRAPH_WARMUP; before <= LS_GRAPH_WARMUP + 1; before++) { /* captured, then launched */
        fail_everywhere("single", 1, true, before);
        fail_everywhere("ddp", 1, true, before);
        fail_everywhere("dp", 2, true, before);
    }
}

/* Refused before anything is enqueued. */
static void test_bad_batch(void **state) {
    (void)state;
    ls_run run;
    run_of(&run, "single", 1);
    const ls_impl *impl = ls_impl_find("single");
    void *self = open_rank(&run, 0);
    trace t;
    stderr_capture capture;
    assert_int_equal(stderr_capture_begin(&capture), 0);
    trace_begin(&t);
    ls_rc rc = step_of(impl, self, BATCH + 1);
    stderr_capture_end(&capture);
    trace_check(&t);
    assert_int_equal(rc, LS_BAD_INPUT);
    assert_string_equal(t.text, "step 0(input())");
    impl->close(self);
}

/* The wait for a batch, which this thread makes itself, or a loader does. */
static void test_batches(void **state) {
    (void)state;
    ls_sampler sampler = {.count = data.count, .world = 1};
    for (size_t loaders = 0; loaders < 2; loaders++) {
        ls_batcher *batcher = NULL;
        ls_batch batch;
        trace t;
        assert_int_equal(ls_batcher_open(&data, &sampler, BATCH, &batcher), LS_OK);
        assert_int_equal(ls_batcher_start(batcher, loaders), LS_OK);
        trace_begin(&t);
        assert_int_equal(ls_batcher_get(batcher, 0, &batch), LS_OK);
        assert_int_equal(ls_batcher_get(batcher, 1, &batch), LS_OK);
        trace_check(&t);
        assert_string_equal(t.text, loaders == 0 ? "batch 0(load 0())batch 1(load 1())" : "batch 0()batch 1()");
        ls_batcher_close(batcher);
    }
}

static ls_rc leave(int way) {
    LS_RANGE("outer");
    if (way == 0) {
        return LS_OK;
    }
    for (uint64_t i = 0; i < 3; i++) {
        LS_RANGE_NUMBERED("turn", i);
        if (i == 1) {
            break;
        }
    }
    LS_TRY(way == 1 ? LS_CHECK_FAILED : LS_OK);
    LS_RANGE("rest");
    return LS_OK;
}

/* A range ends with its block, by whichever way; the last that began ends first. */
static void test_scope(void **state) {
    (void)state;
    trace t;
    trace_begin(&t);
    assert_int_equal(leave(0), LS_OK);
    assert_int_equal(leave(1), LS_CHECK_FAILED);
    assert_int_equal(leave(2), LS_OK);
    trace_check(&t);
    assert_string_equal(t.text, "outer()outer(turn 0()turn 1())outer(turn 0()turn 1()rest())");
}

/* Nobody listens: nothing is counted. An end without a beginning shows. */
static void test_listening(void **state) {
    (void)state;
    trace t;
    trace_begin(&t);
    vgpu_ranges_listen(NULL);
    assert_int_equal(leave(2), LS_OK);
    vgpu_ranges_listen(trace_listen);
    assert_int_equal(t.begun, 0);
    ls_range_pop(NULL);
    traced = NULL;
    assert_int_equal(t.lowest, -1);
    trace_begin(&t);
    assert_int_equal(leave(0), LS_OK);
    trace_check(&t);
    assert_string_equal(t.text, "outer()");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scope),    cmocka_unit_test(test_listening),     cmocka_unit_test(test_single),
        cmocka_unit_test(test_dp),       cmocka_unit_test(test_ddp),           cmocka_unit_test(test_threads),
        cmocka_unit_test(test_graph),    cmocka_unit_test(test_batches),       cmocka_unit_test(test_bad_batch),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_graph_failures)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
