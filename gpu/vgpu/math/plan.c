/* Plans for the loops of direct.h: which inputs each pixel reads, how sums are grouped, and the scratch memory. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/math/plan.h"

/* What one walk of a correlation may touch and still stay in a first-level cache of 32 KiB, with room for its sums. */
static const size_t tile_bytes = 30 * 1024;
/* The same of several small images where a walk keeps many sums: reading and storing those costs more than a second-level cache,
 * of which a multiply-add needs less than with few sums. */
static const size_t far_tile_bytes = 64 * 1024;
/* What an output of one block reads of a chunk of input channels, in the first-level cache; where registers hold the sums of two
 * pixels of two vectors, half as many loads go by a multiply-add, and the second-level cache is fast enough for them. */
static const size_t chunk_bytes = 24 * 1024, wide_chunk_bytes = 64 * 1024;
/* Sums, a vector each, that are kept from tile to tile in the second-level cache, beside the tile's planes. */
static const size_t kept_sums = 8192;

/* Forward: output p reads sources p*stride - padding + k for the taps k that fall inside the image. */
static void forward_ranges(size_t in, size_t out, size_t kernel, size_t stride, size_t padding, direct_range *ranges) {
    for (size_t p = 0; p < out; p++) {
        size_t start = p * stride; /* in the padded image */
        size_t first = start < padding ? padding - start : 0;
        size_t last = in + padding > start ? in + padding - start : 0; /* one past the last tap */
        last = last < kernel ? last : kernel;
        ranges[p] =
            first < last ? (direct_range){start + first - padding, first, last - first} : (direct_range){0, 0, 0};
    }
}

/* Backward: input p was read by outputs o with the tap k = p + padding - o*stride, 0 <= k < kernel. Taps are mirrored
 * (kernel-1-k), so that they rise with o by steps of stride. */
static void backward_ranges(size_t in, size_t out, size_t kernel, size_t stride, size_t padding, direct_range *ranges) {
    for (size_t p = 0; p < in; p++) {
        size_t at = p + padding;
        size_t first = at < kernel ? 0 : (at - kernel) / stride + 1;
        size_t last = at / stride + 1; /* one past the last output */
        last = last < out ? last : out;
        ranges[p] = first < last ? (direct_range){first, kernel - 1 - (at - first * stride), last - first}
                                 : (direct_range){0, 0, 0};
    }
}

size_t direct_group(size_t channels) {
    return direct_round_up(channels, DIRECT_GROUP_LARGE) <= direct_round_up(channels, DIRECT_GROUP_SMALL)
               ? DIRECT_GROUP_LARGE
               : DIRECT_GROUP_SMALL;
}

/* Input channels of which what one output reads, and as many columns again, fit the cache, in equal chunks, as few as may be. */
static size_t choose_chunk(const direct_isa *isa, const direct_gather *g, size_t element) {
    size_t fits = isa->many_registers ? wide_chunk_bytes : chunk_bytes;
    size_t rows = g->tap_rows < g->in_height ? g->tap_rows : g->in_height;
    size_t columns = 2 * g->tap_columns < g->in_width ? 2 * g->tap_columns : g->in_width;
    size_t bytes = (rows * columns * DIRECT_LANES + g->tap_rows * g->tap_columns * g->group) * element;
    size_t most = bytes > 0 && fits / bytes > 1 ? fits / bytes : 1;
    return direct_equal_part(g->in_channels, most);
}

static ls_rc gather_alloc(const direct_isa *isa, direct_gather *g, size_t element) {
    g->group = direct_group(g->out_channels);
    g->chunk = choose_chunk(isa, g, element);
    size_t weights = direct_round_up(g->out_channels, g->group) * g->in_channels * g->tap_rows * g->tap_columns;
    g->rows = ls_calloc(g->out_height, sizeof *g->rows, "rows of a convolution");
    g->columns = ls_calloc(g->out_width, sizeof *g->columns, "columns of a convolution");
    g->packed = direct_memory(weights, element, "packed weights of a convolution");
    return g->rows != NULL && g->columns != NULL && g->packed != NULL ? LS_OK : LS_DEVICE_FAILED;
}

static ls_rc plan_forward(const direct_isa *isa, const ls_conv_shape *s, size_t element, direct_gather *g) {
    size_t window = s->kernel_height * s->kernel_width;
    *g = (direct_gather){.in_channels = s->in_channels,
                         .in_height = s->in_height,
                         .in_width = s->in_width,
                         .out_channels = s->out_channels,
                         .out_height = ls_conv_out_height(s),
                         .out_width = ls_conv_out_width(s),
                         .tap_rows = s->kernel_height,
                         .tap_columns = s->kernel_width,
                         .tap_step = 1,
                         .out_step = (ptrdiff_t)(s->in_channels * window),
                         .in_step = (ptrdiff_t)window,
                         .weight_tap_step = 1};
    LS_TRY(gather_alloc(isa, g, element));
    forward_ranges(s->in_height, g->out_height, s->kernel_height, s->stride, s->padding, g->rows);
    forward_ranges(s->in_width, g->out_width, s->kernel_width, s->stride, s->padding, g->columns);
    return LS_OK;
}

static ls_rc plan_backward_input(const direct_isa *isa, const ls_conv_shape *s, size_t element, direct_gather *g) {
    size_t window = s->kernel_height * s->kernel_width;
    *g = (direct_gather){.in_channels = s->out_channels,
                         .in_height = ls_conv_out_height(s),
                         .in_width = ls_conv_out_width(s),
                         .out_channels = s->in_channels,
                         .out_height = s->in_height,
                         .out_width = s->in_width,
                         .tap_rows = s->kernel_height,
                         .tap_columns = s->kernel_width,
                         .tap_step = s->stride,
                         .origin = (ptrdiff_t)(window - 1),
                         .out_step = (ptrdiff_t)window,
                         .in_step = (ptrdiff_t)(s->in_channels * window),
                         .weight_tap_step = -1};
    LS_TRY(gather_alloc(isa, g, element));
    backward_ranges(s->in_height, g->in_height, s->kernel_height, s->stride, s->padding, g->rows);
    backward_ranges(s->in_width, g->in_width, s->kernel_width, s->stride, s->padding, g->columns);
    return LS_OK;
}

/* Bytes that a walk over `rows` output rows of one block touches. */
static size_t walk_bytes(const ls_conv_shape *s, size_t rows, size_t outs, size_t element) {
    size_t x_rows = (rows - 1) * s->stride + s->kernel_height;
    return (x_rows * (s->in_width + 2 * s->padding) + outs * rows * ls_conv_out_width(s)) * DIRECT_LANES * element;
}

/* Tiles that fit the cache: several blocks where an image is small, some rows where it is large. */
static void choose_tiles(const direct_isa *isa, const ls_conv_shape *s, size_t element, direct_correlation *c) {
    c->tile_rows = c->out_height > 1 ? c->out_height : 1;
    while (c->tile_rows > 1 && walk_bytes(s, c->tile_rows, isa->outs, element) > tile_bytes) {
        c->tile_rows--;
    }
    c->tile_blocks = 1;
    if (c->tile_rows == c->out_height && s->padding == 0) {
        size_t walk = walk_bytes(s, c->tile_rows, isa->outs, element);
        size_t most = isa->many_registers ? far_tile_bytes : tile_bytes;
        c->tile_blocks = walk > 0 && most / walk > 1 ? most / walk : 1;
    }
    size_t dy_bytes = c->out_channels * c->tile_blocks * c->tile_rows * c->out_width * DIRECT_LANES * element;
    c->outs_inner = dy_bytes <= tile_bytes / 2;
    size_t taps = direct_round_up(c->taps, DIRECT_TAPS);
    size_t most = kept_sums / direct_round_up(c->out_channels, isa->outs) / DIRECT_TAPS * DIRECT_TAPS;
    size_t chunks = most > 0 ? direct_round_up(taps, most) / most : taps / DIRECT_TAPS;
    c->chunk_taps = direct_round_up((taps + chunks - 1) / chunks, DIRECT_TAPS);
}

static ls_rc plan_backward_params(const direct_isa *isa, const ls_conv_shape *s, size_t element, size_t max_batch,
                                  direct_correlation *c) {
    *c = (direct_correlation){.in_channels = s->in_channels,
                              .in_height = s->in_height,
                              .in_width = s->in_width,
                              .out_channels = s->out_channels,
                              .out_height = ls_conv_out_height(s),
                              .out_width = ls_conv_out_width(s),
                              .stride = s->stride,
                              .padding = s->padding,
                              .taps = s->in_channels * s->kernel_height * s->kernel_width};
    size_t blocks = direct_round_up(max_batch, DIRECT_LANES) / DIRECT_LANES;
    size_t taps = direct_round_up(c->taps, DIRECT_TAPS);
    size_t height = s->in_height + 2 * s->padding;
    size_t width = s->in_width + 2 * s->padding;
    choose_tiles(isa, s, element, c);
    c->tap_offset = ls_calloc(taps, sizeof *c->tap_offset, "taps of a convolution");
    c->sums = direct_memory(direct_round_up(c->out_channels, isa->outs) * c->chunk_taps, isa->vector_bytes,
                            "sums of a weight gradient");
    c->bias_sums =
        direct_memory(c->out_channels, DIRECT_BIAS_COLUMNS * DIRECT_LANES * element, "sums of a bias gradient");
    if (c->tap_offset == NULL || c->sums == NULL || c->bias_sums == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t tap = 0; tap < taps; tap++) { /* a tap beyond the last repeats it; its sums are not used */
        size_t t = tap < c->taps ? tap : c->taps - 1;
        size_t kx = t % s->kernel_width;
        size_t ky = t / s->kernel_width % s->kernel_height;
        size_t channel = t / s->kernel_width / s->kernel_height;
        c->tap_offset[tap] = ((channel * height + ky) * width + kx) * DIRECT_LANES;
    }
    if (s->padding > 0) {
        c->padded_blocks = c->chunk_taps >= c->taps ? 1 : blocks;
        c->padded = direct_memory(c->padded_blocks * s->in_channels * height * width, DIRECT_LANES * element,
                                  "padded input of a convolution");
        return c->padded != NULL ? LS_OK : LS_DEVICE_FAILED;
    }
    return LS_OK;
}

void *direct_memory(size_t count, size_t element, const char *what) {
    if (count > (SIZE_MAX - DIRECT_LINE) / element) {
        return ls_calloc(count, element, what); /* which says why not */
    }
    size_t bytes = direct_round_up(count * element > 0 ? count * element : 1, DIRECT_LINE);
    void *memory = aligned_alloc(DIRECT_LINE, bytes);
    if (memory == NULL) {
        (void)ls_fail(LS_DEVICE_FAILED, "out of memory: %zu bytes for %s", bytes, what);
        return NULL;
    }
    return memset(memory, 0, bytes);
}

ls_rc direct_plans_make(const direct_isa *isa, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch,
                        direct_plans *plans) {
    size_t element = ls_dtype_size(dtype);
    *plans = (direct_plans){.shape = *shape, .dtype = dtype, .max_batch = max_batch};
    ls_rc rc = plan_forward(isa, shape, element, &plans->forward);
    if (rc == LS_OK) {
        rc = plan_backward_input(isa, shape, element, &plans->backward_input);
    }
    if (rc == LS_OK) {
        rc = plan_backward_params(isa, shape, element, max_batch, &plans->backward_params);
    }
    if (rc != LS_OK) {
        direct_plans_free(plans);
    }
    return rc;
}

void direct_correlation_free(direct_correlation *c) {
    free(c->tap_offset);
    free(c->sums);
    free(c->bias_sums);
    free(c->padded);
    c->tap_offset = NULL;
    c->sums = c->bias_sums = c->padded = NULL;
}

void direct_plans_free(direct_plans *plans) {
    direct_gather *gathers[] = {&plans->forward, &plans->backward_input};
    for (size_t i = 0; i < 2; i++) {
        free(gathers[i]->rows);
        free(gathers[i]->columns);
        free(gathers[i]->packed);
    }
    direct_correlation_free(&plans->backward_params);
    free(plans->pool.strip);
    free(plans->pool.numbers);
    direct_sparse_free(&plans->pool);
    *plans = (direct_plans){0};
}
