#include "reference/layers/layer.h"

#include "gpu/base/mutant.h"

static ls_rc relu_forward(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    LS_CUDA(ls_kernel_relu_forward(pass->stream, pass->dtype,
                                   ls_activation_count(pass->batch, ls_shape_features(layer->in)), pass->x, pass->y));
    return LS_OK;
}

static ls_rc relu_backward_input(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    if (LS_MUTANT(relu_lets_through)) {
        if (pass->dx != pass->dy) {
            LS_CUDA(cudaMemcpyAsync(pass->dx, pass->dy,
                                    ls_activation_count(pass->batch, ls_shape_features(layer->in)) *
                                        ls_dtype_size(pass->dtype),
                                    cudaMemcpyDeviceToDevice, pass->stream));
        }
        return LS_OK;
    }
    LS_CUDA(ls_kernel_relu_backward(pass->stream, pass->dtype,
                                    ls_activation_count(pass->batch, ls_shape_features(layer->in)), pass->y, pass->dy,
                                    pass->dx));
    return LS_OK;
}

/* max(x, 0) > 0 exactly where x > 0, so the output tells even when it lies over the input. */
static ls_rc relu_decisions(const ls_layer *layer, const ls_layer_pass *pass, uint8_t *decisions) {
    LS_CUDA(ls_kernel_positive(pass->stream, pass->dtype,
                               ls_activation_count(pass->batch, ls_shape_features(layer->in)), pass->y, decisions));
    return LS_OK;
}

const ls_layer_ops ls_layer_relu = {.in_place = true,
                                    .needs_output = true,
                                    .forward = relu_forward,
                                    .backward_input = relu_backward_input,
                                    .decisions = relu_decisions};
