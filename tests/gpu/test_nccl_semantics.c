/* The order in which collectives happen: with other work of their stream, across streams by events, back to back, and in
 * groups; equal bits on all ranks; and the answers about a communicator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/gpu/nccl_test.h"

enum { RANKS = 4, COUNT = 3001 };

static int ranks_here(void) {
    return device_count() < RANKS ? device_count() : RANKS;
}

static void *device_memory(size_t bytes) {
    void *memory;
    CUDA(cudaMalloc(&memory, bytes));
    return memory;
}

static void *pinned_memory(size_t bytes) {
    void *memory;
    CUDA(cudaMallocHost(&memory, bytes));
    return memory;
}

/* Equal on all ranks, shown by the communicator itself. */
static void must_agree(rank_context *r, uint64_t value) {
    uint64_t *all = device_memory(sizeof value * (size_t)r->ranks), host[64];
    CUDA(cudaMemcpyAsync(all + r->rank, &value, sizeof value, cudaMemcpyHostToDevice, r->stream));
    NCCL(ncclAllGather(all + r->rank, all, 1, ncclUint64, r->comm, r->stream));
    CUDA(cudaMemcpyAsync(host, all, sizeof value * (size_t)r->ranks, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    for (int rank = 0; rank < r->ranks; rank++) {
        MUST(host[rank] == value);
    }
    CUDA(cudaFree(all));
}

static uint64_t fnv(const void *bytes, size_t count) {
    uint64_t hash = 14695981039346656037ULL;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211ULL;
    }
    return hash;
}

/* Values whose sums round, so that another order of summation on another rank would show. */
static float rough(int rank, size_t i) {
    uint32_t x = (uint32_t)i * 2654435761U + (uint32_t)rank * 40503U + 1U;
    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    return (float)((double)x / 4294967296.0 - 0.5) * (float)(1 << (x % 17));
}

static void body_equal_bits(rank_context *r) {
    static const size_t counts[] = {1, 17, 1000, 1025, 30011, 200003};
    /* Freed at the end: cudaFreeHost waits for every device, peers' unfinished collectives included. */
    float *buffer = device_memory(200003 * sizeof(float)), *host = pinned_memory(200003 * sizeof(float));
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        size_t bytes = counts[k] * sizeof(float);
        for (int op = ncclSum; op < ncclNumOps; op++) {
            for (size_t i = 0; i < counts[k]; i++) {
                host[i] = rough(r->rank, i);
            }
            CUDA(cudaMemcpyAsync(buffer, host, bytes, cudaMemcpyHostToDevice, r->stream));
            NCCL(ncclAllReduce(buffer, buffer, counts[k], ncclFloat32, (ncclRedOp_t)op, r->comm, r->stream));
            CUDA(cudaMemcpyAsync(host, buffer, bytes, cudaMemcpyDeviceToHost, r->stream));
            CUDA(cudaStreamSynchronize(r->stream));
            must_agree(r, fnv(host, bytes));
        }
    }
    CUDA(cudaFree(buffer));
    CUDA(cudaFreeHost(host));
}

/* Calls follow one another without a host wait, and each call's input is written by the stream just before it: a rank that
 * runs ahead must not overwrite what its peers still read. Sizes alternate between small and large protocols. */
static void body_back_to_back(rank_context *r) {
    enum { CALLS = 600 };
    size_t bytes = COUNT * sizeof(int32_t);
    int32_t *buffer = device_memory(bytes), *results = device_memory(CALLS * sizeof(int32_t));
    int32_t *inputs = pinned_memory(2 * bytes), *host = pinned_memory(CALLS * sizeof(int32_t));
    for (size_t i = 0; i < COUNT; i++) {
        inputs[i] = r->rank + 1;
        inputs[COUNT + i] = 100 * (r->rank + 1);
    }
    for (int call = 0; call < CALLS; call++) {
        size_t count = call % 3 == 0 ? COUNT : call % 3 == 1 ? 100 : 1;
        CUDA(cudaMemcpyAsync(buffer, inputs + (size_t)(call % 2) * COUNT, count * sizeof(int32_t),
                             cudaMemcpyHostToDevice, r->stream));
        NCCL(ncclAllReduce(buffer, buffer, count, ncclInt32, ncclSum, r->comm, r->stream));
        CUDA(cudaMemcpyAsync(results + call, buffer + count - 1, sizeof(int32_t), cudaMemcpyDeviceToDevice, r->stream));
    }
    CUDA(cudaMemcpyAsync(host, results, CALLS * sizeof(int32_t), cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    for (int call = 0; call < CALLS; call++) {
        MUST(host[call] == (call % 2 == 0 ? 1 : 100) * r->ranks * (r->ranks + 1) / 2);
    }
    CUDA(cudaFree(buffer));
    CUDA(cudaFree(results));
    CUDA(cudaFreeHost(inputs));
    CUDA(cudaFreeHost(host));
}

/* The pattern of overlapped training: compute stream -> event -> collective's stream -> event -> compute stream. */
static void body_events(rank_context *r) {
    enum { STEPS = 50 };
    size_t bytes = COUNT * sizeof(int32_t);
    cudaStream_t compute;
    cudaEvent_t ready, reduced;
    CUDA(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&reduced, cudaEventDisableTiming));
    int32_t *buffer = device_memory(bytes), *inputs = pinned_memory(STEPS * bytes),
            *outputs = pinned_memory(STEPS * bytes);
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < COUNT; i++) {
            inputs[(size_t)step * COUNT + i] = (r->rank + 1) * 10 + step;
        }
    }
    for (int step = 0; step < STEPS; step++) {
        CUDA(cudaMemcpyAsync(buffer, inputs + (size_t)step * COUNT, bytes, cudaMemcpyHostToDevice, compute));
        CUDA(cudaEventRecord(ready, compute));
        CUDA(cudaStreamWaitEvent(r->stream, ready, 0));
        NCCL(ncclAllReduce(buffer, buffer, COUNT, ncclInt32, ncclSum, r->comm, r->stream));
        CUDA(cudaEventRecord(reduced, r->stream));
        CUDA(cudaStreamWaitEvent(compute, reduced, 0));
        CUDA(cudaMemcpyAsync(outputs + (size_t)step * COUNT, buffer, bytes, cudaMemcpyDeviceToHost, compute));
    }
    CUDA(cudaStreamSynchronize(compute));
    for (size_t i = 0; i < (size_t)STEPS * COUNT; i++) {
        MUST(outputs[i] == 10 * r->ranks * (r->ranks + 1) / 2 + (int)(i / COUNT) * r->ranks);
    }
    CUDA(cudaFree(buffer));
    CUDA(cudaFreeHost(inputs));
    CUDA(cudaFreeHost(outputs));
    CUDA(cudaEventDestroy(ready));
    CUDA(cudaEventDestroy(reduced));
    CUDA(cudaStreamDestroy(compute));
}

/* A communicator's collectives may be on several streams; they run in the order of the calls. */
static void body_two_streams(rank_context *r) {
    cudaStream_t other;
    CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    int32_t one = 1, host[40], *values = device_memory(sizeof host);
    for (int i = 0; i < 40; i++) {
        CUDA(cudaMemcpy(values + i, &one, sizeof one, cudaMemcpyHostToDevice));
    }
    CUDA(cudaDeviceSynchronize()); /* pageable memory may only have been staged, and these streams do not wait for it */
    for (int i = 0; i < 40; i++) {
        NCCL(ncclAllReduce(values + i, values + i, 1, ncclInt32, ncclSum, r->comm, i % 2 == 0 ? r->stream : other));
    }
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaStreamSynchronize(other));
    CUDA(cudaMemcpy(host, values, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 40; i++) {
        MUST(host[i] == r->ranks);
    }
    CUDA(cudaFree(values));
    CUDA(cudaStreamDestroy(other));
}

/* A rank that comes late is waited for: the calls return at once, the result is complete nevertheless. */
static void body_late_rank(rank_context *r) {
    int32_t host = r->rank + 1, *value = device_memory(sizeof host);
    CUDA(cudaMemcpy(value, &host, sizeof host, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    if (r->rank == r->ranks - 1) {
        usleep(30000);
    }
    NCCL(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, r->comm, r->stream));
    CUDA(cudaMemcpyAsync(&host, value, sizeof host, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    MUST(host == r->ranks * (r->ranks + 1) / 2);
    CUDA(cudaFree(value));
}

static const named_body bodies[] = {{"bits", body_equal_bits},
                                    {"back", body_back_to_back},
                                    {"events", body_events},
                                    {"streams", body_two_streams},
                                    {"late", body_late_rank}};
enum { BODIES = sizeof bodies / sizeof bodies[0] };

static void as_threads_and_processes(void **state) {
    const named_body *b = *state;
    run_threads(ranks_here(), b->body, NULL);
    assert_true(run_processes(b->name, ranks_here() < 3 ? ranks_here() : 3));
}

/* Several operations of several devices in nested groups of one thread. */
static void nested_groups(void **state) {
    (void)state;
    int ranks = ranks_here();
    ncclUniqueId id;
    ncclComm_t comms[RANKS];
    cudaStream_t streams[RANKS];
    int32_t *values[RANKS], host[2];
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < ranks; rank++) {
        CUDA(cudaSetDevice(rank));
        NCCL(ncclCommInitRank(&comms[rank], ranks, id, rank));
    }
    NCCL(ncclGroupEnd());
    for (int rank = 0; rank < ranks; rank++) {
        CUDA(cudaSetDevice(rank));
        CUDA(cudaStreamCreate(&streams[rank]));
        values[rank] = device_memory(sizeof host);
        host[0] = rank + 1;
        host[1] = 10 * (rank + 1);
        CUDA(cudaMemcpy(values[rank], host, sizeof host, cudaMemcpyHostToDevice));
    }
    NCCL(ncclGroupStart());
    for (int k = 0; k < 2; k++) {
        NCCL(ncclGroupStart());
        for (int rank = 0; rank < ranks; rank++) {
            NCCL(ncclAllReduce(values[rank] + k, values[rank] + k, 1, ncclInt32, ncclSum, comms[rank], streams[rank]));
        }
        NCCL(ncclGroupEnd());
    }
    NCCL(ncclGroupEnd());
    for (int rank = 0; rank < ranks; rank++) {
        CUDA(cudaSetDevice(rank));
        CUDA(cudaStreamSynchronize(streams[rank]));
        CUDA(cudaMemcpy(host, values[rank], sizeof host, cudaMemcpyDeviceToHost));
        assert_int_equal(host[0], ranks * (ranks + 1) / 2);
        assert_int_equal(host[1], 10 * ranks * (ranks + 1) / 2);
        CUDA(cudaFree(values[rank]));
        CUDA(cudaStreamDestroy(streams[rank]));
        NCCL(ncclCommFinalize(comms[rank]));
        NCCL(ncclCommDestroy(comms[rank]));
    }
}

/* Ranks first and first + 1 of four, each on the device of its number, driven by this thread. */
static void two_of_four(const ncclUniqueId *id, int first) {
    enum { CALLS = 20 };
    ncclComm_t comms[2];
    cudaStream_t streams[2];
    int32_t *values[2], host[COUNT];
    NCCL(ncclGroupStart());
    for (int k = 0; k < 2; k++) {
        CUDA(cudaSetDevice(first + k));
        NCCL(ncclCommInitRank(&comms[k], 4, *id, first + k));
    }
    NCCL(ncclGroupEnd());
    for (int k = 0; k < 2; k++) {
        CUDA(cudaSetDevice(first + k));
        CUDA(cudaStreamCreate(&streams[k]));
        values[k] = device_memory(sizeof host);
        for (int32_t i = 0; i < COUNT; i++) {
            host[i] = first + k + i % 13;
        }
        CUDA(cudaMemcpy(values[k], host, sizeof host, cudaMemcpyHostToDevice));
    }
    for (int call = 0; call < CALLS; call++) {
        NCCL(ncclGroupStart());
        for (int k = 0; k < 2; k++) {
            NCCL(ncclAllReduce(values[k], values[k], COUNT, ncclInt32, call == 0 ? ncclSum : ncclMax, comms[k],
                               streams[k]));
        }
        NCCL(ncclGroupEnd());
    }
    for (int k = 0; k < 2; k++) {
        CUDA(cudaSetDevice(first + k));
        CUDA(cudaStreamSynchronize(streams[k]));
        CUDA(cudaMemcpy(host, values[k], sizeof host, cudaMemcpyDeviceToHost));
        for (int32_t i = 0; i < COUNT; i++) {
            MUST(host[i] == 6 + 4 * (i % 13));
        }
        CUDA(cudaFree(values[k]));
        CUDA(cudaStreamDestroy(streams[k]));
        NCCL(ncclCommDestroy(comms[k]));
    }
}

static void two_processes_of_two_devices(void **state) {
    (void)state;
    if (device_count() < 4) {
        skip();
    }
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    pid_t pid = spawn_rank("two-of-four", 2, 4, &id);
    two_of_four(&id, 0);
    assert_int_equal(await_rank(pid), 0);
}

static void queries_and_refusals(void **state) {
    (void)state;
    ncclComm_t comms[1];
    int devices[2] = {device_count() - 1, device_count() - 1}, answer = -1;
    ncclResult_t error = ncclInternalError;
    NCCL(ncclGetVersion(&answer));
    assert_true(answer >= NCCL_VERSION(2, 10, 0));
    NCCL(ncclCommInitAll(comms, 1, devices));
    NCCL(ncclCommCount(comms[0], &answer));
    assert_int_equal(answer, 1);
    NCCL(ncclCommUserRank(comms[0], &answer));
    assert_int_equal(answer, 0);
    NCCL(ncclCommCuDevice(comms[0], &answer));
    assert_int_equal(answer, devices[0]);
    NCCL(ncclCommGetAsyncError(comms[0], &error));
    assert_int_equal(error, ncclSuccess);
    CUDA(cudaSetDevice(devices[0]));
    float *value = device_memory(4 * sizeof(float));
    assert_int_equal(ncclBroadcast(value, value, 4, ncclFloat32, 1, comms[0], NULL), ncclInvalidArgument);
    assert_int_equal(ncclBroadcast(value, value, 4, ncclFloat32, -1, comms[0], NULL), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(value, value, 4, ncclNumTypes, ncclSum, comms[0], NULL), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(value, value, 4, ncclFloat32, ncclSum, NULL, NULL), ncclInvalidArgument);
    NCCL(ncclBcast(value, 4, ncclFloat32, 0, comms[0], NULL)); /* the default stream of the communicator's device */
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaFree(value));
    NCCL(ncclCommDestroy(comms[0]));
    ncclComm_t twice[2];
    assert_int_equal(ncclCommInitAll(twice, 2, devices), ncclInvalidUsage);
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    assert_string_not_equal(ncclGetErrorString(ncclInvalidUsage), ncclGetErrorString(ncclInvalidArgument));
}

int main(int argc, char **argv) {
    if (argc == 6 && strcmp(argv[2], "two-of-four") == 0) {
        ncclUniqueId id = id_from_hex(argv[5]);
        two_of_four(&id, 2);
        return 0;
    }
    become_rank(argc, argv, bodies, BODIES);
    struct CMUnitTest tests[BODIES + 3] = {cmocka_unit_test(nested_groups),
                                           cmocka_unit_test(two_processes_of_two_devices),
                                           cmocka_unit_test(queries_and_refusals)};
    for (size_t i = 0; i < BODIES; i++) {
        tests[3 + i] =
            (struct CMUnitTest){bodies[i].name, as_threads_and_processes, NULL, NULL, (void *)(uintptr_t)&bodies[i]};
    }
    return cmocka_run_group_tests_name("nccl semantics", tests, NULL, NULL);
}
