#include "reference/layers/layer.h"

static ls_rc conv_open(ls_math *math, const ls_layer *layer, ls_dtype dtype, size_t max_batch, void **state) {
    ls_conv_shape shape = {.in_channels = layer->in.channels,
                           .in_height = layer->in.height,
                           .in_width = layer->in.width,
                           .out_channels = layer->out.channels,
                           .kernel_height = layer->kernel,
                           .kernel_width = layer->kernel,
                           .stride = layer->stride,
                           .padding = layer->padding};
    ls_conv *conv = NULL;
    LS_TRY(ls_conv_open(math, &shape, dtype, max_batch, &conv));
    *state = conv;
    return LS_OK;
}

/* A max-pooling, and a relu behind it. */
static size_t conv_fuses(const ls_layer *layer, size_t count) {
    if (count < 1 || layer[1].kind != LS_LAYER_MAXPOOL || !ls_conv_pools(layer[1].kernel, layer[1].stride)) {
        return 0;
    }
    return count > 1 && layer[2].kind == LS_LAYER_RELU ? 2 : 1;
}

static ls_rc conv_attach(void *state, const ls_layer *layer, size_t fused, uint8_t *index, const void *y) {
    ls_conv_pool pool = {.kernel = layer[1].kernel, .relu = fused > 1, .index = index, .y = y};
    return LS_AT(ls_conv_attach(state, &pool));
}

static void conv_close(void *state) {
    ls_conv_close(state);
}

static ls_rc conv_forward(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)layer;
    return LS_AT(ls_conv_forward(state, pass->batch, pass->x, pass->weight, pass->bias, pass->y));
}

static ls_rc conv_backward_input(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)layer;
    return LS_AT(ls_conv_backward_input(state, pass->batch, pass->dy, pass->weight, pass->dx));
}

static ls_rc conv_backward_params(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)layer;
    return LS_AT(ls_conv_backward_params(state, pass->batch, pass->x, pass->dy, pass->dweight, pass->dbias));
}

const ls_layer_ops ls_layer_conv = {.needs_input = true,
                                    .open = conv_open,
                                    .close = conv_close,
                                    .fuses = conv_fuses,
                                    .attach = conv_attach,
                                    .forward = conv_forward,
                                    .backward_input = conv_backward_input,
                                    .backward_params = conv_backward_params};
