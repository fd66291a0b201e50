/* A collective of NCCL, between events on its stream or with the host's clock around call and wait. */
#include <stdlib.h>

#include "bench/micro/collective.h"
#include "bench/micro/ops.h"

/* Iterations that are enqueued together under the stream's clock. */
enum { WINDOW = 32 };

typedef struct nccl_job {
    ls_micro_place *place;
    ls_micro_job job;
    ls_micro_plan plan;
    void *buffer, *received; /* in place: the same memory */
    int *meeting;            /* one element, for the barrier on the stream */
    cudaEvent_t before[WINDOW], after[WINDOW];
    ls_micro_call call;
} nccl_job;

static void nccl_close(void *self) {
    nccl_job *j = self;
    if (j == NULL) {
        return;
    }
    (void)cudaStreamSynchronize(j->place->stream);
    for (size_t i = 0; i < WINDOW; i++) {
        if (j->before[i] != NULL) {
            (void)cudaEventDestroy(j->before[i]);
        }
        if (j->after[i] != NULL) {
            (void)cudaEventDestroy(j->after[i]);
        }
    }
    (void)cudaFree(j->meeting);
    if (j->received != j->buffer) {
        (void)cudaFree(j->received);
    }
    (void)cudaFree(j->buffer);
    free(j);
}

/* Where the call reads and writes. In place the part of a rank lies inside the whole. */
static ls_rc allocate(nccl_job *j) {
    const ls_micro_plan *plan = &j->plan;
    size_t size = plan->type->size;
    bool inside = j->job.in_place;
    LS_CUDA(cudaMalloc(&j->buffer, (inside ? plan->whole : plan->sends) * size));
    j->received = j->buffer;
    if (!inside) {
        LS_CUDA(cudaMalloc(&j->received, plan->receives * size));
    }
    LS_CUDA(cudaMalloc((void **)&j->meeting, sizeof *j->meeting));
    LS_CUDA(cudaMemset(j->meeting, 0, sizeof *j->meeting));
    LS_CUDA(cudaDeviceSynchronize()); /* the memset is not in the order of our stream */
    j->call.send = (char *)j->buffer + (inside && !plan->collective->sends_all ? plan->part : 0);
    j->call.recv = (char *)j->received + (inside && !plan->collective->receives_all ? plan->part : 0);
    return LS_OK;
}

static ls_rc open_all(nccl_job *j) {
    LS_TRY(ls_micro_communicator(j->place));
    j->call = ls_micro_plan_call(&j->plan, &j->job);
    j->call.comm = j->place->comm;
    j->call.stream = j->place->stream;
    for (size_t i = 0; i < WINDOW; i++) {
        LS_CUDA(cudaEventCreate(&j->before[i]));
        LS_CUDA(cudaEventCreate(&j->after[i]));
    }
    return allocate(j);
}

static ls_rc nccl_open(ls_micro_place *place, const ls_micro_job *job, void **self) {
    nccl_job *j = ls_calloc(1, sizeof *j, "a collective");
    *self = j;
    if (j == NULL) {
        return LS_DEVICE_FAILED;
    }
    j->place = place;
    j->job = *job;
    j->plan = ls_micro_plan_make(job, place->world, place->rank);
    return open_all(j);
}

/* What an iteration reads is written anew, by the device: a gradient is just as fresh. The bytes are small normal numbers in
 * every type. */
static ls_rc rewrite(nccl_job *j) {
    size_t count = j->job.in_place ? j->plan.whole : j->plan.sends;
    LS_CUDA(cudaMemsetAsync(j->buffer, 0x3f, count * j->plan.type->size, j->place->stream));
    return LS_OK;
}

/* The ranks meet on the stream, so that the time is not the wait for another's rewriting. */
static ls_rc meet(nccl_job *j) {
    LS_NCCL(ncclAllReduce(j->meeting, j->meeting, 1, ncclInt32, ncclSum, j->place->comm, j->place->stream));
    return LS_OK;
}

static ls_rc measure_window(nccl_job *j, size_t count, double *seconds) {
    for (size_t i = 0; i < count; i++) {
        LS_TRY(rewrite(j));
        LS_TRY(meet(j));
        LS_CUDA(cudaEventRecord(j->before[i], j->place->stream));
        LS_NCCL(j->plan.collective->nccl(&j->call));
        LS_CUDA(cudaEventRecord(j->after[i], j->place->stream));
    }
    LS_CUDA(cudaStreamSynchronize(j->place->stream));
    for (size_t i = 0; i < count; i++) {
        float milliseconds = 0;
        LS_CUDA(cudaEventElapsedTime(&milliseconds, j->before[i], j->after[i]));
        seconds[i] = (double)milliseconds * 1e-3;
    }
    return LS_OK;
}

static ls_rc prepare_host(void *self) {
    nccl_job *j = self;
    LS_TRY(rewrite(j));
    LS_CUDA(cudaStreamSynchronize(j->place->stream));
    return LS_OK;
}

static ls_rc run_host(void *self) {
    nccl_job *j = self;
    LS_NCCL(j->plan.collective->nccl(&j->call));
    LS_CUDA(cudaStreamSynchronize(j->place->stream));
    return LS_OK;
}

static ls_rc nccl_measure(void *self, size_t iterations, double *seconds) {
    nccl_job *j = self;
    if (j->job.clock == LS_MICRO_CLOCK_HOST) {
        return ls_micro_time(j->place, j, prepare_host, run_host, iterations, seconds);
    }
    for (size_t done = 0; done < iterations; done += WINDOW) {
        size_t count = iterations - done < WINDOW ? iterations - done : WINDOW;
        LS_TRY(measure_window(j, count, seconds + done));
    }
    return LS_OK;
}

/* Known values through the same call and buffers. */
static ls_rc check_on_host(nccl_job *j, void *values, uint64_t *wrong) {
    const ls_micro_plan *plan = &j->plan;
    size_t size = plan->type->size, world = j->place->world, rank = j->place->rank;
    ls_micro_fill(plan->collective, plan->type, plan->redop, world, rank, plan->sends, values);
    LS_CUDA(cudaMemset(j->received, 0xa5, (j->job.in_place ? plan->whole : plan->receives) * size));
    LS_CUDA(cudaMemcpy((void *)j->call.send, values, plan->sends * size, cudaMemcpyHostToDevice));
    LS_CUDA(cudaDeviceSynchronize()); /* the memset above is on another stream */
    LS_NCCL(plan->collective->nccl(&j->call));
    LS_CUDA(cudaStreamSynchronize(j->place->stream));
    LS_CUDA(cudaMemcpy(values, j->call.recv, plan->receives * size, cudaMemcpyDeviceToHost));
    *wrong = ls_micro_count_wrong(plan->collective, plan->type, plan->redop, world, rank, j->job.root, plan->whole,
                                  plan->receives, values);
    return LS_OK;
}

static ls_rc nccl_check(void *self, uint64_t *wrong) {
    nccl_job *j = self;
    void *values = ls_calloc(j->plan.whole, j->plan.type->size, "the values of a collective");
    if (values == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_rc rc = check_on_host(j, values, wrong);
    free(values);
    return rc;
}

const ls_micro_op ls_micro_op_nccl = {
    .name = "nccl", .open = nccl_open, .measure = nccl_measure, .check = nccl_check, .close = nccl_close};
