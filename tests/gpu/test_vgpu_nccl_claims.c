/* Small parts are moved by whoever comes first: a collective ends for the last rank to come even while the other, which has
 * announced it, is stopped, and the other has its result when it goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/prctl.h>

#include "gpu/vgpu/nccl_internal.h"
#include "tests/gpu/nccl_test.h"

enum { SIZE = 8192, KINDS = 5 };

/* What rank `from` sends in element i. */
static float value(int from, size_t i) {
    return (float)((size_t)(from + 1) * 1000 + i % 1000);
}

static void start(rank_context *r, int kind, const float *send, float *receive) {
    switch (kind) {
    case 0:
        NCCL(ncclAllReduce(send, receive, SIZE, ncclFloat32, ncclSum, r->comm, r->stream));
        break;
    case 1:
        NCCL(ncclReduce(send, receive, SIZE, ncclFloat32, ncclSum, 1, r->comm, r->stream));
        break;
    case 2:
        NCCL(ncclBroadcast(send, receive, SIZE, ncclFloat32, 0, r->comm, r->stream));
        break;
    case 3:
        NCCL(ncclAllGather(send, receive, SIZE / 2, ncclFloat32, r->comm, r->stream));
        break;
    default:
        NCCL(ncclReduceScatter(send, receive, SIZE / 2, ncclFloat32, ncclSum, r->comm, r->stream));
        break;
    }
}

/* Element i of what this rank gets; where it gets none, what was there. */
static float expected(int kind, int rank, size_t i) {
    switch (kind) {
    case 0:
        return value(0, i) + value(1, i);
    case 1:
        return rank == 1 ? value(0, i) + value(1, i) : -1.0F;
    case 2:
        return value(0, i);
    case 3:
        return value(i < SIZE / 2 ? 0 : 1, i % (SIZE / 2));
    default:
        return i < SIZE / 2 ? value(0, i + (size_t)rank * (SIZE / 2)) + value(1, i + (size_t)rank * (SIZE / 2)) : -1.0F;
    }
}

static void until_announced(const struct ncclComm *comm, int rank, unsigned sequence) {
    while (atomic_load(&comm->clique->control->slots[rank].entry[sequence & 1].sequence) != sequence) {
        usleep(100);
    }
}

/* Rank 0 stops rank 1, the process *argument, between the announcement and the end of each collective. */
static void body(rank_context *r) {
    float *send, *receive, host[SIZE];
    const pid_t *other = r->argument;
    if (r->rank == 1) { /* stopped as it may be when the other fails */
        MUST(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    }
    CUDA(cudaMalloc((void **)&send, sizeof host));
    CUDA(cudaMalloc((void **)&receive, sizeof host));
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < SIZE; i++) {
            host[i] = value(r->rank, i);
        }
        CUDA(cudaMemcpy(send, host, sizeof host, cudaMemcpyHostToDevice));
        for (size_t i = 0; i < SIZE; i++) {
            host[i] = -1.0F;
        }
        CUDA(cudaMemcpy(receive, host, sizeof host, cudaMemcpyHostToDevice));
        if (r->rank == 0) {
            int status;
            until_announced(r->comm, 1, (unsigned)kind + 1);
            MUST(kill(*other, SIGSTOP) == 0);
            MUST(waitpid(*other, &status, WUNTRACED) == *other && WIFSTOPPED(status));
        }
        start(r, kind, send, receive);
        CUDA(cudaStreamSynchronize(r->stream));
        CUDA(cudaMemcpy(host, receive, sizeof host, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < SIZE; i++) {
            MUST(host[i] == expected(kind, r->rank, i));
        }
        if (r->rank == 0) {
            MUST(kill(*other, SIGCONT) == 0);
        }
    }
    CUDA(cudaFree(send));
    CUDA(cudaFree(receive));
}

static void last_rank_waits_for_nobody(void **state) {
    (void)state;
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    pid_t other = spawn_rank("body", 1, 2, &id);
    thread_rank self = {{0, 2, NULL, NULL, &other}, id, body};
    run_thread_rank(&self);
    assert_int_equal(await_rank(other), 0);
}

int main(int argc, char **argv) {
    const named_body bodies[] = {{"body", body}};
    (void)setenv("LOCKSTEP_VGPU_NCCL_TIMEOUT", "20", 1); /* then a collective that does wait fails */
    become_rank(argc, argv, bodies, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(last_rank_waits_for_nobody)};
    return cmocka_run_group_tests_name("vgpu nccl claims", tests, NULL, NULL);
}
