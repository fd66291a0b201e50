/* LOCKSTEP_VGPU_GUARD, LOCKSTEP_VGPU_SCHED=isolate, LOCKSTEP_VGPU_DELAY, and settings that are refused. */
#include "gpu/base/clock.h"
#include "gpu/vgpu/internal.h"
#include "tests/gpu/scenario.h"

enum { BYTES = 1000 };

static cudaStream_t stream;
static unsigned char *x, *y;
static unsigned char host[2 * BYTES];

static void open_all(void) {
    DO(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DO(cudaMalloc((void **)&x, BYTES));
    DO(cudaMalloc((void **)&y, BYTES));
}

/* A kernel that copies bytes, wherever they lie. */
typedef struct mover {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
} mover;

static cudaError_t move(void *payload) {
    const mover *m = payload;
    memcpy(m->to, m->from, m->bytes);
    return cudaSuccess;
}

/* Declares one thing and does another. */
static void launch(size_t declared_to, size_t declared_from, mover does) {
    LS_ACCESS(LS_WRITES(y, declared_to), LS_READS(x, declared_from));
    DO(vgpu_submit(stream, "(mover<int>)", move, &does, sizeof does));
    DO(cudaStreamSynchronize(stream));
}

static void fresh_memory_is_nan(bool right) {
    (void)right;
    DO(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream));
    for (size_t i = 0; i < BYTES; i++) {
        DO(host[i] != 0xFF);
    }
}

/* 1000 bytes reach to 1024 for the sake of alignment; the next page is closed. */
static void run_over_the_end(bool right) {
    launch(BYTES, BYTES, (mover){y, x, right ? BYTES : 1025});
}

static void run_over_the_end_a_little(bool right) {
    launch(BYTES, BYTES, (mover){y, host, right ? BYTES : BYTES + 1});
    DO(cudaFree(y));
}

static void write_before_the_start(bool right) {
    launch(BYTES, BYTES, (mover){right ? y : y - 1, host, 1});
    DO(cudaFree(y));
}

static void use_after_free(bool right) {
    const unsigned char *gone = x;
    if (!right) {
        DO(cudaFree(x));
        DO(cudaMalloc((void **)&x, 5 * BYTES)); /* fits elsewhere only */
    }
    launch(BYTES, BYTES, (mover){y, gone, BYTES});
}

static void use_of_a_peer(bool right) {
    unsigned char *far = NULL;
    DO(cudaSetDevice(1));
    DO(cudaMalloc((void **)&far, BYTES));
    DO(cudaSetDevice(0));
    if (right) {
        DO(cudaDeviceEnablePeerAccess(1, 0));
    }
    LS_ACCESS(LS_READS(far, BYTES), LS_WRITES(y, BYTES));
    mover does = {y, far, BYTES};
    DO(vgpu_submit(stream, "mover", move, &does, sizeof does));
}

static void copy_from_a_peer(bool right) {
    unsigned char *far = NULL;
    DO(cudaSetDevice(1));
    DO(cudaMalloc((void **)&far, BYTES));
    DO(cudaSetDevice(0));
    DO(cudaMemcpyPeerAsync(y, 0, far, 1, BYTES, stream));
    if (!right) {
        DO(cudaMemcpyAsync(y, far, BYTES, cudaMemcpyDeviceToDevice, stream));
    }
}

static void read_the_undeclared(bool right) {
    launch(BYTES, right ? BYTES : BYTES - 1, (mover){y, x, BYTES});
}

static void write_the_undeclared(bool right) {
    DO(cudaMemsetAsync(x, 1, BYTES, stream));
    launch(right ? BYTES : BYTES - 1, BYTES, (mover){y, x, BYTES});
}

static void leave_unwritten(bool right) {
    launch(BYTES, BYTES, (mover){y, x, right ? BYTES : BYTES - 1});
}

static void read_elsewhere(bool right) {
    unsigned char *z = NULL;
    DO(cudaMalloc((void **)&z, BYTES));
    launch(BYTES, BYTES, (mover){y, right ? x : z, BYTES});
}

static cudaError_t do_nothing(void *payload) {
    (void)payload;
    return cudaSuccess;
}

/* Takes as long as the delays: 40 ms for the kernel and the fill of device 0. */
static void take_time(bool right) {
    (void)right;
    double start = ls_now_seconds();
    DO(vgpu_submit(stream, "some kernel", do_nothing, "", 1));
    DO(cudaMemsetAsync(x, 1, BYTES, stream));
    DO(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, stream));
    DO(ls_now_seconds() - start < 0.04);
}

static const struct {
    const char *name;
    void (*run)(bool right);
    const char *setting;
    const char *words[5];
} scenarios[] = {
    {"over",
     run_over_the_end,
     "LOCKSTEP_VGPU_GUARD=1",
     {"guard: mover (stream", "24 bytes behind the end of an allocation of 1000 bytes", NULL}},
    {"little",
     run_over_the_end_a_little,
     "LOCKSTEP_VGPU_GUARD=1",
     {"guard: bytes right behind an allocation of 1000 bytes", NULL}},
    {"before",
     write_before_the_start,
     "LOCKSTEP_VGPU_GUARD=1",
     {"guard: bytes right before an allocation of 1000 bytes", NULL}},
    {"freed", use_after_free, "LOCKSTEP_VGPU_GUARD=1", {"guard: mover", "memory", NULL}},
    {"peer",
     use_of_a_peer,
     "LOCKSTEP_VGPU_GUARD=1",
     {"guard: mover", "reads memory of device 1", "cudaDeviceEnablePeerAccess", NULL}},
    {"peer-copy", copy_from_a_peer, "LOCKSTEP_VGPU_GUARD=1", {"guard: copy", "reads memory of device 1", NULL}},
    {"reads",
     read_the_undeclared,
     "LOCKSTEP_VGPU_SCHED=isolate",
     {"isolate: mover", "reads what it has not declared to read", "byte 999", NULL}},
    {"writes",
     write_the_undeclared,
     "LOCKSTEP_VGPU_SCHED=isolate",
     {"isolate: mover", "writes what it has not declared to write", "byte 999", NULL}},
    {"unwritten",
     leave_unwritten,
     "LOCKSTEP_VGPU_SCHED=isolate",
     {"isolate: mover", "leaves unwritten", "byte 999", NULL}},
    {"elsewhere",
     read_elsewhere,
     "LOCKSTEP_VGPU_SCHED=isolate",
     {"isolate: mover", "uses memory that it has not declared", "byte 0 of an allocation of 1000 bytes", NULL}},
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static void findings_and_silence(void **state) {
    (void)state;
    for (size_t i = 0; i < SCENARIOS; i++) {
        const char *settings[] = {scenarios[i].setting, NULL};
        expect_finding(run_scenario(scenarios[i].name, "wrong", settings), scenarios[i].words);
        expect_silence(run_scenario(scenarios[i].name, "right", settings));
    }
}

static void guarded_memory_starts_as_nan(void **state) {
    (void)state;
    static const char *const settings[] = {"LOCKSTEP_VGPU_GUARD=1", NULL};
    expect_silence(run_scenario("nan", "right", settings));
}

static void delays_take_their_time(void **state) {
    (void)state;
    static const char *const settings[] = {"LOCKSTEP_VGPU_DELAY=name:some=20ms,fill@0=0.02s,all@7=9s,collective=9s",
                                           NULL};
    expect_silence(run_scenario("time", "right", settings));
}

static void bad_settings_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "LOCKSTEP_VGPU_SCHED=",
        "LOCKSTEP_VGPU_SCHED=Check",
        "LOCKSTEP_VGPU_SCHED=fuzz",
        "LOCKSTEP_VGPU_SCHED=fuzz:",
        "LOCKSTEP_VGPU_SCHED=fuzz:1x",
        "LOCKSTEP_VGPU_SCHED=fuzz:-1",
        "LOCKSTEP_VGPU_GUARD=yes",
        "LOCKSTEP_VGPU_FUSE=off",
        "LOCKSTEP_VGPU_COPY_ENGINES=2",
        "LOCKSTEP_VGPU_ISA=avx2",
        "LOCKSTEP_VGPU_DELAY=",
        "LOCKSTEP_VGPU_DELAY=kernel",
        "LOCKSTEP_VGPU_DELAY=kernel=2",
        "LOCKSTEP_VGPU_DELAY=kernels=2ms",
        "LOCKSTEP_VGPU_DELAY=kernel@x=2ms",
        "LOCKSTEP_VGPU_DELAY=copy=-1ms",
        "LOCKSTEP_VGPU_DELAY=copy=1ms,",
        "LOCKSTEP_VGPU_DELAY=copy=61s",
        "LOCKSTEP_VGPU_DELAY=name:=1ms",
        "LOCKSTEP_VGPU_DELAY=copy=1ms;fill=1ms",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *settings[] = {bad[i], NULL};
        const char *words[] = {"environment: LOCKSTEP_VGPU_", "expected", NULL};
        expect_finding(run_scenario("time", "right", settings), words);
    }
    static const char *const both[] = {"LOCKSTEP_VGPU_SCHED=isolate", "LOCKSTEP_VGPU_GUARD=1", NULL};
    static const char *const words[] = {"LOCKSTEP_VGPU_GUARD", NULL};
    expect_finding(run_scenario("time", "right", both), words);
}

int main(int argc, char **argv) {
    alarm(TEST_SECONDS);
    if (argc == 3) {
        bool right = strcmp(argv[2], "right") == 0;
        open_all();
        if (strcmp(argv[1], "nan") == 0) {
            fresh_memory_is_nan(right);
        } else if (strcmp(argv[1], "time") == 0) {
            take_time(right);
        }
        for (size_t i = 0; i < SCENARIOS; i++) {
            if (strcmp(argv[1], scenarios[i].name) == 0) {
                scenarios[i].run(right);
            }
        }
        DO(cudaDeviceSynchronize());
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(findings_and_silence),
        cmocka_unit_test(guarded_memory_starts_as_nan),
        cmocka_unit_test(delays_take_their_time),
        cmocka_unit_test(bad_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
