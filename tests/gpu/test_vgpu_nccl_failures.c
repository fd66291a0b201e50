/* What vgpu's NCCL does when ranks fail or disagree: a diagnosis that names the rank, in bounded time, and nothing left. Each
 * case runs in a process of its own, as failures stick to devices; the parent reads its exit status and what it printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/mman.h>

#include "gpu/vgpu/internal.h"
#include "tests/gpu/nccl_clique.h"

/* --- the cases ---------------------------------------------------------------------------------------------------------- */

/* Rank 1 differs in one respect; both learn it, and the stream ends with an error. */
static void differing(ncclResult_t (*first)(clique *q), ncclResult_t (*second)(clique *q), const char *part) {
    clique q;
    clique_open(&q, 2);
    NCCL(ncclGroupStart());
    NCCL(sum(&q, 0, COUNT));
    NCCL(sum(&q, 1, COUNT));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    NCCL(first(&q));
    NCCL(second(&q));
    NCCL(ncclGroupEnd());
    for (int rank = 0; rank < 2; rank++) {
        MUST(await_error(q.comms[rank], 30.0) == ncclInvalidUsage);
        expect_text(q.comms[rank], "collective #2 differs between ranks: rank 0");
        expect_text(q.comms[rank], part);
        CUDA(cudaSetDevice(rank == 0 ? 2 : 3)); /* devices 0 and 1 have failed */
        MUST(sum(&q, rank, COUNT) == ncclInvalidUsage);
    }
    for (int rank = 0; rank < 2; rank++) {
        NCCL(ncclCommAbort(q.comms[rank]));
    }
}

static ncclResult_t usual(clique *q) {
    return sum(q, 0, COUNT);
}
static ncclResult_t other_count(clique *q) {
    return sum(q, 1, COUNT - 1);
}
static ncclResult_t other_small_count(clique *q) {
    return sum(q, 1, 1);
}
static ncclResult_t other_type(clique *q) {
    return ncclAllReduce(q->buffers[1], q->buffers[1], COUNT, ncclInt32, ncclSum, q->comms[1], q->streams[1]);
}
static ncclResult_t other_op(clique *q) {
    return ncclAllReduce(q->buffers[1], q->buffers[1], COUNT, ncclFloat32, ncclMax, q->comms[1], q->streams[1]);
}
static ncclResult_t multiplied(clique *q) {
    ncclRedOp_t op;
    float half = 0.5F;
    NCCL(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, q->comms[1]));
    return ncclAllReduce(q->buffers[1], q->buffers[1], COUNT, ncclFloat32, op, q->comms[1], q->streams[1]);
}
static ncclResult_t other_kind(clique *q) {
    return ncclBroadcast(q->buffers[1], q->buffers[1], COUNT, ncclFloat32, 0, q->comms[1], q->streams[1]);
}
static ncclResult_t registered(clique *q) {
    void *handle = NULL;
    NCCL(ncclCommRegister(q->comms[1], q->buffers[1], COUNT * sizeof(float), &handle));
    return sum(q, 1, COUNT);
}
static ncclResult_t root_0(clique *q) {
    return ncclBroadcast(q->buffers[0], q->buffers[0], COUNT, ncclFloat32, 0, q->comms[0], q->streams[0]);
}
static ncclResult_t root_1(clique *q) {
    return ncclBroadcast(q->buffers[1], q->buffers[1], COUNT, ncclFloat32, 1, q->comms[1], q->streams[1]);
}

static void differing_count(void) {
    differing(usual, other_count, "calls allreduce of 4999 float32 sum");
}
static void differing_small_count(void) {
    differing(usual, other_small_count, "calls allreduce of 1 float32 sum");
}
static void differing_type(void) {
    differing(usual, other_type, "calls allreduce of 5000 int32 sum");
}
static void differing_op(void) {
    differing(usual, other_op, "calls allreduce of 5000 float32 max");
}
static void differing_product(void) {
    differing(usual, multiplied, "calls allreduce of 5000 float32 premul-sum");
}
static void differing_kind(void) {
    differing(usual, other_kind, "calls broadcast of 5000 float32 root 0");
}
static void differing_registration(void) {
    differing(usual, registered, "calls allreduce of 5000 float32 sum in registered memory");
}
static void differing_root(void) {
    differing(root_0, root_1, "calls broadcast of 5000 float32 root 1");
}

/* A rank of this process that never comes: only the time limit can tell. */
static void absent_rank(void) {
    setenv("LOCKSTEP_VGPU_NCCL_TIMEOUT", "2", 1);
    clique q;
    char part[80];
    clique_open(&q, 2);
    NCCL(sum(&q, 0, COUNT));
    MUST(await_error(q.comms[0], 30.0) == ncclRemoteError);
    snprintf(part, sizeof part, "rank 1 (pid %d) did not reach allreduce #1 within 2 s", (int)getpid());
    expect_text(q.comms[0], part);
    MUST(cudaStreamSynchronize(q.streams[0]) != cudaSuccess);
    NCCL(ncclCommAbort(q.comms[0]));
    NCCL(ncclCommAbort(q.comms[1]));
}

static void destroyed_peer(void) {
    clique q;
    clique_open(&q, 2);
    NCCL(ncclCommDestroy(q.comms[1]));
    NCCL(sum(&q, 0, COUNT));
    MUST(await_error(q.comms[0], 30.0) == ncclRemoteError);
    expect_text(q.comms[0], "it has destroyed its communicator");
    NCCL(ncclCommAbort(q.comms[0]));
}

/* Fails the device after the collective has been queued behind it. */
static cudaError_t fault(void *payload) {
    (void)payload;
    usleep(50000);
    return cudaErrorIllegalAddress;
}

/* A device that fails drops its queued collectives: destroying the communicator does not wait for them, and tells the peer. */
static void failed_device(void) {
    clique q;
    clique_open(&q, 2);
    CUDA(cudaSetDevice(1));
    CUDA(vgpu_submit(q.streams[1], "fault", fault, NULL, 0));
    NCCL(ncclGroupStart());
    NCCL(sum(&q, 0, COUNT));
    NCCL(sum(&q, 1, COUNT));
    NCCL(ncclGroupEnd());
    NCCL(ncclCommDestroy(q.comms[1]));
    MUST(await_error(q.comms[0], 30.0) == ncclRemoteError);
    expect_text(q.comms[0], "its device 1 has failed: ");
    NCCL(ncclCommAbort(q.comms[0]));
}

/* One communicator's part of a group is more than a stream holds: its peers' parts must not be queued behind it. */
static void large_group(void) {
    enum { CALLS = 3000 };
    clique q;
    clique_open(&q, 2);
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; i < CALLS; i++) {
            NCCL(sum(&q, rank, 1));
        }
    }
    NCCL(ncclGroupEnd());
    for (int rank = 0; rank < 2; rank++) {
        CUDA(cudaSetDevice(rank));
        CUDA(cudaStreamSynchronize(q.streams[rank]));
        NCCL(ncclCommDestroy(q.comms[rank]));
    }
}

static void *abort_comm(void *comm) {
    usleep(50000);
    NCCL(ncclCommAbort(comm));
    return NULL;
}

/* The peers of a rank that aborts get an error; its own device goes on. */
static void abort_wakes_peers(void) {
    clique q;
    clique_open(&q, 3);
    NCCL(ncclGroupStart());
    NCCL(sum(&q, 0, COUNT));
    NCCL(sum(&q, 1, COUNT));
    NCCL(ncclGroupEnd());
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, abort_comm, q.comms[0]) == 0);
    CUDA(cudaStreamSynchronize(q.streams[0]));
    MUST(await_error(q.comms[1], 30.0) == ncclRemoteError);
    expect_text(q.comms[1], "aborted its communicator");
    MUST(pthread_join(thread, NULL) == 0);
    CUDA(cudaSetDevice(0));
    CUDA(cudaMemset(q.buffers[0], 0, COUNT * sizeof(float)));
    CUDA(cudaDeviceSynchronize());
    NCCL(ncclCommAbort(q.comms[1]));
    NCCL(ncclCommAbort(q.comms[2]));
}

static void ungrouped(void) {
    clique q;
    clique_open(&q, 2);
    NCCL(sum(&q, 0, COUNT));
    MUST(sum(&q, 1, COUNT) == ncclInvalidUsage);
    expect_text(NULL, "allreduce #1: one thread started it for rank 0 and then for rank 1 outside a common group");
    MUST(await_error(q.comms[0], 30.0) == ncclInvalidUsage);
    NCCL(ncclCommAbort(q.comms[0]));
    NCCL(ncclCommAbort(q.comms[1]));
}

static void *sum_on_other_thread(void *argument) {
    clique *q = argument;
    CUDA(cudaSetDevice(1));
    NCCL(sum(q, 1, COUNT));
    return NULL;
}

/* One thread for each device needs no group. */
static void ungrouped_threads_are_well(void) {
    clique q;
    clique_open(&q, 2);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, sum_on_other_thread, &q) == 0);
    NCCL(sum(&q, 0, COUNT));
    MUST(pthread_join(thread, NULL) == 0);
    for (int rank = 0; rank < 2; rank++) {
        CUDA(cudaStreamSynchronize(q.streams[rank]));
        NCCL(ncclCommDestroy(q.comms[rank]));
    }
}

static void bad_buffers(void) {
    clique q;
    clique_open(&q, 2);
    static float host[COUNT];
    ncclComm_t comm = q.comms[0];
    float *mine = q.buffers[0], *others = q.buffers[1];
    MUST(ncclAllReduce(host, mine, 8, ncclFloat32, ncclSum, comm, q.streams[0]) == ncclInvalidArgument);
    expect_text(NULL, "send buffer is no device memory");
    MUST(ncclAllReduce(mine, others, 8, ncclFloat32, ncclSum, comm, q.streams[0]) == ncclInvalidArgument);
    expect_text(NULL, "receive buffer is memory of device 1, expected memory of device 0");
    MUST(ncclAllReduce(mine, mine, COUNT + 1, ncclFloat32, ncclSum, comm, q.streams[0]) == ncclInvalidArgument);
    expect_text(NULL, "has 20000 bytes, 20004 are needed");
    MUST(ncclAllReduce((char *)mine + 1, mine, 8, ncclFloat32, ncclSum, comm, q.streams[0]) == ncclInvalidArgument);
    expect_text(NULL, "not aligned");
    MUST(ncclAllGather(mine, mine, COUNT / 2 + 1, ncclFloat32, comm, q.streams[0]) == ncclInvalidArgument);
    MUST(ncclAllReduce(mine, mine, 8, ncclFloat32, ncclSum, comm, q.streams[1]) == ncclInvalidArgument);
    expect_text(NULL, "the stream is of device 1, the communicator of device 0");
    MUST(ncclAllReduce(mine, mine, 8, ncclFloat8e4m3, ncclSum, comm, q.streams[0]) == ncclInvalidArgument);
    NCCL(ncclGroupStart()); /* an error inside a group starts nothing of it */
    NCCL(sum(&q, 1, COUNT));
    MUST(ncclAllReduce(host, mine, 8, ncclFloat32, ncclSum, comm, q.streams[0]) == ncclInvalidArgument);
    MUST(ncclGroupEnd() == ncclInvalidArgument);
    CUDA(cudaSetDevice(1));
    CUDA(cudaStreamSynchronize(q.streams[1]));
    NCCL(ncclCommDestroy(q.comms[0]));
    NCCL(ncclCommDestroy(q.comms[1]));
}

static ncclResult_t grouped_init(int ranks_0, int rank_0, int device_0, int ranks_1, int rank_1, int device_1) {
    ncclUniqueId id;
    ncclComm_t a, b;
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclGroupStart());
    CUDA(cudaSetDevice(device_0));
    NCCL(ncclCommInitRank(&a, ranks_0, id, rank_0));
    CUDA(cudaSetDevice(device_1));
    NCCL(ncclCommInitRank(&b, ranks_1, id, rank_1));
    ncclResult_t result = ncclGroupEnd();
    MUST(result == ncclSuccess || (a == NULL && b == NULL));
    return result;
}

static void contradictions(void) {
    setenv("LOCKSTEP_VGPU_NCCL_TIMEOUT", "2", 1);
    MUST(grouped_init(2, 0, 0, 3, 1, 1) == ncclInvalidUsage);
    expect_text(NULL, "world sizes differ");
    MUST(grouped_init(2, 1, 0, 2, 1, 1) == ncclInvalidUsage);
    expect_text(NULL, "claim rank 1 of 2");
    MUST(grouped_init(2, 0, 0, 2, 1, 0) == ncclInvalidUsage);
    expect_text(NULL, "Duplicate GPU detected");
    MUST(grouped_init(4, 0, 0, 4, 2, 1) == ncclRemoteError);
    expect_text(NULL, "rank 1, 3 of 4 did not join within 2 s (2 came)");
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    ncclComm_t comm;
    MUST(ncclCommInitRank(&comm, 2, id, 0) == ncclInvalidArgument);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 2;
    MUST(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
    expect_text(NULL, "blocking=2");
    NCCL(ncclGetUniqueId(&id));
    config.blocking = 1;
    NCCL(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    NCCL(ncclCommDestroy(comm));
    MUST(ncclCommInitRank(&comm, 1, id, 0) == ncclRemoteError); /* an id serves one clique */
    setenv("LOCKSTEP_VGPU_NCCL_TIMEOUT", "soon", 1);
    MUST(ncclGetUniqueId(&id) == ncclInvalidUsage);
}

/* --- peers that are processes ------------------------------------------------------------------------------------------- */

/* Joins as rank 0 a clique whose rank 1 is a process with the named body. */
static pid_t with_process(const char *body, rank_context *r, float **buffer) {
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    pid_t pid = spawn_rank(body, 1, 2, &id);
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)buffer, COUNT * sizeof(float)));
    NCCL(ncclCommInitRank(&r->comm, 2, id, 0));
    return pid;
}

static void body_exits(rank_context *r) {
    float *buffer;
    CUDA(cudaMalloc((void **)&buffer, COUNT * sizeof(float)));
    NCCL(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, r->comm, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    _exit(0);
}

static void body_endless(rank_context *r) {
    float *buffer;
    CUDA(cudaMalloc((void **)&buffer, COUNT * sizeof(float)));
    for (;;) {
        NCCL(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, r->comm, r->stream));
    }
}

static void dead_peer(void) {
    rank_context r;
    float *buffer;
    char part[80];
    pid_t pid = with_process("exits", &r, &buffer);
    for (int i = 0; i < 2; i++) {
        NCCL(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, r.comm, r.stream));
    }
    MUST(await_error(r.comm, 30.0) == ncclRemoteError);
    snprintf(part, sizeof part, "rank 1 (pid %d) did not reach allreduce #2: its process has ended", (int)pid);
    expect_text(r.comm, part);
    MUST(await_rank(pid) == 0);
    NCCL(ncclCommAbort(r.comm));
}

static void killed_peer(void) {
    rank_context r;
    float *buffer;
    char part[80];
    pid_t pid = with_process("endless", &r, &buffer);
    for (int i = 0; i < 500; i++) {
        NCCL(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, r.comm, r.stream));
    }
    MUST(kill(pid, SIGKILL) == 0);
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess) { /* until the queue has met the dead rank */
        result = ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, r.comm, r.stream);
    }
    MUST(await_error(r.comm, 30.0) == ncclRemoteError);
    snprintf(part, sizeof part, "rank 1 (pid %d) did not ", (int)pid);
    expect_text(r.comm, part);
    MUST(await_rank(pid) == 128 + SIGKILL);
    NCCL(ncclCommAbort(r.comm));
}

/* --- nothing left ------------------------------------------------------------------------------------------------------- */

static void body_one_sum(rank_context *r) {
    float *buffer;
    CUDA(cudaMalloc((void **)&buffer, COUNT * sizeof(float)));
    NCCL(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, r->comm, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaFree(buffer));
}

static size_t entries_of(const char *folder) {
    char command[64];
    snprintf(command, sizeof command, "ls %s | wc -l", folder);
    FILE *pipe = popen(command, "r"); /* NOLINT: the folder is a literal */
    size_t count = 0;
    MUST(pipe != NULL && fscanf(pipe, "%zu", &count) == 1);
    pclose(pipe);
    return count;
}

static void one_round(void) {
    rank_context r;
    float *buffer;
    pid_t pid = with_process("one", &r, &buffer);
    r.rank = 0;
    body_one_sum(&r);
    NCCL(ncclCommDestroy(r.comm));
    CUDA(cudaStreamDestroy(r.stream));
    CUDA(cudaFree(buffer));
    MUST(await_rank(pid) == 0);
    run_threads(2, body_one_sum, NULL);
}

/* Of the shell's own `ls` the same count is in both figures. Threads end shortly after they are told to. */
static void nothing_left(void) {
    char descriptors[32], threads[32];
    snprintf(descriptors, sizeof descriptors, "/proc/%d/fd", (int)getpid());
    snprintf(threads, sizeof threads, "/proc/%d/task", (int)getpid());
    one_round(); /* the runtime's own: arenas and the threads of the devices */
    size_t descriptors_before = entries_of(descriptors), threads_before = entries_of(threads);
    /* More rounds than what one of them may still hold after its end: if each left a descriptor, there would be more than before. */
    enum { ROUNDS = 16 };
    for (int i = 0; i < ROUNDS; i++) {
        one_round();
    }
    double end = ls_now_seconds() + 30.0;
    while (entries_of(threads) > threads_before || entries_of(descriptors) > descriptors_before) {
        MUST(ls_now_seconds() < end);
    }
    MUST(system("! grep -q lockstep-nccl /proc/net/unix") == 0 || getenv("CTEST_INTERACTIVE_DEBUG_MODE") != NULL);
    MUST(system("! ls /dev/shm | grep -q lockstep-nccl") == 0);
}

/* --- running a case in its own process ----------------------------------------------------------------------------------- */

typedef struct named_case {
    const char *name;
    void (*run)(void);
    const char *printed; /* a part of the one line that it prints; NULL: it prints nothing */
} named_case;

static const named_case cases[] = {
    {"differing_count", differing_count, "collective #2 differs between ranks: rank 0"},
    {"differing_small_count", differing_small_count, "collective #2 differs between ranks: rank 0"},
    {"differing_type", differing_type, "collective #2 differs between ranks: rank 0"},
    {"differing_op", differing_op, "collective #2 differs between ranks: rank 0"},
    {"differing_product", differing_product, "collective #2 differs between ranks: rank 0"},
    {"differing_kind", differing_kind, "collective #2 differs between ranks: rank 0"},
    {"differing_root", differing_root, "collective #2 differs between ranks: rank 0"},
    {"differing_registration", differing_registration, "collective #2 differs between ranks: rank 0"},
    {"absent_rank", absent_rank, "did not reach allreduce #1 within 2 s"},
    {"destroyed_peer", destroyed_peer, "destroyed its communicator"},
    {"failed_device", failed_device, "its device 1 has failed"},
    {"large_group", large_group, NULL},
    {"abort_wakes_peers", abort_wakes_peers, "aborted its communicator"},
    {"ungrouped", ungrouped, "outside a common group"},
    {"ungrouped_threads_are_well", ungrouped_threads_are_well, NULL},
    {"bad_buffers", bad_buffers, NULL},
    {"contradictions", contradictions, NULL},
    {"dead_peer", dead_peer, "did not reach allreduce #2: its process has ended"},
    {"killed_peer", killed_peer, "did not "},
    {"nothing_left", nothing_left, NULL},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void run_case(void **state) {
    const named_case *c = *state;
    char program[] = "/proc/self/exe", flag[] = "--case", name[64], printed[4096] = "";
    snprintf(name, sizeof name, "%s", c->name);
    char *arguments[] = {program, flag, name, NULL};
    int output = memfd_create("stderr", MFD_CLOEXEC);
    assert_true(output >= 0);
    posix_spawn_file_actions_t actions;
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, output, 2), 0);
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    int status = await_rank(pid);
    assert_true(pread(output, printed, sizeof printed - 1, 0) >= 0);
    close(output);
    size_t lines = 0;
    for (const char *at = printed; *at != '\0'; at++) {
        lines += *at == '\n';
    }
    bool well = status == 0 && (c->printed == NULL ? lines == 0 : lines == 1 && strstr(printed, c->printed) != NULL);
    if (!well) {
        print_message("%s: exit %d, printed:\n%s\n", c->name, status, printed);
    }
    assert_true(well);
}

int main(int argc, char **argv) {
    const named_body bodies[] = {{"exits", body_exits}, {"endless", body_endless}, {"one", body_one_sum}};
    become_rank(argc, argv, bodies, sizeof bodies / sizeof bodies[0]);
    struct CMUnitTest tests[CASES];
    for (size_t i = 0; i < CASES; i++) {
        if (argc == 3 && strcmp(argv[2], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
        tests[i] = (struct CMUnitTest){cases[i].name, run_case, NULL, NULL, (void *)(uintptr_t)&cases[i]};
    }
    return cmocka_run_group_tests_name("vgpu nccl failures", tests, NULL, NULL);
}
