#include "reference/layers/layer.h"

/* [C][H][W] becomes [C*H*W] without moving a value: the layout keeps the features of a block in that order. */
static ls_rc flatten_nothing(void *state, const ls_layer *layer, const ls_layer_pass *pass) {
    (void)state;
    (void)layer;
    (void)pass;
    return LS_OK;
}

const ls_layer_ops ls_layer_flatten = {.identity = true, .forward = flatten_nothing, .backward_input = flatten_nothing};
