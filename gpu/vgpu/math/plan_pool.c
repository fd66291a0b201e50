/* The plans of a convolution with a max-pooling in the same pass. */
#include <stdlib.h>

#include "gpu/vgpu/math/plan.h"

/* A pooling's strip: half of a first-level cache of 32 KiB, which also holds what the strip is computed from. */
static const size_t strip_bytes = 16 * 1024;

/* Windows of a row, in as few equal parts as fit the strip. */
static size_t strip_windows(size_t width, size_t window_bytes) {
    return direct_equal_part(width, window_bytes < strip_bytes ? strip_bytes / window_bytes : 1);
}

ls_rc direct_plans_pool(const direct_isa *isa, direct_plans *plans, size_t side, int relu) {
    const direct_gather *forward = &plans->forward;
    const ls_conv_shape *shape = &plans->shape;
    const size_t element = ls_dtype_size(plans->dtype);
    plans->pool = (direct_pool){.side = side,
                                .relu = relu,
                                .channels = shape->out_channels,
                                .out_height = forward->out_height / side,
                                .out_width = forward->out_width / side,
                                .full_height = forward->out_height,
                                .full_width = forward->out_width,
                                .in_channels = shape->in_channels,
                                .kernel_height = shape->kernel_height,
                                .kernel_width = shape->kernel_width,
                                .stride = shape->stride,
                                .input_pixels = shape->in_channels * shape->in_height * shape->in_width};
    const size_t window = 2 * forward->group * side * side * DIRECT_LANES;
    plans->pool.strip_columns = strip_windows(plans->pool.out_width, window * element);
    plans->pool.strip =
        direct_memory(window * plans->pool.strip_columns, element, "a pooling's strip of a convolution");
    plans->pool.numbers =
        direct_memory(plans->pool.strip_columns * DIRECT_LANES, element, "indices of a pooling's windows");
    if (plans->pool.strip == NULL || plans->pool.numbers == NULL) {
        return LS_DEVICE_FAILED; /* what there is goes with the plans */
    }
    LS_TRY(direct_sparse_make(isa, shape, element, &plans->pool));
    direct_correlation_free(&plans->backward_params);
    plans->forward.pool = plans->backward_input.pool = plans->backward_params.pool = &plans->pool;
    return LS_OK;
}
