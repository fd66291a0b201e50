#include "reference/layers/layer.h"

static ls_rc log_softmax_forward(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    LS_CUDA(ls_kernel_log_softmax_forward(pass->stream, pass->dtype, pass->lanes, pass->batch, layer->in.channels,
                                          pass->x, pass->y));
    return LS_OK;
}

static ls_rc log_softmax_backward_input(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    LS_CUDA(ls_kernel_log_softmax_backward(pass->stream, pass->dtype, pass->lanes, pass->batch, layer->in.channels,
                                           pass->y, pass->dy, pass->dx));
    return LS_OK;
}

const ls_layer_ops ls_layer_log_softmax = {
    .needs_output = true, .forward = log_softmax_forward, .backward_input = log_softmax_backward_input};
