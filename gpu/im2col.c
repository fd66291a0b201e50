/* Convolution as a product of matrices: im2col lays every window of the input out as a column, and the three passes are GEMMs
 * with the weights, which are [out channels][taps] as PyTorch has them:
 *   y = weight * columns,   dcolumns = weight^T * dy,   dweight = dy * columns^T
 * (Chellapilla, Puri, Simard, High Performance Convolutional Neural Networks for Document Processing, 2006). y and dy are
 * there [out channels][blocks][plane], so that one GEMM serves a whole chunk of blocks of samples; channels.cu turns them.
 * Shares no code with the platforms' own engines but the GEMM. */
#include <stdlib.h>

#include "gpu/kernels/kernels.h"
#include "gpu/layer_engine.h"

/* The place noted for diagnostics stays the caller's. */
#define ENQUEUE(call) LS_TRY((ls_cuda_check)((call), #call, __FILE__, __LINE__))

typedef struct im2col {
    ls_math *math;
    ls_dtype dtype;
    ls_window window;
    size_t outs, taps;
    size_t plane;        /* values of a channel in a block: output pixels * lanes */
    size_t chunk;        /* blocks that are worked on at once */
    size_t column_bytes; /* of a chunk: where the turned y or dy begins in the scratch */
} im2col;

/* Part of a batch: `samples` of it in `blocks`, and where they lie in x and y. */
typedef struct part {
    size_t samples, blocks;
    size_t x_bytes, y_bytes;
    void *columns, *turned;
    ls_channels channels;
} part;

static size_t blocks_of(size_t batch) {
    return (batch + ls_lanes() - 1) / ls_lanes();
}

/* The part that begins at `block`. */
static part part_at(const im2col *c, size_t batch, size_t block) {
    size_t left = blocks_of(batch) - block;
    size_t blocks = left < c->chunk ? left : c->chunk;
    size_t samples = batch - block * ls_lanes();
    size_t element = ls_dtype_size(c->dtype);
    size_t in_plane = c->window.channels * c->window.height * c->window.width * ls_lanes();
    char *scratch = ls_math_scratch(c->math);
    return (part){.samples = samples < blocks * ls_lanes() ? samples : blocks * ls_lanes(),
                  .blocks = blocks,
                  .x_bytes = block * in_plane * element,
                  .y_bytes = block * c->outs * c->plane * element,
                  .columns = scratch,
                  .turned = scratch + c->column_bytes,
                  .channels = {.blocks = blocks, .channels = c->outs, .plane = c->plane}};
}

static ls_rc im2col_open(ls_math *math, const ls_conv_shape *s, ls_dtype dtype, size_t max_batch, void **state) {
    im2col *c = ls_calloc(1, sizeof *c, "a convolution");
    if (c == NULL) {
        return LS_DEVICE_FAILED;
    }
    c->math = math;
    c->dtype = dtype;
    c->window = (ls_window){.channels = s->in_channels,
                            .height = s->in_height,
                            .width = s->in_width,
                            .kernel_height = s->kernel_height,
                            .kernel_width = s->kernel_width,
                            .stride = s->stride,
                            .padding = s->padding};
    c->outs = s->out_channels;
    c->taps = s->in_channels * s->kernel_height * s->kernel_width;
    c->plane = ls_conv_out_height(s) * ls_conv_out_width(s) * ls_lanes();
    size_t block_bytes = (c->taps + c->outs) * c->plane * ls_dtype_size(dtype);
    size_t fitting = ls_math_scratch_target() / block_bytes;
    size_t blocks = blocks_of(max_batch);
    c->chunk = fitting < 1 ? 1 : fitting < blocks ? fitting : blocks;
    c->column_bytes = c->chunk * c->taps * c->plane * ls_dtype_size(dtype);
    *state = c;
    return ls_math_reserve_scratch(math, c->chunk * block_bytes);
}

/* The columns of a part of x. */
static ls_rc make_columns(const im2col *c, const part *p, const void *x) {
    ENQUEUE(ls_kernel_im2col(ls_math_stream(c->math), c->dtype, ls_lanes(), p->samples, &c->window,
                             (const char *)x + p->x_bytes, p->columns));
    return LS_OK;
}

/* A part of dy with its channels first, as a matrix of a row each. */
static ls_rc turn(const im2col *c, const part *p, const void *dy) {
    ENQUEUE(ls_kernel_channels_first(ls_math_stream(c->math), c->dtype, &p->channels, (const char *)dy + p->y_bytes,
                                     p->turned));
    return LS_OK;
}

static ls_rc im2col_forward(void *state, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    const im2col *c = state;
    cudaStream_t stream = ls_math_stream(c->math);
    for (size_t block = 0; block < blocks_of(batch); block += c->chunk) {
        part p = part_at(c, batch, block);
        LS_TRY(make_columns(c, &p, x));
        ls_gemm gemm = {.rows = c->outs,
                        .columns = p.blocks * c->plane,
                        .inner = c->taps,
                        .a = weight,
                        .b = p.columns,
                        .c = p.turned};
        LS_TRY(ls_math_gemm(c->math, c->dtype, &gemm));
        ENQUEUE(ls_kernel_channels_second(stream, c->dtype, &p.channels, p.turned, bias, (char *)y + p.y_bytes));
    }
    return LS_OK;
}

static ls_rc im2col_backward_input(void *state, size_t batch, const void *dy, const void *weight, void *dx) {
    const im2col *c = state;
    cudaStream_t stream = ls_math_stream(c->math);
    for (size_t block = 0; block < blocks_of(batch); block += c->chunk) {
        part p = part_at(c, batch, block);
        LS_TRY(turn(c, &p, dy));
        ls_gemm gemm = {.transpose_a = true,
                        .rows = c->taps,
                        .columns = p.blocks * c->plane,
                        .inner = c->outs,
                        .a = weight,
                        .b = p.turned,
                        .c = p.columns};
        LS_TRY(ls_math_gemm(c->math, c->dtype, &gemm));
        ENQUEUE(
            ls_kernel_col2im(stream, c->dtype, ls_lanes(), p.samples, &c->window, p.columns, (char *)dx + p.x_bytes));
    }
    return LS_OK;
}

/* Lanes beyond the batch are zeros in dy, and add nothing. */
static ls_rc im2col_backward_params(void *state, size_t batch, const void *x, const void *dy, void *dweight,
                                    void *dbias) {
    const im2col *c = state;
    cudaStream_t stream = ls_math_stream(c->math);
    for (size_t block = 0; block < blocks_of(batch); block += c->chunk) {
        part p = part_at(c, batch, block);
        LS_TRY(make_columns(c, &p, x));
        LS_TRY(turn(c, &p, dy));
        ls_gemm gemm = {.transpose_b = true,
                        .rows = c->outs,
                        .columns = c->taps,
                        .inner = p.blocks * c->plane,
                        .a = p.turned,
                        .b = p.columns,
                        .c = dweight,
                        .accumulate = block > 0};
        LS_TRY(ls_math_gemm(c->math, c->dtype, &gemm));
    }
    if (dbias != NULL) {
        ls_channels all = {.blocks = blocks_of(batch), .channels = c->outs, .plane = c->plane};
        ENQUEUE(ls_kernel_channel_sums(stream, c->dtype, &all, dy, dbias));
    }
    return LS_OK;
}

static void im2col_close(void *state) {
    free(state);
}

const ls_layer_engine ls_im2col_engine = {.open = im2col_open,
                                          .forward = im2col_forward,
                                          .backward_input = im2col_backward_input,
                                          .backward_params = im2col_backward_params,
                                          .close = im2col_close};
