#include "reference/layers/layer.h"

static const ls_layer_ops *const table[LS_LAYER_KIND_COUNT] = {
    [LS_LAYER_CONV] = &ls_layer_conv,           [LS_LAYER_MAXPOOL] = &ls_layer_maxpool,
    [LS_LAYER_RELU] = &ls_layer_relu,           [LS_LAYER_FLATTEN] = &ls_layer_flatten,
    [LS_LAYER_LINEAR] = &ls_layer_linear,       [LS_LAYER_LOG_SOFTMAX] = &ls_layer_log_softmax,
    [LS_LAYER_AVGPOOL] = &ls_layer_avgpool,     [LS_LAYER_DROPOUT] = &ls_layer_dropout,
    [LS_LAYER_BATCHNORM] = &ls_layer_batchnorm,
};

const ls_layer_ops *ls_layer_ops_of(ls_layer_kind kind) {
    return table[kind];
}
