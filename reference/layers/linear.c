#include "reference/layers/layer.h"

static ls_rc linear_open(ls_math *math, const ls_layer *layer, ls_dtype dtype, size_t max_batch, void **state) {
    ls_linear *linear = NULL;
    LS_TRY(ls_linear_open(math, layer->in.channels, layer->out.channels, dtype, max_batch, &linear));
    *state = linear;
    return LS_OK;
}

static void linear_close(void *state) {
    ls_linear_close(state);
}

static ls_rc linear_forward(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)layer;
    return LS_AT(ls_linear_forward(state, pass->batch, pass->x, pass->weight, pass->bias, pass->y));
}

static ls_rc linear_backward_input(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)layer;
    return LS_AT(ls_linear_backward_input(state, pass->batch, pass->dy, pass->weight, pass->dx));
}

static ls_rc linear_backward_params(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)layer;
    return LS_AT(ls_linear_backward_params(state, pass->batch, pass->x, pass->dy, pass->dweight, pass->dbias));
}

const ls_layer_ops ls_layer_linear = {.needs_input = true,
                                      .open = linear_open,
                                      .close = linear_close,
                                      .forward = linear_forward,
                                      .backward_input = linear_backward_input,
                                      .backward_params = linear_backward_params};
