/* Ranks of ddp that stand still, fail or disagree: the others end in time, with one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

#include "gpu/base/clock.h"
#include "tests/impls/stderr_capture.h"
#include "tests/impls/training.h"

enum { BATCH = 16 };

static ls_model model;
static ls_dataset data;

static int open_data(void **state) {
    (void)state;
    training_resolve("seed-cnn", &model);
    return ls_dataset_open("synthetic:600", LS_SPLIT_TRAIN, &data) == LS_OK ? 0 : -1;
}

static int close_data(void **state) {
    (void)state;
    ls_dataset_close(&data);
    return 0;
}

/* Two ranks: what they share, and how each ended. */
typedef struct pair {
    ls_thread_group *group, *test; /* of ddp; of the test's own barriers, with its main thread */
    double timeout;
    bool broken; /* rank 1 fails in its step instead of standing still */
    ls_rc rc[2]; /* of step and synchronize */
    double seconds[2];
} pair;

typedef struct member {
    pair *pair;
    size_t rank;
} member;

static ls_rc run_step(const ls_impl *impl, void *self, size_t count) {
    ls_batch batch = {.count = count, .pixels = data.pixels, .labels = data.labels};
    ls_rc rc = impl->step(self, &batch, (size_t)2 * BATCH);
    return rc == LS_OK ? impl->synchronize(self) : rc;
}

/* Both ranks take one good step. Then rank 0 takes another, while rank 1 does not or cannot. */
static void *run_member(void *argument) {
    const member *m = argument;
    pair *p = m->pair;
    const ls_impl *impl = ls_impl_find("ddp");
    void *self = NULL;
    ls_run run;
    ls_rank rank = {.rank = m->rank,
                    .world = 2,
                    .local_rank = m->rank,
                    .device = (int)m->rank,
                    .timeout = p->timeout,
                    .shared = p->group};
    training_run(&run, "ddp", 2, LS_FLOAT32);
    run.bucket_bytes = 4096;
    ls_error_set_rank((int)m->rank, (int)m->rank);
    p->rc[m->rank] = impl->open(&run, &rank, &model, BATCH, &self);
    if (p->rc[m->rank] != LS_OK) {
        ls_thread_group_cancel(p->test);
        return NULL;
    }
    p->rc[m->rank] = run_step(impl, self, BATCH);
    double start = ls_now_seconds();
    if (p->rc[m->rank] == LS_OK && (m->rank == 0 || p->broken)) {
        p->rc[m->rank] = run_step(impl, self, m->rank == 0 ? BATCH : BATCH + 1);
        if (p->broken && m->rank == 1) {
            impl->close(self); /* ends what its peers wait for */
            self = NULL;
        }
    }
    p->seconds[m->rank] = ls_now_seconds() - start;
    /* First what was printed is looked at, then closing may add how the failed device refuses to free its memory. */
    (void)ls_thread_group_barrier(p->test, m->rank, 60.0);
    (void)ls_thread_group_barrier(p->test, m->rank, 60.0);
    if (self != NULL) {
        impl->close(self);
    }
    (void)cudaDeviceReset(); /* clears the device's error for the next test */
    return NULL;
}

static void run_pair(pair *p, stderr_capture *capture) {
    pthread_t threads[2];
    stderr_capture closing;
    member members[2] = {{p, 0}, {p, 1}};
    assert_int_equal(ls_thread_group_open(2, &p->group), LS_OK);
    assert_int_equal(ls_thread_group_open(3, &p->test), LS_OK);
    assert_int_equal(stderr_capture_begin(capture), 0);
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(pthread_create(&threads[r], NULL, run_member, &members[r]), 0);
    }
    (void)ls_thread_group_barrier(p->test, 2, 60.0);
    stderr_capture_end(capture);
    assert_int_equal(stderr_capture_begin(&closing), 0);
    (void)ls_thread_group_barrier(p->test, 2, 60.0);
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    }
    stderr_capture_end(&closing);
    ls_thread_group_close(p->group);
    ls_thread_group_close(p->test);
}

static void test_peer_stands_still(void **state) {
    (void)state;
    pair p = {.timeout = 4.0}; /* enough for the good step on a busy machine */
    stderr_capture capture;
    run_pair(&p, &capture);
    assert_int_equal(p.rc[0], LS_DEVICE_FAILED);
    assert_int_equal(p.rc[1], LS_OK);
    assert_true(p.seconds[0] >= 4.0);
    assert_true(p.seconds[0] < 30.0);
    /* The cause first; NCCL may add that it was aborted. */
    static const char line[] = "lockstep: rank 0 device 0: a collective has not finished within 4 s\n";
    assert_memory_equal(capture.text, line, sizeof line - 1);
    assert_null(strstr(capture.text + 1, line));
}

static void test_peer_fails(void **state) {
    (void)state;
    pair p = {.timeout = 60.0, .broken = true};
    stderr_capture capture;
    run_pair(&p, &capture);
    assert_int_equal(p.rc[0], LS_DEVICE_FAILED);
    assert_int_equal(p.rc[1], LS_BAD_INPUT);
    assert_true(p.seconds[0] < 30.0); /* far less than the time limit */
    /* Rank 1 says why, then rank 0 that its peer is gone. */
    assert_non_null(strstr(capture.text, "rank 1 device 1: batch of a replica: expected at most 16 samples, found 17"));
    assert_non_null(strstr(capture.text, "rank 0 device 0: NCCL:"));
}

/* Ranks that meet over TCP, as processes do. */

static unsigned short free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    (void)close(fd);
    return ntohs(address.sin_port);
}

typedef struct process {
    ls_run run;
    ls_rank rank;
    ls_rc rc;
    float *params;
} process;

static void *run_process(void *argument) {
    process *p = argument;
    const ls_impl *impl = ls_impl_find("ddp");
    void *self = NULL;
    ls_error_set_rank((int)p->rank.rank, p->rank.device);
    p->rc = impl->open(&p->run, &p->rank, &model, BATCH, &self);
    if (p->rc == LS_OK) {
        p->rc = run_step(impl, self, BATCH);
        p->rc = p->rc == LS_OK ? impl->parameters(self, p->params) : p->rc;
        impl->close(self);
    }
    return NULL;
}

static void run_processes(process *processes, size_t world, stderr_capture *capture) {
    pthread_t threads[4];
    unsigned short port = free_port();
    assert_int_equal(stderr_capture_begin(capture), 0);
    for (size_t r = 0; r < world; r++) {
        process *p = &processes[r];
        p->rank = (ls_rank){.rank = r,
                            .world = world,
                            .local_rank = r,
                            .device = (int)r,
                            .master = "127.0.0.1",
                            .port = port,
                            .timeout = 20.0};
        p->run.devices = world;
        p->params = calloc(model.param_count, sizeof *p->params);
        assert_non_null(p->params);
        assert_int_equal(pthread_create(&threads[r], NULL, run_process, p), 0);
    }
    for (size_t r = 0; r < world; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    }
    stderr_capture_end(capture);
}

static void test_rendezvous(void **state) {
    (void)state;
    process processes[3] = {0};
    stderr_capture capture;
    for (size_t r = 0; r < 3; r++) {
        training_run(&processes[r].run, "ddp", 3, LS_FLOAT32);
    }
    run_processes(processes, 3, &capture);
    assert_string_equal(capture.text, "");
    for (size_t r = 0; r < 3; r++) {
        assert_int_equal(processes[r].rc, LS_OK);
        assert_memory_equal(processes[r].params, processes[0].params, model.param_count * sizeof(float));
    }
    for (size_t r = 0; r < 3; r++) {
        free(processes[r].params);
    }
}

/* Other buckets on one rank would reduce unlike gradients: refused before the first step. */
static void test_different_buckets(void **state) {
    (void)state;
    process processes[2] = {0};
    stderr_capture capture;
    for (size_t r = 0; r < 2; r++) {
        training_run(&processes[r].run, "ddp", 2, LS_FLOAT32);
    }
    processes[1].run.bucket_bytes = 4096;
    run_processes(processes, 2, &capture);
    assert_int_equal(capture.lines, 2); /* no launcher: rank 0 says why, rank 1 that it was refused */
    assert_non_null(
        strstr(capture.text, "rank 1 and rank 0 differ in model, dtype, buckets, training or communication options"));
    assert_non_null(strstr(capture.text, "has ended the rendezvous; its line says why"));
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(processes[r].rc, LS_BAD_INPUT);
        free(processes[r].params);
    }
}

/* NCCL wants buffers registered on all ranks or on none. */
static void test_different_registration(void **state) {
    (void)state;
    process processes[2] = {0};
    stderr_capture capture;
    for (size_t r = 0; r < 2; r++) {
        training_run(&processes[r].run, "ddp", 2, LS_FLOAT32);
        processes[r].run.nccl_register = r == 1;
    }
    run_processes(processes, 2, &capture);
    assert_non_null(
        strstr(capture.text, "rank 1 and rank 0 differ in model, dtype, buckets, training or communication options"));
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(processes[r].rc, LS_BAD_INPUT);
        free(processes[r].params);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peer_stands_still),
        cmocka_unit_test(test_peer_fails),
        cmocka_unit_test(test_rendezvous),
        cmocka_unit_test(test_different_buckets),
        cmocka_unit_test(test_different_registration),
    };
    return cmocka_run_group_tests(tests, open_data, close_data);
}
