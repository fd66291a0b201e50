/* LOCKSTEP_VGPU_SCHED=check: every planted race is reported with both places, and nothing is in its correct form. */
#include <nccl.h>
#include <pthread.h>

#include "gpu/vgpu/internal.h"
#include "gpu/vgpu/modes.h"
#include "tests/gpu/scenario.h"

enum { BYTES = 8192 };

static cudaStream_t a, b; /* of device 0 */
static cudaStream_t far;  /* of device 1 */
static cudaEvent_t event;
static char *x, *y; /* on device 0 */
static char *z;     /* on device 1 */
static char *pinned;
static char pageable[BYTES];

static void open_all(void) {
    DO(cudaSetDevice(1));
    DO(cudaStreamCreateWithFlags(&far, cudaStreamNonBlocking));
    DO(cudaMalloc((void **)&z, BYTES));
    DO(cudaSetDevice(0));
    DO(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    DO(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    DO(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    DO(cudaMalloc((void **)&x, BYTES));
    DO(cudaMalloc((void **)&y, BYTES));
    DO(cudaMallocHost((void **)&pinned, BYTES));
}

/* Every scenario takes whether it is right. */

static void wait_between_streams(bool right) {
    DO(cudaMemsetAsync(x, 1, BYTES, a));
    DO(cudaEventRecord(event, a));
    if (right) {
        DO(cudaStreamWaitEvent(b, event, 0));
    }
    DO(cudaMemcpyAsync(y, x + 100, 50, cudaMemcpyDeviceToDevice, b));
}

static void record_before_wait(bool right) {
    DO(cudaMemsetAsync(x, 1, BYTES, a));
    if (right) {
        DO(cudaEventRecord(event, a));
    }
    DO(cudaStreamWaitEvent(b, event, 0));
    DO(cudaMemsetAsync(x, 2, BYTES, b));
}

/* A wait binds to the record that is current at the call. */
static void record_again(bool right) {
    DO(cudaEventRecord(event, a));
    DO(cudaMemsetAsync(x, 1, BYTES, a));
    if (right) {
        DO(cudaEventRecord(event, a));
    }
    DO(cudaStreamWaitEvent(b, event, 0));
    DO(cudaEventRecord(event, a));
    DO(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDeviceToDevice, b));
}

/* A reader that the writer does not wait for. */
static void overwrite_what_is_read(bool right) {
    DO(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDeviceToDevice, a));
    DO(cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDeviceToHost, b)); /* two readers are no race */
    DO(cudaEventRecord(event, a));
    DO(cudaStreamWaitEvent(b, event, 0));
    DO(cudaMemsetAsync(x, 1, BYTES, right ? b : a));
}

static void copy_between_devices(bool right) {
    DO(cudaMemsetAsync(x, 1, BYTES, a));
    DO(cudaEventRecord(event, a));
    DO(cudaSetDevice(1));
    if (right) {
        DO(cudaStreamWaitEvent(far, event, 0));
    }
    DO(cudaMemcpyPeerAsync(z, 1, x, 0, BYTES, far));
}

static void host_reads(bool right) {
    DO(cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDeviceToHost, a));
    if (right) {
        DO(cudaStreamSynchronize(a));
    }
    ((volatile char *)pinned)[BYTES - 1]++;
}

static void host_reads_by_event(bool right) {
    DO(cudaEventRecord(event, a));
    DO(cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDeviceToHost, a));
    if (right) {
        DO(cudaEventRecord(event, a));
    }
    DO(cudaEventSynchronize(event));
    (void)((volatile char *)pinned)[0];
}

static void host_writes(bool right) {
    DO(cudaMemcpyAsync(x, pinned, BYTES, cudaMemcpyHostToDevice, a));
    (void)((volatile char *)pinned)[5]; /* reading what is read is no race */
    if (right) {
        DO(cudaDeviceSynchronize());
    }
    ((volatile char *)pinned)[5] = 1;
}

/* The system's calls use memory without an access of the processor, so the program tells. A range on a page with other data. */
static void told_host_access(bool right) {
    DO(cudaMemcpyAsync(pinned + 8, x, 8, cudaMemcpyDeviceToHost, a));
    ((volatile char *)pinned)[0] = 1;
    DO(vgpu_check_host_access(pinned + (right ? 16 : 15), 8, VGPU_READ));
}

/* The default stream orders itself with blocking streams only. */
static void default_stream(bool right) {
    cudaStream_t blocking = NULL;
    DO(cudaStreamCreate(&blocking));
    DO(cudaMemsetAsync(x, 1, BYTES, right ? blocking : a));
    DO(cudaMemsetAsync(x, 2, BYTES, NULL));
    DO(cudaMemsetAsync(x, 3, BYTES, blocking));
}

/* A pageable copy may return when its source has been staged. */
static void copy_from_pageable_memory(bool right) {
    DO(cudaMemcpy(x, pageable, BYTES, cudaMemcpyHostToDevice));
    if (right) {
        DO(cudaStreamSynchronize(NULL));
    }
    DO(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDeviceToDevice, a));
}

/* cudaFree waits for its own device only. */
static void free_in_use(bool right) {
    DO(cudaSetDevice(1));
    DO(cudaMemcpyPeerAsync(z, 1, x, 0, BYTES, far));
    if (right) {
        DO(cudaStreamSynchronize(far));
    }
    DO(cudaFree(x));
}

/* Both devices' parts, in one group. */
static void reduce_all(ncclComm_t *comms) {
    DO(ncclGroupStart());
    DO(ncclAllReduce(x, x, BYTES, ncclInt8, ncclSum, comms[0], a));
    DO(ncclAllReduce(z, z, BYTES, ncclInt8, ncclSum, comms[1], far));
    DO(ncclGroupEnd());
}

static void use_after_collective(bool right) {
    ncclComm_t comms[2];
    DO(ncclCommInitAll(comms, 2, NULL));
    reduce_all(comms);
    DO(cudaEventRecord(event, a));
    if (right) {
        DO(cudaStreamWaitEvent(b, event, 0));
    }
    DO(cudaMemsetAsync(x + BYTES - 1, 1, 1, b));
    DO(cudaDeviceSynchronize());
    DO(ncclCommDestroy(comms[0]));
    DO(ncclCommDestroy(comms[1]));
}

/* What a peer did before an allreduce comes before what this rank does after it. */
static void order_by_collective(bool right) {
    ncclComm_t comms[2];
    char *w = NULL;
    DO(cudaMalloc((void **)&w, BYTES));
    DO(ncclCommInitAll(comms, 2, NULL));
    DO(cudaSetDevice(1));
    DO(cudaMemcpyPeerAsync(w, 0, z, 1, BYTES, far));
    if (right) {
        reduce_all(comms);
    }
    DO(cudaSetDevice(0));
    DO(cudaMemsetAsync(w, 1, BYTES, a));
    DO(cudaDeviceSynchronize());
    DO(ncclCommDestroy(comms[0]));
    DO(ncclCommDestroy(comms[1]));
}

static void *fill_elsewhere(void *unused) {
    (void)unused;
    DO(cudaMemsetAsync(x, 2, BYTES, b));
    DO(cudaStreamSynchronize(b));
    return NULL;
}

/* A new thread knows what its maker has waited for, and what it has waited for is known when it has ended. */
static void two_threads(bool right) {
    pthread_t thread;
    DO(cudaMemsetAsync(x, 1, BYTES, a));
    if (right) {
        DO(cudaStreamSynchronize(a));
    }
    DO(pthread_create(&thread, NULL, fill_elsewhere, NULL));
    DO(pthread_join(thread, NULL));
    DO(cudaMemsetAsync(x, 3, BYTES, a));
}

static cudaError_t do_nothing(void *payload) {
    (void)payload;
    return cudaSuccess;
}

static void say_what_is_used(bool right) {
    if (right) {
        LS_ACCESS(LS_READS(x, BYTES));
    }
    DO(vgpu_submit(a, "silent kernel", do_nothing, "", 1));
}

static void stay_inside(bool right) {
    LS_ACCESS(LS_READS(x + 1, right ? BYTES - 1 : BYTES));
    DO(vgpu_submit(a, "long kernel", do_nothing, "", 1));
}

/* The parts of the line: both operations, their streams' devices and places, and the bytes. */
static const struct {
    const char *name;
    void (*run)(bool right);
    const char *words[6];
} scenarios[] = {
    {"wait",
     wait_between_streams,
     {"race: fill (stream", "test_vgpu_sched_check.c:", "writes and copy (stream",
      "reads 50 bytes at byte 100 of an allocation of 8192 bytes on device 0", NULL}},
    {"record", record_before_wait, {"race: fill", "and fill", "8192 bytes at byte 0", NULL}},
    {"rerecord", record_again, {"race: fill", "and copy", NULL}},
    {"overwrite", overwrite_what_is_read, {"race: copy", "reads and fill", "writes", NULL}},
    {"devices", copy_between_devices, {"race: fill", "of device 0", "and copy", "of device 1", NULL}},
    {"host-read", host_reads, {"race: copy", "writes 8192 bytes of pinned host memory", "uses byte 8191", NULL}},
    {"host-event", host_reads_by_event, {"race: copy", "uses byte 0", NULL}},
    {"host-write", host_writes, {"race: copy", "reads 8192 bytes of pinned host memory", "uses byte 5", NULL}},
    {"host-told", told_host_access, {"race: copy", "the host reads it", "test_vgpu_sched_check.c", NULL}},
    {"default", default_stream, {"race: fill", "default stream of device 0", NULL}},
    {"pageable", copy_from_pageable_memory, {"race: copy (default stream", NULL}},
    {"free", free_in_use, {"race: copy", "it is freed", NULL}},
    {"collective", use_after_collective, {"race: allreduce", "writes and fill", "1 bytes at byte 8191", NULL}},
    {"peers", order_by_collective, {"race: copy", "and fill", NULL}},
    {"threads", two_threads, {"race: fill", NULL}},
    {"silent", say_what_is_used, {"check: silent kernel", "does not declare", NULL}},
    {"inside", stay_inside, {"check: long kernel", "reads 8192 bytes", "8191 lie in", NULL}},
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static const char *const settings[] = {"LOCKSTEP_VGPU_SCHED=check", NULL};

static void planted_races_are_reported(void **state) {
    (void)state;
    for (size_t i = 0; i < SCENARIOS; i++) {
        expect_finding(run_scenario(scenarios[i].name, "wrong", settings), scenarios[i].words);
    }
}

static void correct_forms_are_silent(void **state) {
    (void)state;
    for (size_t i = 0; i < SCENARIOS; i++) {
        expect_silence(run_scenario(scenarios[i].name, "right", settings));
    }
}

static void without_the_mode_nothing_is_said(void **state) {
    (void)state;
    static const char *const none[] = {"LOCKSTEP_VGPU_SCHED=async", NULL};
    expect_silence(run_scenario("silent", "wrong", none));
    expect_silence(run_scenario("inside", "wrong", none));
    expect_silence(run_scenario("host-told", "wrong", none));
}

int main(int argc, char **argv) {
    alarm(TEST_SECONDS);
    if (argc == 3) {
        for (size_t i = 0; i < SCENARIOS; i++) {
            if (strcmp(argv[1], scenarios[i].name) == 0) {
                open_all();
                scenarios[i].run(strcmp(argv[2], "right") == 0);
                for (int device = 0; device < 2; device++) {
                    DO(cudaSetDevice(device));
                    DO(cudaDeviceSynchronize());
                }
                return 0;
            }
        }
        return 98;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_races_are_reported),
        cmocka_unit_test(correct_forms_are_silent),
        cmocka_unit_test(without_the_mode_nothing_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
