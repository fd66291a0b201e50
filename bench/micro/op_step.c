/* A step of training on every rank of a crew: under DistributedDataParallel, and as replicas that only meet. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/micro/ops.h"
#include "bench/micro/step.h"
#include "impls/impl.h"
#include "impls/options.h"
#include "impls/rank.h"

/* Steps of one iteration: enqueued one after the other as a training run does, with one wait at the end. */
enum { STEPS = 10 };

typedef struct step_job {
    ls_micro_place *place;
    const ls_impl *impl;
    ls_run run;
    ls_model model;
    ls_micro_batch batch;
    void *self;   /* of impl */
    int *meeting; /* one element on the device; NULL: the ranks do not meet by it */
    cudaStream_t stream;
} step_job;

static void step_close(void *self) {
    step_job *j = self;
    if (j == NULL) {
        return;
    }
    if (j->self != NULL) {
        (void)j->impl->synchronize(j->self);
        j->impl->close(j->self);
    }
    (void)cudaFree(j->meeting);
    ls_micro_batch_free(&j->batch);
    free(j);
}

static ls_rc open_all(step_job *j, const ls_micro_job *job, size_t devices) {
    ls_normalize normalize;
    ls_micro_place *place = j->place;
    ls_micro_step_run(job->model, job->dtype, job->batch, &j->run);
    snprintf(j->run.impl, sizeof j->run.impl, "%s", j->impl->name);
    j->run.devices = devices;
    LS_TRY(ls_run_model(&j->run, &j->model, &normalize));
    LS_TRY(ls_micro_batch_make(&j->model, job->batch, place->rank, &j->batch));
    ls_rank rank = {
        .rank = place->rank,
        .world = devices,
        .local_rank = place->rank,
        .device = place->device,
        .master = "127.0.0.1",
        .port = place->port,
        .timeout = place->timeout,
        .shared = place->shared,
    };
    LS_CUDA(cudaSetDevice(place->device));
    LS_TRY(j->impl->open(&j->run, &rank, &j->model, job->batch, &j->self));
    j->stream = ls_replica_stream(j->impl->replica(j->self, 0, NULL));
    return LS_OK;
}

static ls_rc start(ls_micro_place *place, const char *impl, void **self) {
    step_job *j = ls_calloc(1, sizeof *j, "steps of training");
    *self = j;
    if (j == NULL) {
        return LS_DEVICE_FAILED;
    }
    j->place = place;
    j->impl = ls_impl_find(impl);
    return LS_OK;
}

static ls_rc ddp_open(ls_micro_place *place, const ls_micro_job *job, void **self) {
    LS_TRY(start(place, "ddp", self));
    return open_all(*self, job, place->world);
}

static ls_rc apart_open(ls_micro_place *place, const ls_micro_job *job, void **self) {
    LS_TRY(start(place, "single", self));
    step_job *j = *self;
    LS_TRY(open_all(j, job, 1));
    if (place->world > 1) {
        LS_TRY(ls_micro_communicator(place));
        LS_CUDA(cudaMalloc((void **)&j->meeting, sizeof *j->meeting));
        LS_CUDA(cudaMemset(j->meeting, 0, sizeof *j->meeting));
        LS_CUDA(cudaDeviceSynchronize()); /* the memset is not in the order of our stream */
    }
    return LS_OK;
}

static ls_rc step_run(void *self) {
    step_job *j = self;
    for (size_t i = 0; i < STEPS; i++) {
        LS_TRY(j->impl->step(j->self, &j->batch.batch, j->batch.batch.count * j->run.devices));
        if (j->meeting != NULL) {
            LS_NCCL(ncclAllReduce(j->meeting, j->meeting, 1, ncclInt32, ncclSum, j->place->comm, j->stream));
        }
    }
    return j->impl->synchronize(j->self);
}

static ls_rc step_measure(void *self, size_t iterations, double *seconds) {
    LS_TRY(ls_micro_time(((step_job *)self)->place, self, NULL, step_run, iterations, seconds));
    for (size_t i = 0; i < iterations; i++) {
        seconds[i] /= STEPS;
    }
    return LS_OK;
}

const ls_micro_op ls_micro_op_ddp = {.name = "ddp", .open = ddp_open, .measure = step_measure, .close = step_close};

/* `single` on each rank, and after each step an allreduce of one element on its stream: the ranks wait for one another as
 * under ddp, and exchange nothing. */
const ls_micro_op ls_micro_op_apart = {
    .name = "apart", .open = apart_open, .measure = step_measure, .close = step_close};
