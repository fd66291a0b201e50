#include "reference/layers/layer.h"

#include "gpu/base/mutant.h"
#include "reference/mutant_faults.h"

static ls_rc maxpool_forward(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    LS_CUDA(ls_kernel_maxpool_forward(pass->stream, pass->dtype, pass->lanes, pass->batch, layer->in.channels,
                                      layer->in.height, layer->in.width, layer->kernel, layer->stride, pass->x, pass->y,
                                      pass->index));
    if (LS_MUTANT(tie_takes_last)) {
        return ls_mutant_last_maximum(layer, pass);
    }
    return LS_OK;
}

static ls_rc maxpool_backward_input(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    LS_CUDA(ls_kernel_maxpool_backward(pass->stream, pass->dtype, pass->lanes, pass->batch, layer->in.channels,
                                       layer->in.height, layer->in.width, layer->kernel, layer->stride, pass->dy,
                                       pass->index, pass->dx));
    return LS_OK;
}

const ls_layer_ops ls_layer_maxpool = {
    .wants_index = true, .forward = maxpool_forward, .backward_input = maxpool_backward_input};
