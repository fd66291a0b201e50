/* Many streams on many devices, with waits in all directions and several host threads. */
#include <pthread.h>

#include "tests/gpu/runtime.h"

enum { MOST_DEVICES = 16, STREAMS = 4, ROUNDS = 60, WORDS = 64 };

typedef struct lane {
    cudaStream_t stream;
    cudaEvent_t done;
    uint32_t *words; /* device memory */
} lane;

static lane lanes[MOST_DEVICES][STREAMS];

static void open_lanes(int devices) {
    for (int d = 0; d < devices; d++) {
        CHECK(cudaSetDevice(d));
        for (int s = 0; s < STREAMS; s++) {
            lane *l = &lanes[d][s];
            l->stream = make_stream(s % 2 == 0 ? cudaStreamNonBlocking : cudaStreamDefault);
            l->done = make_event(s < 2 ? cudaEventDisableTiming : cudaEventDefault);
            l->words = (uint32_t *)(void *)make_bytes(WORDS * sizeof(uint32_t), 0);
        }
    }
}

static void close_lanes(int devices) {
    for (int d = 0; d < devices; d++) {
        CHECK(cudaSetDevice(d));
        for (int s = 0; s < STREAMS; s++) {
            CHECK(cudaFree(lanes[d][s].words));
            CHECK(cudaEventDestroy(lanes[d][s].done));
            CHECK(cudaStreamDestroy(lanes[d][s].stream));
        }
    }
}

/* A token goes round all lanes of all devices; each hop waits for the lane before it and writes the next value. Any wait
 * that is lost or late lets an old value through. */
static void token_passes_through_every_stream(void **state) {
    (void)state;
    int devices = device_count() < MOST_DEVICES ? device_count() : MOST_DEVICES;
    open_lanes(devices);
    int hops = devices * STREAMS;
    uint32_t *values = NULL;
    CHECK(cudaMallocHost((void **)&values, (size_t)ROUNDS * hops * sizeof *values));
    lane *before = NULL;
    for (int hop = 0; hop < ROUNDS * hops; hop++) {
        lane *l = &lanes[hop % devices][hop / devices % STREAMS];
        CHECK(cudaSetDevice(hop % devices));
        if (before != NULL) {
            CHECK(cudaStreamWaitEvent(l->stream, before->done, 0));
            CHECK(cudaMemcpyAsync(l->words, before->words, WORDS * sizeof(uint32_t), cudaMemcpyDefault, l->stream));
        }
        CHECK(cudaMemcpyAsync(&values[hop], &l->words[WORDS - 1], sizeof *values, cudaMemcpyDeviceToHost, l->stream));
        uint32_t next = (uint32_t)hop + 1;
        CHECK(cudaMemcpyAsync(&l->words[WORDS - 1], &next, sizeof next, cudaMemcpyHostToDevice, l->stream));
        CHECK(cudaEventRecord(l->done, l->stream));
        before = l;
    }
    CHECK(cudaEventSynchronize(before->done));
    for (int hop = 0; hop < ROUNDS * hops; hop++) {
        assert_int_equal(values[hop], hop);
    }
    CHECK(cudaFreeHost(values));
    close_lanes(devices);
}

typedef struct worker {
    pthread_t thread;
    int device;
    int failures;
} worker;

static void work(worker *w) {
    if (cudaSetDevice(w->device) != cudaSuccess) {
        w->failures++;
        return;
    }
    for (int round = 0; round < ROUNDS; round++) {
        cudaStream_t stream = NULL;
        cudaEvent_t event = NULL;
        void *bytes = NULL;
        unsigned char back[256] = {0};
        w->failures += cudaStreamCreate(&stream) != cudaSuccess;
        w->failures += cudaEventCreate(&event) != cudaSuccess;
        w->failures += cudaMalloc(&bytes, sizeof back) != cudaSuccess;
        w->failures += cudaMemsetAsync(bytes, round, sizeof back, stream) != cudaSuccess;
        w->failures += cudaEventRecord(event, stream) != cudaSuccess;
        w->failures += cudaStreamWaitEvent(0, event, 0) != cudaSuccess;
        w->failures += cudaMemcpy(back, bytes, sizeof back, cudaMemcpyDeviceToHost) != cudaSuccess;
        w->failures += back[0] != round || back[sizeof back - 1] != round;
        w->failures += cudaStreamDestroy(stream) != cudaSuccess;
        w->failures += cudaEventDestroy(event) != cudaSuccess;
        w->failures += cudaFree(bytes) != cudaSuccess;
    }
}

static void *run_worker(void *argument) {
    work(argument);
    return NULL;
}

static void many_threads_use_the_runtime_at_once(void **state) {
    (void)state;
    enum { WORKERS = 12 };
    worker workers[WORKERS];
    int devices = device_count() < 4 ? device_count() : 4; /* several threads on each device */
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.device = i % devices};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].failures, 0);
    }
}

typedef struct sharer {
    pthread_t thread;
    cudaStream_t stream;
    unsigned char *bytes; /* device memory of its own */
    int failures;
} sharer;

static void *share_stream(void *argument) {
    sharer *s = argument;
    for (int round = 0; round < 10 * ROUNDS; round++) {
        unsigned char back = 0;
        s->failures += cudaMemsetAsync(s->bytes, round, 1, s->stream) != cudaSuccess;
        s->failures += cudaStreamSynchronize(s->stream) != cudaSuccess;
        s->failures += cudaMemcpyAsync(&back, s->bytes, 1, cudaMemcpyDeviceToHost, s->stream) != cudaSuccess;
        s->failures += back != (unsigned char)round;
    }
    return NULL;
}

/* Waiters for different points of one stream; a wake that is lost leaves one of them asleep for good. */
static void several_threads_wait_for_one_stream(void **state) {
    (void)state;
    enum { SHARERS = 6 };
    sharer sharers[SHARERS];
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *bytes = make_bytes(SHARERS, 0);
    for (int i = 0; i < SHARERS; i++) {
        sharers[i] = (sharer){.stream = stream, .bytes = bytes + i};
        assert_int_equal(pthread_create(&sharers[i].thread, NULL, share_stream, &sharers[i]), 0);
    }
    for (int i = 0; i < SHARERS; i++) {
        assert_int_equal(pthread_join(sharers[i].thread, NULL), 0);
        assert_int_equal(sharers[i].failures, 0);
    }
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(stream));
}

static void pause_20_ms(void *unused) {
    (void)unused;
    struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, NULL);
}

/* More operations than any queue holds, while the stream stands still: submitting blocks until there is room, and each of
 * them, writing a byte of its own, is run. */
static void a_full_queue_makes_submitters_wait(void **state) {
    (void)state;
    enum { OPERATIONS = 5000 };
    static unsigned char back[OPERATIONS];
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    unsigned char *bytes = make_bytes(OPERATIONS, 0);
    CHECK(cudaLaunchHostFunc(stream, pause_20_ms, NULL));
    for (int i = 0; i < OPERATIONS; i++) {
        CHECK(cudaMemsetAsync(bytes + i, 1 + i % 255, 1, stream));
    }
    CHECK(cudaMemcpyAsync(back, bytes, OPERATIONS, cudaMemcpyDeviceToHost, stream));
    for (int i = 0; i < OPERATIONS; i++) {
        assert_int_equal(back[i], 1 + i % 255);
    }
    CHECK(cudaFree(bytes));
    CHECK(cudaStreamDestroy(stream));
}

int main(void) {
    alarm(TEST_SECONDS);
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(token_passes_through_every_stream),
        RUNTIME_TEST(many_threads_use_the_runtime_at_once),
        RUNTIME_TEST(several_threads_wait_for_one_stream),
        RUNTIME_TEST(a_full_queue_makes_submitters_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
