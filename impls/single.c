/* single: the reference trainer itself, behind the interface of an implementation. */
#include <stdlib.h>

#include "impls/setup.h"
#include "impls/table.h"
#include "reference/trainer.h"

typedef struct single {
    ls_trainer *trainer;
} single;

static size_t single_ranks(size_t devices) {
    (void)devices;
    return 1;
}

static void single_close(void *self) {
    single *s = self;
    if (s != NULL) {
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
    *self = s;
    return LS_OK;
}

static ls_rc single_step(void *self, const ls_batch *batch, size_t global_count) {
    (void)global_count; /* the batch is the global batch */
    return ls_trainer_step(((single *)self)->trainer, batch);
}

static ls_replica *single_replica(void *self, size_t index, size_t *count) {
    if (count != NULL) {
        *count = 1;
    }
    return index == 0 ? ls_trainer_replica(((single *)self)->trainer) : NULL;
}

static ls_rc single_synchronize(void *self) {
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
    (void)self;
    *out = (ls_counters){0};
}

const ls_impl ls_impl_single = {
    .name = "single",
    .summary = "one device: the reference trainer",
    .capabilities = 0,
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
