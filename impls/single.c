/* single: the reference trainer itself, behind the interface of an implementation. */
#include <stdlib.h>

#include "gpu/range.h"
#include "impls/setup.h"
#include "impls/step_graph.h"
#include "impls/table.h"
#include "reference/replica_buffers.h"
#include "reference/trainer.h"

typedef struct single {
    ls_trainer *trainer;
    ls_step_graph graph;
    ls_counters counters;
} single;

static size_t single_ranks(size_t devices) {
    (void)devices;
    return 1;
}

static void single_close(void *self) {
    single *s = self;
    if (s != NULL) {
        ls_step_graph_close(&s->graph);
        ls_trainer_close(s->trainer);
        free(s);
    }
}

static ls_rc single_open(const ls_run *run, const ls_rank *rank, const ls_model *model, size_t max_batch, void **self) {
    *self = NULL;
    if (run->devices != 1) {
        return ls_fail(LS_BAD_INPUT, "single trains on 1 device, asked for %zu; use dp, ddp or mpi for more",
                       run->devices);
    }
    ls_trainer_options options = {.seed = run->seed};
    LS_TRY(ls_setup_options(run, rank->device, max_batch, &options.replica));
    single *s = ls_calloc(1, sizeof *s, "the single-device trainer");
    if (s == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_rc rc = ls_cuda_check(cudaSetDevice(rank->device), "cudaSetDevice", __FILE__, __LINE__);
    if (rc == LS_OK) {
        rc = ls_trainer_open(model, &options, &s->trainer);
    }
    if (rc != LS_OK) {
        single_close(s);
        return rc;
    }
    ls_step_graph_open(&s->graph, run, max_batch);
    *self = s;
    return LS_OK;
}

static ls_rc run_step(void *self) {
    return ls_trainer_run(((single *)self)->trainer);
}

static void replayed(void *self) {
    ls_replica_replayed(ls_trainer_replica(((single *)self)->trainer), true);
}

static ls_rc single_step(void *self, const ls_batch *batch, size_t global_count) {
    (void)global_count; /* the batch is the global batch */
    single *s = self;
    LS_RANGE_NUMBERED("step", ls_replica_step(ls_trainer_replica(s->trainer)));
    ls_step_parts parts = {.self = s,
                           .stream = ls_replica_stream(ls_trainer_replica(s->trainer)),
                           .run = run_step,
                           .replayed = replayed,
                           .counters = &s->counters};
    LS_TRY(ls_trainer_load(s->trainer, batch));
    return ls_step_graph_run(&s->graph, &parts, batch->count);
}

static ls_replica *single_replica(void *self, size_t index, size_t *count) {
    if (count != NULL) {
        *count = 1;
    }
    return index == 0 ? ls_trainer_replica(((single *)self)->trainer) : NULL;
}

static ls_rc single_synchronize(void *self) {
    LS_RANGE("wait");
    LS_CUDA(cudaStreamSynchronize(ls_replica_stream(single_replica(self, 0, NULL))));
    return LS_OK;
}

static ls_rc single_loss(void *self, double *mean) {
    return ls_replica_read_loss(single_replica(self, 0, NULL), mean);
}

static ls_rc single_gradients(void *self, void *flat) {
    return ls_replica_read_grads(single_replica(self, 0, NULL), flat);
}

static ls_rc single_parameters(void *self, void *flat) {
    return ls_replica_read_params(single_replica(self, 0, NULL), flat);
}

static ls_rc single_sum(void *self, double *values, size_t count) {
    (void)self;
    (void)values; /* a sum over one rank */
    (void)count;
    return LS_OK;
}

static void single_counters(void *self, ls_counters *out) {
    *out = ((single *)self)->counters;
}

const ls_impl ls_impl_single = {
    .name = "single",
    .summary = "one device: the reference trainer",
    .capabilities = LS_CAP_GRAPH,
    .reduction = LS_REDUCTION_MEAN,
    .ranks = single_ranks,
    .open = single_open,
    .step = single_step,
    .synchronize = single_synchronize,
    .loss = single_loss,
    .gradients = single_gradients,
    .parameters = single_parameters,
    .sum = single_sum,
    .replica = single_replica,
    .counters = single_counters,
    .close = single_close,
};
