/* What only virtual devices promise: handles, errors and addresses that real GPUs leave undefined, the calls that the other
 * parts of vgpu build on, and the cost of idle devices. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "gpu/vgpu/internal.h"
#include "tests/gpu/runtime.h"

enum { BYTES = 4096 };

typedef struct adding {
    int *sum;
    int value;
    unsigned char rest[VGPU_PAYLOAD_BYTES - 16];
} adding;

static cudaError_t add(void *payload) {
    adding *a = payload;
    *a->sum += a->value * a->rest[sizeof a->rest - 1];
    return cudaSuccess;
}

static void submit_copies_the_payload(void **state) {
    (void)state;
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    int sum = 0;
    adding a = {&sum, 0, {0}};
    assert_int_equal(sizeof a, VGPU_PAYLOAD_BYTES);
    for (int i = 1; i <= 100; i++) {
        a.value = i;
        a.rest[sizeof a.rest - 1] = 2;
        CHECK(vgpu_submit(stream, "add", add, &a, sizeof a));
        memset(a.rest, 0, sizeof a.rest);
    }
    CHECK(cudaStreamSynchronize(stream));
    assert_int_equal(sum, 2 * 5050);
    CHECK_REFUSED(vgpu_submit(stream, "add", add, &a, VGPU_PAYLOAD_BYTES + 1), cudaErrorInvalidValue);
    CHECK_REFUSED(vgpu_submit(stream, "add", NULL, &a, sizeof a), cudaErrorInvalidValue);
    assert_int_equal(vgpu_stream_device(stream), 0);
    CHECK(cudaSetDevice(1));
    CHECK_REFUSED(vgpu_submit(stream, "add", add, &a, sizeof a), cudaErrorInvalidResourceHandle);
    CHECK(cudaStreamDestroy(stream));
}

static void stale_and_foreign_handles_are_refused(void **state) {
    (void)state;
    int sum = 0;
    adding a = {&sum, 1, {0}};
    cudaStream_t stream = make_stream(cudaStreamDefault);
    cudaEvent_t event = make_event(cudaEventDefault);
    CHECK_REFUSED(cudaStreamSynchronize((cudaStream_t)event), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaEventQuery((cudaEvent_t)stream), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaStreamQuery((cudaStream_t)&sum), cudaErrorInvalidResourceHandle);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(event));
    cudaStream_t next = make_stream(cudaStreamDefault); /* may reuse their objects */
    cudaEvent_t next_event = make_event(cudaEventDefault);
    CHECK_REFUSED(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaStreamWaitEvent(stream, next_event, 0), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaEventRecord(next_event, stream), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(vgpu_submit(stream, "add", add, &a, sizeof a), cudaErrorInvalidResourceHandle);
    assert_int_equal(vgpu_stream_device(stream), -1);
    CHECK_REFUSED(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaEventRecord(event, next), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaStreamWaitEvent(next, event, 0), cudaErrorInvalidResourceHandle);
    CHECK(cudaStreamDestroy(next));
    CHECK(cudaEventDestroy(next_event));
}

static cudaError_t fault(void *unused) {
    (void)unused;
    return cudaErrorIllegalAddress;
}

static void failed_operation_sticks_to_its_device(void **state) {
    (void)state;
    unsigned char host[16] = {0};
    unsigned char *bytes = make_bytes(BYTES, 1);
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    cudaEvent_t event = make_event(cudaEventDefault);
    gate g;
    gate_close(&g, stream);
    CHECK(vgpu_submit(stream, "fault", fault, NULL, 0));
    CHECK(cudaMemsetAsync(bytes, 2, BYTES, stream));                                  /* dropped */
    CHECK(cudaMemcpyAsync(bytes, host, sizeof host, cudaMemcpyHostToDevice, stream)); /* and its staged bytes freed */
    CHECK(cudaEventRecord(event, stream));
    gate_open(&g);
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress); /* it sticks */
    assert_int_equal(bytes[0], 1);
    void *more = NULL;
    assert_int_equal(cudaMalloc(&more, BYTES), cudaErrorIllegalAddress);
    assert_int_equal(cudaMemset(bytes, 0, BYTES), cudaErrorIllegalAddress);
    assert_int_equal(cudaEventQuery(event), cudaErrorIllegalAddress);
    assert_int_equal(cudaEventRecord(event, stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_int_equal(vgpu_submit(stream, "fault", fault, NULL, 0), cudaErrorIllegalAddress);

    CHECK(cudaSetDevice(1)); /* another device is well */
    (void)cudaGetLastError();
    unsigned char *there = make_bytes(BYTES, 3);
    check_bytes(there, BYTES, 3);
    CHECK(cudaFree(there));
    assert_int_equal(cudaMemsetAsync(bytes, 0, BYTES, stream), cudaErrorIllegalAddress); /* the stream's device */
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);

    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceReset());
    (void)cudaGetLastError();
    CHECK(cudaDeviceSynchronize());
    CHECK_REFUSED(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaFree(bytes), cudaErrorInvalidValue);
}

static void reset_frees_what_the_device_holds(void **state) {
    (void)state;
    size_t before = 0;
    size_t after = 0;
    size_t total = 0;
    CHECK(cudaMemGetInfo(&before, &total));
    assert_int_equal(before, total);
    void *blocks[5];
    for (size_t i = 0; i < 5; i++) {
        CHECK(cudaMalloc(&blocks[i], 10000 * (i + 1)));
    }
    CHECK(cudaFree(blocks[2]));
    cudaStream_t mine = make_stream(cudaStreamDefault);
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    CHECK(cudaSetDevice(1));
    cudaStream_t other = make_stream(cudaStreamDefault);
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceReset());
    CHECK(cudaMemGetInfo(&after, &total));
    assert_int_equal(after, before);
    CHECK_REFUSED(cudaStreamDestroy(mine), cudaErrorInvalidResourceHandle);
    CHECK_REFUSED(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
    CHECK(cudaStreamDestroy(other)); /* another device's stream lives on */
}

static void call_in_host_function(void *argument) {
    cudaError_t *seen = argument;
    void *block = NULL;
    seen[0] = cudaMalloc(&block, BYTES);
    seen[1] = cudaStreamSynchronize(0);
    seen[2] = cudaSetDevice(0);
    seen[3] = vgpu_submit(0, "fault", fault, NULL, 0);
}

static void host_functions_may_not_call_cuda(void **state) {
    (void)state;
    cudaError_t seen[4] = {cudaSuccess, cudaSuccess, cudaSuccess, cudaSuccess};
    cudaStream_t stream = make_stream(cudaStreamDefault);
    CHECK(cudaLaunchHostFunc(stream, call_in_host_function, seen));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(seen[i], cudaErrorNotPermitted);
    }
    CHECK(cudaStreamDestroy(stream));
}

static void ranges_beyond_their_allocation_are_refused(void **state) {
    (void)state;
    static unsigned char host[2 * BYTES];
    unsigned char *small = make_bytes(1000, 1);
    unsigned char *next = make_bytes(BYTES, 2);
    CHECK_REFUSED(cudaMemcpy(small, host, 1001, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaMemcpy(host, small + 999, 2, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaMemset(small + 1, 0, 1000), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaMemcpy(host, small, 1000, cudaMemcpyHostToHost), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaMemcpyPeer(small, 1, next, 0, 100), cudaErrorInvalidValue); /* on the wrong device */
    CHECK(cudaMemset(small + 1, 9, 999));
    check_bytes(next, BYTES, 2);
    CHECK_REFUSED(cudaFree(small + 256), cudaErrorInvalidValue);
    CHECK(cudaFree(small));
    CHECK_REFUSED(cudaFree(small), cudaErrorInvalidValue);
    CHECK_REFUSED(cudaMemset(small, 0, 1), cudaErrorInvalidValue);
    CHECK(cudaFree(next));
}

static void arena_is_shared_memory(void **state) {
    (void)state;
    CHECK(cudaSetDevice(1));
    unsigned char *bytes = make_bytes(BYTES, 4);
    vgpu_arena arena;
    CHECK(vgpu_device_arena(1, &arena));
    assert_true(bytes >= (unsigned char *)arena.base && bytes + BYTES <= (unsigned char *)arena.base + arena.size);
    unsigned char *again = mmap(NULL, arena.size, PROT_READ, MAP_SHARED | MAP_NORESERVE, arena.fd, 0);
    assert_ptr_not_equal(again, MAP_FAILED);
    size_t offset = (size_t)(bytes - (unsigned char *)arena.base);
    assert_int_equal(again[offset], 4);
    assert_int_equal(again[offset + BYTES - 1], 4);
    assert_int_equal(munmap(again, arena.size), 0);
    size_t remaining = 0;
    assert_int_equal(vgpu_pointer_device(bytes + 96, &remaining), 1);
    assert_int_equal(remaining, BYTES - 96);
    assert_int_equal(vgpu_pointer_device(&remaining, &remaining), -1);
    assert_int_equal(remaining, 0);
    CHECK(cudaFree(bytes));
    assert_int_equal(vgpu_pointer_device(bytes, NULL), -1);
    assert_int_equal(vgpu_device_arena(device_count(), &arena), cudaErrorInvalidDevice);
}

static size_t arena_bytes_in_use(void) {
    vgpu_arena arena;
    struct stat status;
    CHECK(vgpu_device_arena(0, &arena));
    assert_int_equal(fstat(arena.fd, &status), 0);
    return (size_t)status.st_blocks * 512;
}

static void freed_memory_goes_back_to_the_system(void **state) {
    (void)state;
    enum { LARGE = 8 << 20 };
    unsigned char *keep = make_bytes(300, 1);
    size_t before = arena_bytes_in_use();
    unsigned char *large = make_bytes(LARGE, 2);
    unsigned char *after = make_bytes(300, 3);
    assert_true(arena_bytes_in_use() >= before + LARGE);
    CHECK(cudaFree(large));
    assert_true(arena_bytes_in_use() <= before + 2 * BYTES); /* the page that `after` lies in */
    check_bytes(keep, 300, 1);
    check_bytes(after, 300, 3);
    CHECK(cudaFree(keep));
    CHECK(cudaFree(after));
}

static void *change_word(void *argument) {
    _Atomic unsigned *word = argument;
    let_errors_happen();
    atomic_store(word, 1);
    vgpu_wake_all(word);
    return NULL;
}

static void wait_while_ends_by_change_or_deadline(void **state) {
    (void)state;
    _Atomic unsigned word = 0;
    assert_int_equal(vgpu_wait_while(&word, 1, 0), 0);
    unsigned long long start = vgpu_now_ns();
    assert_int_equal(vgpu_wait_while(&word, 0, start + 5000000), -1);
    assert_true(vgpu_now_ns() >= start + 5000000);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, change_word, &word), 0);
    assert_int_equal(vgpu_wait_while(&word, 0, 0), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Runs this program again as `mode` with one variable set; returns its exit status, and the lines it wrote to stderr. */
static int run_again(const char *mode, const char *variable, const char *value, int *lines) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        setenv(variable, value, 1);
        execl("/proc/self/exe", "test", mode, (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    char text[4096];
    ssize_t got = 0;
    *lines = 0;
    while ((got = read(ends[0], text, sizeof text)) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            *lines += text[i] == '\n';
        }
    }
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* In the child: exit status is the number of devices, or 100 + the error of cudaGetDeviceCount. */
static int child_count(void) {
    int count = -1;
    cudaError_t status = cudaGetDeviceCount(&count);
    void *block = NULL;
    if (cudaMalloc(&block, 1 << 19) != status || cudaGetLastError() != status || cudaFree(block) != status) {
        return 98;
    }
    return status == cudaSuccess ? count : 100 + (int)status;
}

static void settings_come_from_the_environment(void **state) {
    (void)state;
    int lines = 0;
    assert_int_equal(run_again("count", "LOCKSTEP_VGPU_COUNT", "1", &lines), 1);
    assert_int_equal(lines, 0);
    assert_int_equal(run_again("count", "LOCKSTEP_VGPU_COUNT", "64", &lines), 64);
    assert_int_equal(run_again("count", "LOCKSTEP_VGPU_MEMORY", "1048576", &lines), device_count());
    const char *bad[] = {"0", "65", "-1", "many", "4x", "", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(run_again("count", "LOCKSTEP_VGPU_COUNT", bad[i], &lines), 100 + cudaErrorInvalidDevice);
        assert_int_equal(lines, 1);
    }
    assert_int_equal(run_again("count", "LOCKSTEP_VGPU_MEMORY", "1000", &lines), 100 + cudaErrorInvalidDevice);
    assert_int_equal(lines, 1);
}

static double cpu_seconds(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void idle_and_waiting_streams_use_no_core(void **state) {
    (void)state;
    enum { STREAMS = 16, EACH = 64 };
    cudaStream_t streams[STREAMS];
    cudaEvent_t event = make_event(cudaEventDisableTiming);
    unsigned char *bytes = make_bytes(STREAMS * EACH, 0);
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = make_stream(cudaStreamNonBlocking);
        CHECK(cudaMemsetAsync(bytes + i * EACH, 1, EACH, streams[i]));
    }
    gate g;
    gate_close(&g, streams[0]);
    CHECK(cudaEventRecord(event, streams[0]));
    for (int i = 1; i < STREAMS / 2; i++) { /* half of them wait, half are idle */
        CHECK(cudaStreamWaitEvent(streams[i], event, 0));
        CHECK(cudaMemsetAsync(bytes + i * EACH, 2, EACH, streams[i]));
    }
    let_errors_happen();
    double before = cpu_seconds();
    struct timespec pause = {.tv_nsec = 300000000};
    nanosleep(&pause, NULL);
    double used = cpu_seconds() - before;
    gate_open(&g);
    /* One spinning thread would use 0.3 s, were it not for other programs on the machine; sleeping ones use none. */
    assert_true(used < 0.03);
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaStreamSynchronize(streams[i]));
        CHECK(cudaStreamDestroy(streams[i]));
    }
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFree(bytes));
}

int main(int count, char **arguments) {
    alarm(TEST_SECONDS);
    if (count > 1 && strcmp(arguments[1], "count") == 0) {
        return child_count();
    }
    const struct CMUnitTest tests[] = {
        RUNTIME_TEST(submit_copies_the_payload),
        RUNTIME_TEST(stale_and_foreign_handles_are_refused),
        RUNTIME_TEST(failed_operation_sticks_to_its_device),
        RUNTIME_TEST(reset_frees_what_the_device_holds),
        RUNTIME_TEST(host_functions_may_not_call_cuda),
        RUNTIME_TEST(ranges_beyond_their_allocation_are_refused),
        RUNTIME_TEST(arena_is_shared_memory),
        RUNTIME_TEST(freed_memory_goes_back_to_the_system),
        RUNTIME_TEST(wait_while_ends_by_change_or_deadline),
        RUNTIME_TEST(settings_come_from_the_environment),
        RUNTIME_TEST(idle_and_waiting_streams_use_no_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
