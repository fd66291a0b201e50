/* What layer_math.c asks of a platform, and what im2col.c builds on. An engine computes a convolution; a linear layer is a
 * 1 x 1 convolution of a 1 x 1 image, for engines too. Nothing outside gpu/ includes this. */
#ifndef LS_GPU_LAYER_ENGINE_H
#define LS_GPU_LAYER_ENGINE_H

#include "gpu/layer_math.h"

/* The calls of layer_math.h for shapes and batches that have been checked; batch is at least 1. open may leave *state NULL and
 * return LS_OK: it does not take this shape, and the im2col engine does. */
typedef struct ls_layer_engine {
    ls_rc (*open)(ls_math *math, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch, void **state);
    ls_rc (*forward)(void *state, size_t batch, const void *x, const void *weight, const void *bias, void *y);
    ls_rc (*backward_input)(void *state, size_t batch, const void *dy, const void *weight, void *dx);
    ls_rc (*backward_params)(void *state, size_t batch, const void *x, const void *dy, void *dweight, void *dbias);
    void (*close)(void *state);
    /* ls_conv_pools and ls_conv_attach. Both NULL: the engine computes no pooling in the same pass. One that does takes every
     * shape, for the layers are planned by what it says before they are opened. */
    bool (*pools)(size_t kernel, size_t stride);
    ls_rc (*attach)(void *state, const ls_conv_pool *pool);
} ls_layer_engine;

/* The platform's own engines; NULL: built without. */
const ls_layer_engine *ls_platform_conv_engine(void);
const ls_layer_engine *ls_platform_linear_engine(void);

/* The second engine, of every platform: the kernels of im2col.cu and ls_math_gemm. gpu/im2col.c. */
extern const ls_layer_engine ls_im2col_engine;

/* c = op(a) * op(b), plus c itself to accumulate. All three are row-major without gaps; c is rows x columns, and `inner` products
 * are summed for each of its elements. */
typedef struct ls_gemm {
    bool transpose_a, transpose_b; /* a is stored inner x rows, b columns x inner */
    size_t rows, columns, inner;   /* at least 1 each */
    const void *a, *b;
    void *c;
    bool accumulate;
} ls_gemm;

/* Asynchronous on the stream of math. Each platform's own. */
ls_rc ls_math_gemm(ls_math *math, ls_dtype dtype, const ls_gemm *gemm);

/* Device memory that all layers of math share, at least `bytes` after reserve; it may move with each reserve, which allocates
 * and so belongs to planning. */
ls_rc ls_math_reserve_scratch(ls_math *math, size_t bytes);
void *ls_math_scratch(const ls_math *math);

cudaStream_t ls_math_stream(const ls_math *math);

/* Most bytes of scratch that the im2col engine plans, unless one block of samples needs more. */
size_t ls_math_scratch_target(void);

#endif
