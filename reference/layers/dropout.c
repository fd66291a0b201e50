#include "reference/layers/layer.h"

#include "gpu/base/mutant.h"

/* A training step's mask is named by seed, step, rank and layer; evaluation passes everything through. */
static ls_rc dropout_forward(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    size_t features = ls_shape_features(layer->in);
    if (!pass->training) {
        if (pass->y != pass->x) {
            LS_CUDA(cudaMemcpyAsync(pass->y, pass->x,
                                    ls_activation_count(pass->batch, features) * ls_dtype_size(pass->dtype),
                                    cudaMemcpyDeviceToDevice, pass->stream));
        }
        return LS_OK;
    }
    ls_dropout_key key = {.seed = pass->seed,
                          .step = (uint32_t)pass->step,
                          .stream = (uint32_t)(pass->rank * LS_MODEL_MAX_LAYERS + pass->layer),
                          .live = pass->live};
    if (LS_MUTANT(masks_of_one_rank)) {
        key.stream = (uint32_t)pass->layer;
    }
    if (LS_MUTANT(masks_of_one_step)) {
        key.step = 0;
        key.live = NULL;
    }
    LS_CUDA(ls_kernel_dropout_forward(pass->stream, pass->dtype, pass->lanes, pass->batch, features, layer->p, key,
                                      pass->x, pass->y, pass->index));
    return LS_OK;
}

static ls_rc dropout_backward_input(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    LS_CUDA(ls_kernel_dropout_backward(pass->stream, pass->dtype,
                                       ls_activation_count(pass->batch, ls_shape_features(layer->in)), layer->p,
                                       pass->index, pass->dy, pass->dx));
    return LS_OK;
}

const ls_layer_ops ls_layer_dropout = {
    .in_place = true, .wants_index = true, .forward = dropout_forward, .backward_input = dropout_backward_input};
