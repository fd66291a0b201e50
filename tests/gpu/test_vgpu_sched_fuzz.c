/* LOCKSTEP_VGPU_SCHED=fuzz:SEED: a missing wait shows in the values, correct programs have the same values for every seed, and a
 * seed stands for one order. */
#include <nccl.h>
#include <pthread.h>

#include "gpu/vgpu/internal.h"
#include "tests/gpu/scenario.h"

enum { SEEDS = 20, BYTES = 256, STREAMS = 4, EACH = 8 };

static char values[BYTES];

/* A chain over three streams, of which one wait may be missing. Ends with whether the result is what the chain makes. */
static int chain(bool right) {
    cudaStream_t s[3];
    cudaEvent_t e[3];
    char *x = NULL;
    char *y = NULL;
    char *host = NULL;
    DO(cudaMalloc((void **)&x, BYTES));
    DO(cudaMalloc((void **)&y, BYTES));
    DO(cudaMallocHost((void **)&host, BYTES));
    DO(cudaMemset(x, 9, BYTES));
    DO(cudaMemset(y, 9, BYTES));
    DO(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++) {
        DO(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking));
        DO(cudaEventCreateWithFlags(&e[i], cudaEventDisableTiming));
    }
    DO(cudaMemsetAsync(x, 1, BYTES, s[0]));
    DO(cudaEventRecord(e[0], s[0]));
    if (right) {
        DO(cudaStreamWaitEvent(s[1], e[0], 0));
    }
    DO(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDeviceToDevice, s[1]));
    DO(cudaEventRecord(e[1], s[1]));
    DO(cudaStreamWaitEvent(s[2], e[1], 0));
    DO(cudaMemcpyAsync(host, y, BYTES, cudaMemcpyDeviceToHost, s[2]));
    DO(cudaEventRecord(e[2], s[2]));
    DO(cudaEventSynchronize(e[2]));
    return host[0] == 1 && host[BYTES - 1] == 1 ? 0 : 1;
}

/* Each operation notes its number; the order of one stream's is fixed. */
static struct {
    unsigned char order[STREAMS * EACH];
    _Atomic size_t count; /* also read while operations are left */
} noted;

static cudaError_t note(void *payload) {
    noted.order[noted.count] = *(unsigned char *)payload;
    noted.count++;
    return cudaSuccess;
}

/* Prints the order in which independent streams ran. */
static int print_order(bool right) {
    (void)right;
    cudaStream_t streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        DO(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    }
    for (unsigned char k = 0; k < EACH; k++) {
        for (unsigned char i = 0; i < STREAMS; i++) {
            unsigned char number = (unsigned char)(i * EACH + k);
            DO(vgpu_submit(streams[i], "note", note, &number, sizeof number));
        }
    }
    size_t early = noted.count; /* nothing has been waited for */
    cudaStream_t joined = NULL;
    cudaEvent_t event = NULL;
    DO(cudaStreamCreateWithFlags(&joined, cudaStreamNonBlocking));
    DO(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int i = 0; i < STREAMS; i++) {
        DO(cudaEventRecord(event, streams[i]));
        DO(cudaStreamWaitEvent(joined, event, 0));
    }
    DO(cudaStreamSynchronize(joined));
    unsigned char next[STREAMS] = {0};
    for (size_t i = 0; i < noted.count; i++) {
        if (noted.order[i] % EACH != next[noted.order[i] / EACH]++) {
            return 2; /* a stream's own order is broken */
        }
        fprintf(stderr, "%d ", noted.order[i]);
    }
    return noted.count == (size_t)STREAMS * EACH && early == 0 ? 0 : 3;
}

/* Waiting for one stream leaves the others alone. */
static int force_what_is_needed(bool right) {
    (void)right;
    cudaStream_t streams[STREAMS];
    unsigned char number = 0;
    for (unsigned char i = 0; i < STREAMS; i++) {
        DO(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        DO(vgpu_submit(streams[i], "note", note, &number, sizeof number));
    }
    DO(cudaStreamSynchronize(streams[1]));
    return noted.count == 1 ? 0 : 1;
}

/* Whoever only asks gets there as well. */
static int poll_events(bool right) {
    (void)right;
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    unsigned char number = 0;
    DO(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DO(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    DO(vgpu_submit(stream, "note", note, &number, sizeof number));
    DO(cudaEventRecord(event, stream));
    while (cudaEventQuery(event) == cudaErrorNotReady) {
    }
    return noted.count == 1 ? 0 : 1;
}

/* More operations than a stream holds. */
static int fill_the_queue(bool right) {
    (void)right;
    enum { MANY = 3000 };
    char *x = NULL;
    DO(cudaMalloc((void **)&x, BYTES));
    for (int i = 0; i < MANY; i++) {
        DO(cudaMemsetAsync(x, i & 1, BYTES, NULL));
    }
    DO(cudaMemcpy(values, x, BYTES, cudaMemcpyDeviceToHost));
    return values[0] == 1 ? 0 : 1;
}

static ncclComm_t comms[2];

static void *reduce(void *argument) {
    int device = *(int *)argument;
    cudaStream_t stream = NULL;
    char *x = NULL;
    static char got[2][BYTES];
    DO(cudaSetDevice(device));
    DO(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DO(cudaMalloc((void **)&x, BYTES));
    for (char round = 0; round < 10; round++) {
        DO(cudaMemsetAsync(x, device + round, BYTES, stream));
        DO(ncclAllReduce(x, x, BYTES, ncclInt8, ncclSum, comms[device], stream));
        DO(cudaMemcpyAsync(got[device], x, BYTES, cudaMemcpyDeviceToHost, stream));
        DO(got[device][5] != 1 + 2 * round);
    }
    return NULL;
}

/* Rank 0 waits, rank 1 queues its part and waits for nothing: a collective takes its peers along. */
static int one_rank_waits(bool right) {
    (void)right;
    cudaStream_t streams[2];
    char *x[2];
    for (int d = 0; d < 2; d++) {
        DO(cudaSetDevice(d));
        DO(cudaStreamCreateWithFlags(&streams[d], cudaStreamNonBlocking));
        DO(cudaMalloc((void **)&x[d], BYTES));
        DO(cudaMemsetAsync(x[d], d + 1, BYTES, streams[d]));
    }
    DO(ncclGroupStart());
    for (int d = 0; d < 2; d++) {
        DO(ncclAllReduce(x[d], x[d], BYTES, ncclInt8, ncclSum, comms[d], streams[d]));
    }
    DO(ncclGroupEnd());
    DO(cudaMemcpyAsync(values, x[1], BYTES, cudaMemcpyDeviceToHost, streams[1]));
    return values[0] == 3 ? 0 : 1;
}

static int collectives(bool right) {
    pthread_t threads[2];
    int devices[2] = {0, 1};
    DO(ncclCommInitAll(comms, 2, NULL));
    for (int i = 0; i < 2; i++) {
        DO(pthread_create(&threads[i], NULL, reduce, &devices[i]));
    }
    for (int i = 0; i < 2; i++) {
        DO(pthread_join(threads[i], NULL));
    }
    int code = one_rank_waits(right);
    DO(ncclCommDestroy(comms[0]));
    DO(ncclCommDestroy(comms[1]));
    return code;
}

static const struct {
    const char *name;
    int (*run)(bool right);
} scenarios[] = {
    {"chain", chain},      {"order", print_order},    {"needed", force_what_is_needed},
    {"poll", poll_events}, {"queue", fill_the_queue}, {"collectives", collectives},
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static ending run_seed(const char *name, const char *variant, int seed) {
    char setting[64];
    snprintf(setting, sizeof setting, "LOCKSTEP_VGPU_SCHED=fuzz:%d", seed);
    const char *settings[] = {setting, NULL};
    return run_scenario(name, variant, settings);
}

static void a_missing_wait_shows(void **state) {
    (void)state;
    for (int seed = 0; seed < SEEDS; seed += 4) { /* of every fourth seed nothing runs that is not needed */
        assert_int_equal(run_seed("chain", "wrong", seed).code, 1);
    }
}

static void correct_programs_have_one_result(void **state) {
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        expect_silence(run_seed("chain", "right", seed));
    }
    for (int seed = 0; seed < 4; seed++) {
        expect_silence(run_seed("poll", "right", seed));
        expect_silence(run_seed("queue", "right", seed));
        expect_silence(run_seed("collectives", "right", seed));
    }
    expect_silence(run_seed("needed", "right", 0));
}

static void a_seed_is_an_order(void **state) {
    (void)state;
    ending first = run_seed("order", "right", 4);
    assert_int_equal(first.code, 0);
    assert_string_equal(run_seed("order", "right", 4).text, first.text);
    ending other = run_seed("order", "right", 8);
    assert_int_equal(other.code, 0);
    assert_string_not_equal(other.text, first.text);
}

int main(int argc, char **argv) {
    alarm(TEST_SECONDS);
    if (argc == 3) {
        for (size_t i = 0; i < SCENARIOS; i++) {
            if (strcmp(argv[1], scenarios[i].name) == 0) {
                return scenarios[i].run(strcmp(argv[2], "right") == 0);
            }
        }
        return 98;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_wait_shows),
        cmocka_unit_test(correct_programs_have_one_result),
        cmocka_unit_test(a_seed_is_an_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
