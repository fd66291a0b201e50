/* A rank that aborts while another moves data may free its buffers as soon as ncclCommAbort has returned: the other, a process that
 * is stopped in the middle of its part, is waited for, and named when it does not go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/prctl.h>

#include "gpu/vgpu/nccl_internal.h"
#include "tests/gpu/nccl_test.h"

enum {
    SIZE = 4 << 20,    /* elements: the part of a rank takes milliseconds */
    ROUNDS = 200,      /* in one of which rank 1 is caught while it moves its part */
    USED_AGAIN = 0x5A, /* in every byte, less than in rank 1's: what that rank still moves shows */
    LARGER = 0x7F
};

/* Rank 1: finds maxima until the other aborts. */
static void go_on(rank_context *r) {
    int32_t *data;
    MUST(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    CUDA(cudaMalloc((void **)&data, SIZE * sizeof *data));
    CUDA(cudaMemset(data, LARGER, SIZE * sizeof *data));
    CUDA(cudaDeviceSynchronize());
    for (int round = 0; round < ROUNDS; round++) {
        NCCL(ncclAllReduce(data, data, SIZE, ncclInt32, ncclMax, r->comm, r->stream));
        if (cudaStreamSynchronize(r->stream) != cudaSuccess) {
            exit(0);
        }
    }
    exit(1);
}

/* Rank 0, and its peer. */
typedef struct pair {
    ncclComm_t comm;
    cudaStream_t stream;
    int32_t *data;
    pid_t other;
    _Atomic unsigned *other_moves;
} pair;

static void pair_open(pair *p) {
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    p->other = spawn_rank("go_on", 1, 2, &id);
    CUDA(cudaSetDevice(0));
    NCCL(ncclCommInitRank(&p->comm, 2, id, 0));
    CUDA(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&p->data, SIZE * sizeof *p->data));
    CUDA(cudaMemset(p->data, 0, SIZE * sizeof *p->data));
    CUDA(cudaDeviceSynchronize());
    p->other_moves = &p->comm->clique->control->slots[1].moving;
}

static void pair_close(pair *p) {
    CUDA(cudaStreamDestroy(p->stream));
    CUDA(cudaFree(p->data));
}

/* One allreduce; true when the other was stopped in the middle of its part. */
static bool catch_other(const pair *p) {
    int status;
    NCCL(ncclAllReduce(p->data, p->data, SIZE, ncclInt32, ncclMax, p->comm, p->stream));
    while (atomic_load(p->other_moves) == 0) {
        if (cudaStreamQuery(p->stream) == cudaSuccess) {
            return false;
        }
    }
    MUST(kill(p->other, SIGSTOP) == 0);
    MUST(waitpid(p->other, &status, WUNTRACED) == p->other && WIFSTOPPED(status));
    if (atomic_load(p->other_moves) != 0) {
        return true;
    }
    MUST(kill(p->other, SIGCONT) == 0);
    CUDA(cudaStreamSynchronize(p->stream));
    return false;
}

static void until_caught(const pair *p) {
    int round = 0;
    while (!catch_other(p)) {
        round++;
        MUST(round < ROUNDS);
    }
}

/* Long after the abort would have returned if it did not wait. */
static void *go_on_later(void *other) {
    usleep(100000);
    MUST(kill(*(const pid_t *)other, SIGCONT) == 0);
    return NULL;
}

static void buffers_are_free_after_an_abort(void **state) {
    (void)state;
    pair p;
    pthread_t later;
    pair_open(&p);
    until_caught(&p);
    MUST(pthread_create(&later, NULL, go_on_later, &p.other) == 0);
    NCCL(ncclCommAbort(p.comm));
    CUDA(cudaMemset(p.data, USED_AGAIN, SIZE * sizeof *p.data));
    CUDA(cudaDeviceSynchronize());
    MUST(pthread_join(later, NULL) == 0);
    assert_int_equal(await_rank(p.other), 0);
    unsigned char *host = malloc(SIZE * sizeof *p.data);
    assert_non_null(host);
    CUDA(cudaMemcpy(host, p.data, SIZE * sizeof *p.data, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < SIZE * sizeof *p.data; i++) {
        assert_int_equal(host[i], USED_AGAIN);
    }
    free(host);
    pair_close(&p);
}

static void a_stopped_rank_is_named(void **state) {
    (void)state;
    pair p;
    char expected[100];
    pair_open(&p);
    until_caught(&p);
    assert_int_equal(ncclCommAbort(p.comm), ncclRemoteError);
    snprintf(expected, sizeof expected, "rank 1 (pid %d) still uses the buffers of rank 0", (int)p.other);
    assert_non_null(strstr(ncclGetLastError(NULL), expected));
    MUST(kill(p.other, SIGKILL) == 0);
    assert_int_equal(await_rank(p.other), 128 + SIGKILL);
    pair_close(&p);
}

/* One that has ended uses no buffers, however it was caught. */
static void a_killed_rank_is_not_waited_for(void **state) {
    (void)state;
    pair p;
    pair_open(&p);
    until_caught(&p);
    MUST(kill(p.other, SIGKILL) == 0);
    NCCL(ncclCommAbort(p.comm));
    assert_int_equal(await_rank(p.other), 128 + SIGKILL);
    pair_close(&p);
}

int main(int argc, char **argv) {
    const named_body bodies[] = {{"go_on", go_on}};
    become_rank(argc, argv, bodies, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(buffers_are_free_after_an_abort),
                                       cmocka_unit_test(a_stopped_rank_is_named),
                                       cmocka_unit_test(a_killed_rank_is_not_waited_for)};
    return cmocka_run_group_tests_name("vgpu nccl abort", tests, NULL, NULL);
}
