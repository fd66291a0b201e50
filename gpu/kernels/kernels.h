/* Host launchers of the shared kernels: gpu/kernels/<operation>.cu, one operation a file, each compiled by nvcc (cuda)
 * and by g++ (vgpu, serial mode). Every launcher is asynchronous on `stream` and returns the launch's status.
 *
 * `lanes` is L of gpu/layer_math.h: an activation of `features` values a sample is [ceil(batch/L)][features][L]. All
 * pointers are device pointers; counts are elements. dtype is the type of every void pointer. */
#ifndef LS_GPU_KERNELS_KERNELS_H
#define LS_GPU_KERNELS_KERNELS_H

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_INPUT_MAX_CHANNELS = 16 };

/* Mean and standard deviation of inputs: channels 0: none (0 and 1); 1: the same for all; else feature f has those of
 * channel f/plane, at most LS_INPUT_MAX_CHANNELS. Given on the host and copied. */
typedef struct ls_input_scale {
    size_t channels;
    size_t plane; /* features a channel */
    float mean[LS_INPUT_MAX_CHANNELS];
    float std[LS_INPUT_MAX_CHANNELS];
} ls_input_scale;

/* input.cu: x = (pixel/255 - mean)/std computed in float32 exactly as ToTensor and Normalize do, then widened to dtype.
 * pixels: [batch][features] bytes, sample-major. Lanes >= batch get 0. input_values: the same without /255, from floats. */
cudaError_t ls_kernel_input(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t features,
                            const uint8_t *pixels, const ls_input_scale *scale, void *x);
cudaError_t ls_kernel_input_values(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t features,
                                   const float *values, const ls_input_scale *scale, void *x);

/* relu.cu: y = max(x, 0) with relu(NaN) = NaN; dx = y > 0 ? dy : 0, so that relu'(0) = 0. count elements; in place allowed. */
cudaError_t ls_kernel_relu_forward(cudaStream_t stream, ls_dtype dtype, size_t count, const void *x, void *y);
cudaError_t ls_kernel_relu_backward(cudaStream_t stream, ls_dtype dtype, size_t count, const void *y, const void *dy,
                                    void *dx);

/* maxpool.cu: square window `kernel`, stride `stride`, no padding; output (H-kernel)/stride+1. index: one byte per output
 * value in the output's layout, row*kernel+column of the maximum in its window; the first maximum wins; NaN wins as in
 * PyTorch. kernel <= 15. backward writes all of dx (zero where no window chose the input). */
cudaError_t ls_kernel_maxpool_forward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t channels,
                                      size_t height, size_t width, size_t kernel, size_t pool_stride, const void *x,
                                      void *y, uint8_t *index);
cudaError_t ls_kernel_maxpool_backward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t channels,
                                       size_t height, size_t width, size_t kernel, size_t pool_stride, const void *dy,
                                       const uint8_t *index, void *dx);

/* log_softmax.cu: over `classes` features of each sample; backward dx = dy - exp(y)*sum(dy). */
cudaError_t ls_kernel_log_softmax_forward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch,
                                          size_t classes, const void *x, void *y);
cudaError_t ls_kernel_log_softmax_backward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch,
                                           size_t classes, const void *y, const void *dy, void *dx);

/* cross_entropy.cu: PyTorch's CrossEntropyLoss on logits (log-softmax inside). losses[n] (dtype, batch elements): the loss
 * of each sample. dlogits (may be NULL): (softmax - onehot)/denominator, zero in lanes >= batch. */
cudaError_t ls_kernel_cross_entropy(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t classes,
                                    const void *logits, const int32_t *labels, double denominator, void *losses,
                                    void *dlogits);

/* reduce.cu: *sum (one double) = sum of count values of dtype, added in double in a fixed order. */
cudaError_t ls_kernel_sum(cudaStream_t stream, ls_dtype dtype, size_t count, const void *values, double *sum);

/* accuracy.cu: correct[n] = 1 if the first largest of `classes` logits of sample n is labels[n], else 0. */
cudaError_t ls_kernel_accuracy(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t classes,
                               const void *logits, const int32_t *labels, uint8_t *correct);

/* sgd.cu: one launch over a flat buffer, PyTorch's SGD: g += weight_decay*w; buf = first ? g : momentum*buf + g;
 * w -= lr*(momentum != 0 ? buf : g). velocity may be NULL when momentum is 0. Hyper-parameters are rounded to dtype. */
cudaError_t ls_kernel_sgd(cudaStream_t stream, ls_dtype dtype, size_t count, void *param, const void *grad,
                          void *velocity, double lr, double momentum, double weight_decay, int first);

/* elementwise.cu: y *= factor (factor rounded to dtype); y += x. */
cudaError_t ls_kernel_scale(cudaStream_t stream, ls_dtype dtype, size_t count, double factor, void *y);
cudaError_t ls_kernel_add(cudaStream_t stream, ls_dtype dtype, size_t count, const void *x, void *y);

/* layout.cu: between the platform's layout and sample-major [batch][features], for gathers and for what a user sees.
 * element_size: 1, 4 or 8 bytes. to_lanes writes zeros in lanes >= batch. */
cudaError_t ls_kernel_from_lanes(cudaStream_t stream, size_t element_size, size_t lanes, size_t batch, size_t features,
                                 const void *from, void *to);
cudaError_t ls_kernel_to_lanes(cudaStream_t stream, size_t element_size, size_t lanes, size_t batch, size_t features,
                               const void *from, void *to);

/* sign.cu: positive[i] = x[i] > 0, a byte each: the decisions of a ReLU. */
cudaError_t ls_kernel_positive(cudaStream_t stream, ls_dtype dtype, size_t count, const void *x, uint8_t *positive);

#ifdef __cplusplus
}
#endif
#endif
