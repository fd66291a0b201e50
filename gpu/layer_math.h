/* The math of the layers that have weights: convolution and linear, forward and backward, float32 and float64.
 * Each platform brings its own engine: gpu/vgpu/math (direct kernels on CPU threads), gpu/cuda (cuDNN and cuBLASLt); all have
 * gpu/im2col.c as a second one.
 *
 * Layout of activations, private to a platform: [ceil(N/L)][C][H][W][L] with L = ls_lanes(), sample n in block n/L, lane
 * n%L. L = 1 (cuda) is plain NCHW; L = 16 (vgpu) puts 16 samples side by side so that every operation vectorises over
 * them. Lanes at or beyond N hold finite values in activations and exact zeros in every gradient with respect to
 * activations, so sums over lanes need no mask. Weights, biases and their gradients are always in PyTorch's layout
 * (OIHW, [out][in]). All pointers are device pointers of the stream's device, activations aligned to 16 bytes; all calls are
 * asynchronous on the stream. */
#ifndef LS_GPU_LAYER_MATH_H
#define LS_GPU_LAYER_MATH_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"

/* L, the number of samples that lie side by side; a constant of the platform. */
size_t ls_lanes(void);

/* Elements to allocate for an activation of `batch` samples of `features` values: batch rounded up to L, times features. */
size_t ls_activation_count(size_t batch, size_t features);

/* How layers are computed in this process:
 *   exact   the platform's own engine as verification needs it: each value one plain sum of products, no reduced precision, the
 *           same bits in every run;
 *   fast    the same engine with the algorithms that were the fastest when measured at open, of whatever precision and order
 *           the libraries call float32 (TF32, transforms, atomic sums); on vgpu the same as exact;
 *   im2col  the second engine, exact as well. */
typedef enum ls_math_mode { LS_MATH_EXACT = 0, LS_MATH_FAST = 1, LS_MATH_IM2COL = 2 } ls_math_mode;

/* Before the first ls_math_open of the process; exact until then. */
void ls_math_set_mode(ls_math_mode mode);
ls_math_mode ls_math_get_mode(void);

const char *ls_math_mode_name(ls_math_mode mode);
/* False for an unknown name. */
bool ls_math_mode_find(const char *name, ls_math_mode *out);

/* Whether results in this mode lie within the bounds of verification on this platform. */
bool ls_math_mode_is_exact(ls_math_mode mode);

/* Library handles and the one workspace of a device; everything opened on it runs on its stream. */
typedef struct ls_math ls_math;

/* Opens on the current device. Owned by the caller, closed after everything opened on it. */
ls_rc ls_math_open(cudaStream_t stream, ls_math **out);
void ls_math_close(ls_math *math);

/* What computes here, for results and reports, in the mode of this process, with every algorithm chosen so far: "direct, AVX2".
 * Valid until the calling thread asks again. */
const char *ls_math_description(void);

typedef struct ls_conv_shape {
    size_t in_channels, in_height, in_width;
    size_t out_channels, kernel_height, kernel_width;
    size_t stride, padding; /* the same in both directions */
} ls_conv_shape;

static inline size_t ls_conv_out_height(const ls_conv_shape *s) {
    return (s->in_height + 2 * s->padding - s->kernel_height) / s->stride + 1;
}
static inline size_t ls_conv_out_width(const ls_conv_shape *s) {
    return (s->in_width + 2 * s->padding - s->kernel_width) / s->stride + 1;
}

/* What every platform refuses at open (sizes or stride of 0, a kernel that does not fit) and in a call (a batch above the
 * planned one): one line and LS_BAD_INPUT. gpu/layer_shape.c. */
ls_rc ls_conv_shape_check(const ls_conv_shape *shape);
ls_rc ls_linear_shape_check(size_t in_features, size_t out_features);
ls_rc ls_batch_check(const char *call, size_t batch, size_t max_batch);

/* A convolution planned once for its shape, dtype and largest batch (algorithms and workspace are chosen here; no call
 * below allocates or synchronises). bias may be NULL in forward, dbias in backward_params. Gradients are written, not
 * accumulated. batch <= max_batch. */
typedef struct ls_conv ls_conv;
ls_rc ls_conv_open(ls_math *math, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch, ls_conv **out);
ls_rc ls_conv_forward(ls_conv *conv, size_t batch, const void *x, const void *weight, const void *bias, void *y);
ls_rc ls_conv_backward_input(ls_conv *conv, size_t batch, const void *dy, const void *weight, void *dx);
ls_rc ls_conv_backward_params(ls_conv *conv, size_t batch, const void *x, const void *dy, void *dweight, void *dbias);
void ls_conv_close(ls_conv *conv);

/* A max-pooling behind a convolution, and perhaps a relu behind that, computed in the same pass where the engine can: the
 * convolution's own outputs and their gradients are then never in memory. Outputs are those of the separate kernels, bit for bit
 * (gpu/kernels/maxpool.cu, relu.cu); gradients are sums of the same products in an order of their own, of which those with a
 * zero may be left out or others with a zero be among them: whether an infinity or NaN that meets zeros alone spreads is not said. */
typedef struct ls_conv_pool {
    size_t kernel; /* and stride: windows lie side by side */
    bool relu;
    uint8_t *index; /* device memory for a byte an output value, written forward and read backward */
    const void *y;  /* with a relu: where forward's y will lie, read backward */
} ls_conv_pool;

/* Whether the engine of this process's mode computes a max-pooling of this kernel and stride in the same pass as a
 * convolution. */
bool ls_conv_pools(size_t kernel, size_t stride);

/* From now on y and dy of this convolution's calls are the pooling's (or the relu's). Before its first call, once, and where
 * ls_conv_pools says so; else one line and LS_BAD_INPUT. */
ls_rc ls_conv_attach(ls_conv *conv, const ls_conv_pool *pool);

/* y[n][o] = sum_i weight[o][i] * x[n][i] + bias[o]; the same rules. */
typedef struct ls_linear ls_linear;
ls_rc ls_linear_open(ls_math *math, size_t in_features, size_t out_features, ls_dtype dtype, size_t max_batch,
                     ls_linear **out);
ls_rc ls_linear_forward(ls_linear *linear, size_t batch, const void *x, const void *weight, const void *bias, void *y);
ls_rc ls_linear_backward_input(ls_linear *linear, size_t batch, const void *dy, const void *weight, void *dx);
ls_rc ls_linear_backward_params(ls_linear *linear, size_t batch, const void *x, const void *dy, void *dweight,
                                void *dbias);
void ls_linear_close(ls_linear *linear);

#endif
