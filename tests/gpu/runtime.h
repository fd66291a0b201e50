/* Helpers of the runtime's conformance tests. Only the public CUDA API, so that they run unchanged on real GPUs.
 *
 * A gate is a host function that holds its stream until the test opens it: what a stream waits for becomes deterministic.
 * CUDA may run the host functions of a device on one thread, so a test queues no other host function on a device whose gate
 * is closed, and allocates everything before it closes a gate. */
#ifndef LS_TESTS_GPU_RUNTIME_H
#define LS_TESTS_GPU_RUNTIME_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda_runtime.h>
#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call) assert_int_equal(call, cudaSuccess)
#define CHECK_REFUSED(call, code)                          \
    do {                                                   \
        assert_int_equal(call, code);                      \
        assert_int_equal(cudaGetLastError(), code);        \
        assert_int_equal(cudaGetLastError(), cudaSuccess); \
    } while (0)

/* A hang is a failure: the whole program ends by SIGALRM. */
enum { TEST_SECONDS = 60, MOST_GATES = 16 };

typedef struct gate_state {
    sem_t open;
    int opened;
} gate_state;
typedef gate_state *gate;

/* The gates of the running test; static, since a failed assertion leaves the test's frame while a stream is still held. */
static gate_state gates[MOST_GATES];
static int gate_count = 0;

static inline void gate_hold(void *argument) {
    gate_state *g = argument;
    while (sem_wait(&g->open) != 0 && errno == EINTR) {
    }
}

static inline void gate_make(gate *g) {
    assert_true(gate_count < MOST_GATES);
    *g = &gates[gate_count];
    assert_int_equal(sem_init(&(*g)->open, 0, 0), 0);
    (*g)->opened = 0;
    gate_count++;
}

static inline void gate_close(gate *g, cudaStream_t stream) {
    gate_make(g);
    CHECK(cudaLaunchHostFunc(stream, gate_hold, *g));
}

static inline void gate_open(gate *g) {
    (*g)->opened = 1;
    assert_int_equal(sem_post(&(*g)->open), 0);
}

/* Gives a faulty runtime the time to do what it must not do. A correct one passes without it as well. */
static inline void let_errors_happen(void) {
    struct timespec pause = {.tv_nsec = 3000000};
    nanosleep(&pause, NULL);
}

static inline int device_count(void) {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    return count;
}

/* Every test starts on device 0 without a remembered error, and leaves no work behind. */
static inline int test_begin(void **state) {
    (void)state;
    gate_count = 0;
    CHECK(cudaSetDevice(0));
    (void)cudaGetLastError();
    return 0;
}

static inline int test_end(void **state) {
    (void)state;
    for (int i = 0; i < gate_count; i++) {
        if (!gates[i].opened) { /* the test failed before it came to that */
            sem_post(&gates[i].open);
        }
    }
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceSynchronize());
    return 0;
}

#define RUNTIME_TEST(function) cmocka_unit_test_setup_teardown(function, test_begin, test_end)

static inline cudaStream_t make_stream(unsigned flags) {
    cudaStream_t stream = NULL;
    CHECK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

static inline cudaEvent_t make_event(unsigned flags) {
    cudaEvent_t event = NULL;
    CHECK(cudaEventCreateWithFlags(&event, flags));
    return event;
}

/* Device bytes, all of one value. */
static inline unsigned char *make_bytes(size_t count, int value) {
    void *bytes = NULL;
    CHECK(cudaMalloc(&bytes, count));
    CHECK(cudaMemset(bytes, value, count));
    CHECK(cudaDeviceSynchronize());
    return bytes;
}

/* All count device bytes have the value. */
static inline void check_bytes(const void *device, size_t count, int value) {
    unsigned char *host = test_malloc(count);
    memset(host, value + 1, count);
    CHECK(cudaMemcpy(host, device, count, cudaMemcpyDeviceToHost));
    size_t wrong = 0;
    while (wrong < count && host[wrong] == (unsigned char)value) {
        wrong++;
    }
    if (wrong < count) {
        fail_msg("byte %zu of %zu is %d, expected %d", wrong, count, host[wrong], (unsigned char)value);
    }
    test_free(host);
}

#endif
