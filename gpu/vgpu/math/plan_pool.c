/* The plans of a convolution with a max-pooling in the same pass. */
#include <stdlib.h>

#include "gpu/vgpu/math/plan.h"

/* A pooling's strip: half of a first-level cache of 32 KiB, which also holds what the strip is computed from. */
static const size_t strip_bytes = 16 * 1024;

/* Windows of a row, in as few equal parts as fit the strip. */
static size_t strip_windows(size_t width, size_t window_bytes) {
    const size_t most = window_bytes < strip_bytes ? strip_bytes / window_bytes : 1;
    const size_t parts = (width + most - 1) / most;
    return (width + parts - 1) / parts;
}

/* Rows of a tile of dy are whole rows of windows, unless the tile is the whole image. */
static void align_tiles(direct_correlation *c, size_t side) {
    if (c->tile_rows < c->out_height) {
        c->tile_rows = c->tile_rows < side ? side : c->tile_rows / side * side;
    }
}

ls_rc direct_plans_pool(direct_plans *plans, size_t side, int relu) {
    const direct_gather *forward = &plans->forward;
    direct_correlation *params = &plans->backward_params;
    const size_t element = ls_dtype_size(plans->dtype), row = forward->out_width * DIRECT_LANES;
    align_tiles(params, side);
    size_t tile = params->tile_blocks * params->tile_rows;
    size_t spread = tile > 2 * forward->out_height ? tile : 2 * forward->out_height;
    plans->pool = (direct_pool){.side = side,
                                .relu = relu,
                                .channels = forward->out_channels,
                                .in_height = forward->out_height,
                                .in_width = forward->out_width,
                                .out_height = forward->out_height / side,
                                .out_width = forward->out_width / side};
    const size_t window = 2 * forward->group * side * side * DIRECT_LANES;
    plans->pool.strip_columns = strip_windows(plans->pool.out_width, window * element);
    plans->pool.strip =
        direct_memory(window * plans->pool.strip_columns, element, "a pooling's strip of a convolution");
    plans->pool.spread = direct_memory(spread * forward->out_channels * row, element, "gradients behind a pooling");
    plans->pool.numbers =
        direct_memory(plans->pool.strip_columns * DIRECT_LANES, element, "indices of a pooling's windows");
    if (plans->pool.strip == NULL || plans->pool.spread == NULL || plans->pool.numbers == NULL) {
        return LS_DEVICE_FAILED; /* what there is goes with the plans */
    }
    plans->forward.pool = plans->backward_input.pool = params->pool = &plans->pool;
    return LS_OK;
}
