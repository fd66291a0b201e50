#include "reference/layers/layer.h"

static ls_rc avgpool_forward(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    LS_CUDA(ls_kernel_avgpool_forward(pass->stream, pass->dtype, pass->lanes, pass->batch, layer->in.channels,
                                      layer->in.height, layer->in.width, layer->kernel, layer->stride, pass->x,
                                      pass->y));
    return LS_OK;
}

static ls_rc avgpool_backward_input(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    LS_CUDA(ls_kernel_avgpool_backward(pass->stream, pass->dtype, pass->lanes, pass->batch, layer->in.channels,
                                       layer->in.height, layer->in.width, layer->kernel, layer->stride, pass->dy,
                                       pass->dx));
    return LS_OK;
}

const ls_layer_ops ls_layer_avgpool = {.forward = avgpool_forward, .backward_input = avgpool_backward_input};
