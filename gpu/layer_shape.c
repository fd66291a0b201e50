/* Shapes that no platform's layer math takes. */
#include "gpu/layer_math.h"

ls_rc ls_conv_shape_check(const ls_conv_shape *s) {
    if (s->in_channels == 0 || s->in_height == 0 || s->in_width == 0 || s->out_channels == 0 || s->kernel_height == 0 ||
        s->kernel_width == 0 || s->stride == 0 || s->kernel_height > s->in_height + 2 * s->padding ||
        s->kernel_width > s->in_width + 2 * s->padding) {
        return ls_fail(LS_BAD_INPUT,
                       "convolution of %zu x %zu x %zu to %zu channels, kernel %zu x %zu, stride %zu, padding %zu: "
                       "expected sizes and stride above 0 and a kernel that fits the padded input",
                       s->in_channels, s->in_height, s->in_width, s->out_channels, s->kernel_height, s->kernel_width,
                       s->stride, s->padding);
    }
    return LS_OK;
}

ls_rc ls_linear_shape_check(size_t in_features, size_t out_features) {
    if (in_features == 0 || out_features == 0) {
        return ls_fail(LS_BAD_INPUT, "linear layer of %zu to %zu features: expected both above 0", in_features,
                       out_features);
    }
    return LS_OK;
}

ls_rc ls_batch_check(const char *call, size_t batch, size_t max_batch) {
    if (batch > max_batch) {
        return ls_fail(LS_BAD_INPUT, "%s: a batch of %zu, expected at most the %zu that it was opened for", call, batch,
                       max_batch);
    }
    return LS_OK;
}
