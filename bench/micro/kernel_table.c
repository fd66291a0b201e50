#include <stddef.h>

#include "bench/micro/kernels.h"

static const ls_input_scale normalized = {.channels = 1, .plane = 576, .mean = {0.1307F}, .std = {0.3081F}};

static cudaError_t input(const ls_micro_operands *o) {
    return ls_kernel_input(o->stream, o->dtype, o->lanes, o->batch, o->count / o->batch, o->bytes, &normalized, o->a);
}

static cudaError_t input_values(const ls_micro_operands *o) {
    return ls_kernel_input_values(o->stream, o->dtype, o->lanes, o->batch, o->count / o->batch, o->floats, &normalized,
                                  o->a);
}

static cudaError_t relu_forward(const ls_micro_operands *o) {
    return ls_kernel_relu_forward(o->stream, o->dtype, o->count, o->a, o->b);
}

static cudaError_t relu_backward(const ls_micro_operands *o) {
    return ls_kernel_relu_backward(o->stream, o->dtype, o->count, o->a, o->b, o->c);
}

static cudaError_t maxpool_forward(const ls_micro_operands *o) {
    return ls_kernel_maxpool_forward(o->stream, o->dtype, o->lanes, o->batch, o->channels, o->side, o->side, 2, 2, o->a,
                                     o->b, o->bytes);
}

static cudaError_t maxpool_backward(const ls_micro_operands *o) {
    return ls_kernel_maxpool_backward(o->stream, o->dtype, o->lanes, o->batch, o->channels, o->side, o->side, 2, 2,
                                      o->a, o->bytes, o->b);
}

static cudaError_t avgpool_forward(const ls_micro_operands *o) {
    return ls_kernel_avgpool_forward(o->stream, o->dtype, o->lanes, o->batch, o->channels, o->side, o->side, 2, 2, o->a,
                                     o->b);
}

static cudaError_t avgpool_backward(const ls_micro_operands *o) {
    return ls_kernel_avgpool_backward(o->stream, o->dtype, o->lanes, o->batch, o->channels, o->side, o->side, 2, 2,
                                      o->a, o->b);
}

static cudaError_t dropout_forward(const ls_micro_operands *o) {
    ls_dropout_key key = {.seed = 1, .step = 1, .stream = 1};
    return ls_kernel_dropout_forward(o->stream, o->dtype, o->lanes, o->batch, o->count / o->batch, 0.5, key, o->a, o->b,
                                     o->bytes);
}

static cudaError_t dropout_backward(const ls_micro_operands *o) {
    return ls_kernel_dropout_backward(o->stream, o->dtype, o->count, 0.5, o->bytes, o->a, o->b);
}

static ls_batchnorm_shape batchnorm_shape(const ls_micro_operands *o) {
    return (ls_batchnorm_shape){.lanes = o->lanes, .batch = o->batch, .channels = o->channels, .plane = o->plane};
}

static cudaError_t batchnorm_statistics(const ls_micro_operands *o) {
    ls_batchnorm_shape shape = batchnorm_shape(o);
    return ls_kernel_batchnorm_statistics(o->stream, o->dtype, &shape, 1e-5, 0.1, o->a, o->statistics,
                                          o->statistics + o->channels, o->d, o->e, o->tracked);
}

static cudaError_t batchnorm_running(const ls_micro_operands *o) {
    return ls_kernel_batchnorm_running(o->stream, o->dtype, o->channels, 1e-5, o->d, o->e, o->statistics,
                                       o->statistics + o->channels);
}

static cudaError_t batchnorm_forward(const ls_micro_operands *o) {
    ls_batchnorm_shape shape = batchnorm_shape(o);
    return ls_kernel_batchnorm_forward(o->stream, o->dtype, &shape, o->statistics, o->statistics + o->channels, o->d,
                                       o->e, o->a, o->b);
}

static cudaError_t batchnorm_backward_params(const ls_micro_operands *o) {
    ls_batchnorm_shape shape = batchnorm_shape(o);
    return ls_kernel_batchnorm_backward_params(o->stream, o->dtype, &shape, o->statistics, o->statistics + o->channels,
                                               o->a, o->b, o->statistics + 2 * o->channels, o->d, o->e);
}

static cudaError_t batchnorm_backward_input(const ls_micro_operands *o) {
    ls_batchnorm_shape shape = batchnorm_shape(o);
    return ls_kernel_batchnorm_backward_input(o->stream, o->dtype, &shape, o->statistics, o->statistics + o->channels,
                                              o->statistics + 2 * o->channels, o->d, o->a, o->b, o->c);
}

static cudaError_t log_softmax_forward(const ls_micro_operands *o) {
    return ls_kernel_log_softmax_forward(o->stream, o->dtype, o->lanes, o->batch, o->classes, o->a, o->b);
}

static cudaError_t log_softmax_backward(const ls_micro_operands *o) {
    return ls_kernel_log_softmax_backward(o->stream, o->dtype, o->lanes, o->batch, o->classes, o->a, o->b, o->c);
}

static cudaError_t cross_entropy(const ls_micro_operands *o) {
    return ls_kernel_cross_entropy(o->stream, o->dtype, o->lanes, o->batch, o->classes, o->a, o->labels, 0, 64, o->b,
                                   o->c);
}

static cudaError_t mse(const ls_micro_operands *o) {
    return ls_kernel_mse(o->stream, o->dtype, o->lanes, o->batch, o->classes, o->a, o->labels, NULL, 64, o->b, o->c);
}

static cudaError_t rmse(const ls_micro_operands *o) {
    return ls_kernel_rmse(o->stream, o->dtype, o->count, o->one_sum, 1, o->a);
}

static cudaError_t sum(const ls_micro_operands *o) {
    return ls_kernel_sum(o->stream, o->dtype, o->count, o->a, o->statistics);
}

static cudaError_t accuracy(const ls_micro_operands *o) {
    return ls_kernel_accuracy(o->stream, o->dtype, o->lanes, o->batch, o->classes, o->a, o->labels, o->bytes);
}

static cudaError_t sgd(const ls_micro_operands *o) {
    ls_sgd options = {.lr = 1e-9, .momentum = 0.5};
    return ls_kernel_sgd(o->stream, o->dtype, o->count, o->a, o->b, o->c, &options);
}

static cudaError_t adam(const ls_micro_operands *o) {
    ls_adam options = {.lr = 1e-9, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = 1};
    return ls_kernel_adam(o->stream, o->dtype, o->count, o->a, o->b, o->c, o->d, NULL, &options);
}

static cudaError_t rmsprop(const ls_micro_operands *o) {
    ls_rmsprop options = {.lr = 1e-9, .alpha = 0.99, .eps = 1e-8};
    return ls_kernel_rmsprop(o->stream, o->dtype, o->count, o->a, o->b, o->c, NULL, NULL, &options);
}

static cudaError_t step_values(const ls_micro_operands *o) {
    ls_step_values values = {.scalar = {1}};
    return ls_kernel_step_values(o->stream, &values, (ls_step_values *)(void *)o->statistics);
}

static cudaError_t scale(const ls_micro_operands *o) {
    return ls_kernel_scale(o->stream, o->dtype, o->count, 1.0, o->a);
}

static cudaError_t add(const ls_micro_operands *o) {
    return ls_kernel_add(o->stream, o->dtype, o->count, o->a, o->b);
}

static cudaError_t from_lanes(const ls_micro_operands *o) {
    return ls_kernel_from_lanes(o->stream, ls_dtype_size(o->dtype), o->lanes, o->batch, o->count / o->batch, o->a,
                                o->b);
}

static cudaError_t to_lanes(const ls_micro_operands *o) {
    return ls_kernel_to_lanes(o->stream, ls_dtype_size(o->dtype), o->lanes, o->batch, o->count / o->batch, o->a, o->b);
}

static cudaError_t positive(const ls_micro_operands *o) {
    return ls_kernel_positive(o->stream, o->dtype, o->count, o->a, o->bytes);
}

/* Windows of 2x2 at stride 2: as many columns as inputs. */
static ls_window windows_of(const ls_micro_operands *o) {
    return (ls_window){o->channels, o->side, o->side, 2, 2, 2, 0};
}

static cudaError_t im2col(const ls_micro_operands *o) {
    ls_window window = windows_of(o);
    return ls_kernel_im2col(o->stream, o->dtype, o->lanes, o->batch, &window, o->a, o->b);
}

static cudaError_t col2im(const ls_micro_operands *o) {
    ls_window window = windows_of(o);
    return ls_kernel_col2im(o->stream, o->dtype, o->lanes, o->batch, &window, o->a, o->b);
}

static ls_channels channels_of(const ls_micro_operands *o) {
    return (ls_channels){(o->batch + o->lanes - 1) / o->lanes, o->channels, o->plane * o->lanes};
}

static cudaError_t channels_first(const ls_micro_operands *o) {
    ls_channels shape = channels_of(o);
    return ls_kernel_channels_first(o->stream, o->dtype, &shape, o->a, o->b);
}

static cudaError_t channels_second(const ls_micro_operands *o) {
    ls_channels shape = channels_of(o);
    return ls_kernel_channels_second(o->stream, o->dtype, &shape, o->a, o->d, o->b);
}

static cudaError_t bias(const ls_micro_operands *o) {
    ls_channels shape = channels_of(o);
    return ls_kernel_bias(o->stream, o->dtype, &shape, o->d, o->a);
}

static cudaError_t channel_sums(const ls_micro_operands *o) {
    ls_channels shape = channels_of(o);
    return ls_kernel_channel_sums(o->stream, o->dtype, &shape, o->a, o->d);
}

/* Pools have windows of 2x2 at stride 2: a quarter as many outputs. In rows of 10 classes a label of 4 bytes and a loss of one
 * element are a tenth each of `count`. */
const ls_micro_kernel ls_micro_kernels[] = {
    {"input", LS_MICRO_ACTIVATION, 1, 1, 3, input},
    {"input_values", LS_MICRO_ACTIVATION, 1, 4, 2, input_values},
    {"relu_forward", LS_MICRO_ACTIVATION, 2, 0, 1, relu_forward},
    {"relu_backward", LS_MICRO_ACTIVATION, 3, 0, 1, relu_backward},
    {"maxpool_forward", LS_MICRO_ACTIVATION, 1.25, 0.25, 0.75, maxpool_forward},
    {"maxpool_backward", LS_MICRO_ACTIVATION, 1.25, 0.25, 1, maxpool_backward},
    {"avgpool_forward", LS_MICRO_ACTIVATION, 1.25, 0, 1, avgpool_forward},
    {"avgpool_backward", LS_MICRO_ACTIVATION, 1.25, 0, 0.25, avgpool_backward},
    {"dropout_forward", LS_MICRO_ACTIVATION, 2, 1, 2, dropout_forward},
    {"dropout_backward", LS_MICRO_ACTIVATION, 2, 1, 1, dropout_backward},
    {"batchnorm_statistics", LS_MICRO_ACTIVATION, 1, 0, 3, batchnorm_statistics},
    {"batchnorm_running", LS_MICRO_ACTIVATION, 0, 0, 0, batchnorm_running}, /* of the channels alone */
    {"batchnorm_forward", LS_MICRO_ACTIVATION, 2, 0, 4, batchnorm_forward},
    {"batchnorm_backward_params", LS_MICRO_ACTIVATION, 2, 0, 5, batchnorm_backward_params},
    {"batchnorm_backward_input", LS_MICRO_ACTIVATION, 3, 0, 7, batchnorm_backward_input},
    {"log_softmax_forward", LS_MICRO_CLASSES, 2, 0, 5, log_softmax_forward},
    {"log_softmax_backward", LS_MICRO_CLASSES, 3, 0, 4, log_softmax_backward},
    {"cross_entropy", LS_MICRO_CLASSES, 2.1, 0.4, 6, cross_entropy},
    {"mse", LS_MICRO_CLASSES, 2.1, 0.4, 5, mse},
    {"rmse", LS_MICRO_ACTIVATION, 2, 0, 1, rmse},
    {"sum", LS_MICRO_ACTIVATION, 1, 0, 1, sum},
    {"accuracy", LS_MICRO_CLASSES, 1, 0.5, 1, accuracy},
    {"sgd", LS_MICRO_ACTIVATION, 5, 0, 4, sgd},
    {"adam", LS_MICRO_ACTIVATION, 7, 0, 11, adam},
    {"rmsprop", LS_MICRO_ACTIVATION, 5, 0, 8, rmsprop},
    {"step_values", LS_MICRO_ACTIVATION, 0, 0, 0, step_values}, /* of a step */
    {"scale", LS_MICRO_ACTIVATION, 2, 0, 1, scale},
    {"add", LS_MICRO_ACTIVATION, 3, 0, 1, add},
    {"from_lanes", LS_MICRO_ACTIVATION, 2, 0, 0, from_lanes},
    {"to_lanes", LS_MICRO_ACTIVATION, 2, 0, 0, to_lanes},
    {"im2col", LS_MICRO_ACTIVATION, 2, 0, 0, im2col},
    {"col2im", LS_MICRO_ACTIVATION, 2, 0, 1, col2im},
    {"channels_first", LS_MICRO_ACTIVATION, 2, 0, 0, channels_first},
    {"channels_second", LS_MICRO_ACTIVATION, 2, 0, 1, channels_second},
    {"bias", LS_MICRO_ACTIVATION, 2, 0, 1, bias},
    {"channel_sums", LS_MICRO_ACTIVATION, 1, 0, 1, channel_sums},
    {"positive", LS_MICRO_ACTIVATION, 1, 1, 1, positive},
    {NULL, LS_MICRO_ACTIVATION, 0, 0, 0, NULL},
};
