#include "reference/replica_buffers.h"

#include <stdlib.h>

#include "reference/cleanup.h"
#include "reference/replica_internal.h"

/* Means 0 and variances 1, as after torch.nn.BatchNorm's construction. */
static ls_rc set_initial(ls_replica *replica, float *narrow, double *wide, int64_t *tracked) {
    const ls_model *model = replica->model;
    ls_model_init_buffers(model, narrow, tracked);
    for (size_t i = 0; i < model->buffer_count; i++) {
        wide[i] = (double)narrow[i];
    }
    bool is_wide = replica->options.dtype == LS_FLOAT64;
    return ls_replica_write_buffers(replica, is_wide ? (const void *)wide : (const void *)narrow, tracked);
}

ls_rc ls_replica_buffers_open(ls_replica *replica) {
    const ls_model *model = replica->model;
    replica->training = true;
    if (model->buffer_tensors == 0) {
        return LS_OK;
    }
    LS_CUDA(cudaMalloc(&replica->buffers, model->buffer_count * ls_dtype_size(replica->options.dtype)));
    LS_CUDA(cudaMalloc((void **)&replica->tracked, model->tracked_count * sizeof *replica->tracked));
    float *narrow = ls_calloc(model->buffer_count, sizeof *narrow, "buffers");
    double *wide = ls_calloc(model->buffer_count, sizeof *wide, "buffers");
    int64_t *tracked = ls_calloc(model->tracked_count, sizeof *tracked, "buffers");
    ls_rc rc = LS_DEVICE_FAILED;
    if (narrow != NULL && wide != NULL && tracked != NULL) {
        rc = set_initial(replica, narrow, wide, tracked);
    }
    free(narrow);
    free(wide);
    free(tracked);
    return rc;
}

void ls_replica_buffers_close(ls_replica *replica, ls_rc *rc) {
    LS_CLOSE(*rc, cudaFree(replica->buffers));
    LS_CLOSE(*rc, cudaFree(replica->tracked));
}

bool ls_replica_set_training(ls_replica *replica, bool training) {
    bool before = replica->training;
    replica->training = training;
    return before;
}

void ls_replica_set_masks(ls_replica *replica, uint64_t seed, size_t rank) {
    replica->seed = seed;
    replica->rank = rank;
}

uint64_t ls_replica_step(const ls_replica *replica) {
    return replica->step;
}

void ls_replica_set_step(ls_replica *replica, uint64_t step) {
    replica->step = step;
}

void *ls_replica_buffers(ls_replica *replica) {
    return replica->buffers;
}

int64_t *ls_replica_tracked(ls_replica *replica) {
    return replica->tracked;
}

ls_rc ls_replica_read_buffers(ls_replica *replica, void *values, int64_t *tracked) {
    const ls_model *model = replica->model;
    if (values != NULL && model->buffer_count > 0) {
        LS_CUDA(cudaMemcpyAsync(values, replica->buffers, model->buffer_count * ls_dtype_size(replica->options.dtype),
                                cudaMemcpyDeviceToHost, replica->stream));
    }
    if (tracked != NULL && model->tracked_count > 0) {
        LS_CUDA(cudaMemcpyAsync(tracked, replica->tracked, model->tracked_count * sizeof *tracked,
                                cudaMemcpyDeviceToHost, replica->stream));
    }
    LS_CUDA(cudaStreamSynchronize(replica->stream));
    return LS_OK;
}

ls_rc ls_replica_write_buffers(ls_replica *replica, const void *values, const int64_t *tracked) {
    const ls_model *model = replica->model;
    if (values != NULL && model->buffer_count > 0) {
        LS_CUDA(cudaMemcpyAsync(replica->buffers, values, model->buffer_count * ls_dtype_size(replica->options.dtype),
                                cudaMemcpyHostToDevice, replica->stream));
    }
    if (tracked != NULL && model->tracked_count > 0) {
        LS_CUDA(cudaMemcpyAsync(replica->tracked, tracked, model->tracked_count * sizeof *tracked,
                                cudaMemcpyHostToDevice, replica->stream));
    }
    LS_CUDA(cudaStreamSynchronize(replica->stream));
    return LS_OK;
}
