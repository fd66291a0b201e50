#include "reference/layers/layer.h"

#include <stdlib.h>

#include "gpu/base/mutant.h"
#include "reference/mutant_faults.h"

/* Doubles on the device: what the last forward pass normalised by, and the sums of the last backward pass. */
typedef struct batchnorm {
    double *memory;        /* the three below in one */
    double *mean, *invstd; /* [channels] */
    double *sums;          /* [channels][2] */
} batchnorm;

static ls_rc batchnorm_open(ls_math *math, const ls_layer *layer, ls_dtype dtype, size_t max_batch, void **state) {
    (void)math;
    (void)dtype;
    (void)max_batch;
    batchnorm *norm = ls_calloc(1, sizeof *norm, "a batchnorm");
    if (norm == NULL) {
        return LS_DEVICE_FAILED;
    }
    size_t channels = layer->in.channels;
    ls_rc rc = ls_cuda_check(cudaMalloc((void **)&norm->memory, 4 * channels * sizeof *norm->memory), "cudaMalloc",
                             __FILE__, __LINE__);
    if (rc != LS_OK) {
        free(norm);
        return rc;
    }
    norm->mean = norm->memory;
    norm->invstd = norm->memory + channels;
    norm->sums = norm->memory + 2 * channels;
    *state = norm;
    return LS_OK;
}

static void batchnorm_close(void *state) {
    batchnorm *norm = state;
    (void)ls_cuda_check(cudaFree(norm->memory), "closing a batchnorm", __FILE__, __LINE__);
    free(norm);
}

static ls_batchnorm_shape shape_of(const ls_layer *layer, const ls_layer_pass *pass) {
    return (ls_batchnorm_shape){.lanes = pass->lanes,
                                .batch = pass->batch,
                                .channels = layer->in.channels,
                                .plane = layer->in.height * layer->in.width};
}

static ls_rc batchnorm_forward(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    const batchnorm *norm = state;
    ls_batchnorm_shape shape = shape_of(layer, pass);
    if (pass->training && shape.batch * shape.plane < 2) { /* as PyTorch: one value has no variance */
        return ls_fail(LS_BAD_INPUT,
                       "batchnorm %s: expected more than 1 value a channel in training, found 1; choose a batch size "
                       "that leaves no single sample over",
                       layer->name);
    }
    void *before = NULL;
    if (LS_MUTANT(running_variance_biased) && pass->training) {
        LS_TRY(ls_mutant_keep(pass->stream, pass->dtype, pass->running_var, shape.channels, &before));
    }
    if (pass->training) {
        LS_CUDA(ls_kernel_batchnorm_statistics(pass->stream, pass->dtype, &shape, layer->eps, layer->momentum, pass->x,
                                               norm->mean, norm->invstd, pass->running_mean, pass->running_var,
                                               pass->tracked));
    } else {
        LS_CUDA(ls_kernel_batchnorm_running(pass->stream, pass->dtype, shape.channels, layer->eps, pass->running_mean,
                                            pass->running_var, norm->mean, norm->invstd));
    }
    if (LS_MUTANT(running_variance_biased) && pass->training) {
        LS_TRY(ls_mutant_biased(pass->stream, pass->dtype, pass->running_var, shape.channels, before, layer->momentum,
                                (double)(shape.batch * shape.plane)));
    }
    LS_CUDA(ls_kernel_batchnorm_forward(pass->stream, pass->dtype, &shape, norm->mean, norm->invstd, pass->weight,
                                        pass->bias, pass->x, pass->y));
    return LS_OK;
}

/* Comes before backward_input, which needs its sums. */
static ls_rc batchnorm_backward_params(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    const batchnorm *norm = state;
    ls_batchnorm_shape shape = shape_of(layer, pass);
    LS_CUDA(ls_kernel_batchnorm_backward_params(pass->stream, pass->dtype, &shape, norm->mean, norm->invstd, pass->x,
                                                pass->dy, norm->sums, pass->dweight, pass->dbias));
    return LS_OK;
}

static ls_rc batchnorm_backward_input(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    const batchnorm *norm = state;
    ls_batchnorm_shape shape = shape_of(layer, pass);
    LS_CUDA(ls_kernel_batchnorm_backward_input(pass->stream, pass->dtype, &shape, norm->mean, norm->invstd, norm->sums,
                                               pass->weight, pass->x, pass->dy, pass->dx));
    return LS_OK;
}

const ls_layer_ops ls_layer_batchnorm = {.needs_input = true,
                                         .open = batchnorm_open,
                                         .close = batchnorm_close,
                                         .forward = batchnorm_forward,
                                         .backward_input = batchnorm_backward_input,
                                         .backward_params = batchnorm_backward_params};
