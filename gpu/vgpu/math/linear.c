/* A linear layer is a 1 x 1 convolution of a 1 x 1 image: the layouts of activations and weights are the same. */
#include "gpu/vgpu/math/plan.h"

#include <stdlib.h>

struct ls_linear {
    ls_conv *conv;
};

ls_rc ls_linear_open(ls_math *math, size_t in_features, size_t out_features, ls_dtype dtype, size_t max_batch,
                     ls_linear **out) {
    *out = NULL;
    LS_TRY(ls_linear_shape_check(in_features, out_features));
    ls_conv_shape shape = {.in_channels = in_features,
                           .in_height = 1,
                           .in_width = 1,
                           .out_channels = out_features,
                           .kernel_height = 1,
                           .kernel_width = 1,
                           .stride = 1,
                           .padding = 0};
    ls_linear *linear = ls_calloc(1, sizeof *linear, "a linear layer");
    if (linear == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_rc rc = ls_conv_open(math, &shape, dtype, max_batch, &linear->conv);
    if (rc != LS_OK) {
        free(linear);
        return rc;
    }
    *out = linear;
    return LS_OK;
}

ls_rc ls_linear_forward(ls_linear *linear, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    return ls_conv_forward(linear->conv, batch, x, weight, bias, y);
}

ls_rc ls_linear_backward_input(ls_linear *linear, size_t batch, const void *dy, const void *weight, void *dx) {
    return ls_conv_backward_input(linear->conv, batch, dy, weight, dx);
}

ls_rc ls_linear_backward_params(ls_linear *linear, size_t batch, const void *x, const void *dy, void *dweight,
                                void *dbias) {
    return ls_conv_backward_params(linear->conv, batch, x, dy, dweight, dbias);
}

void ls_linear_close(ls_linear *linear) {
    if (linear == NULL) {
        return;
    }
    ls_conv_close(linear->conv);
    free(linear);
}
