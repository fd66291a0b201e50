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

/* The numbers that change from one training step to the next. The arguments of a captured launch are fixed, so that a graph of a
 * step reads them from device memory: a kernel that is given a pointer to them (`live`) takes them from there, and else from its
 * own arguments. The bits are the same either way. */
enum { LS_STEP_SCALARS = 3 };
typedef struct ls_step_values {
    double scalar[LS_STEP_SCALARS]; /* of the optimizer, see ls_sgd, ls_adam and ls_rmsprop */
    uint64_t mask_step;             /* ls_dropout_key.step */
} ls_step_values;

/* step_values.cu: *to (device) = *values, which is copied at the call. */
cudaError_t ls_kernel_step_values(cudaStream_t stream, const ls_step_values *values, ls_step_values *to);

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

/* avgpool.cu: the mean of each square window, as maxpool without an index and with a kernel of any size. */
cudaError_t ls_kernel_avgpool_forward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t channels,
                                      size_t height, size_t width, size_t kernel, size_t pool_stride, const void *x,
                                      void *y);
cudaError_t ls_kernel_avgpool_backward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t channels,
                                       size_t height, size_t width, size_t kernel, size_t pool_stride, const void *dy,
                                       void *dx);

/* The windows of a convolution over [channels][height][width]. */
typedef struct ls_window {
    size_t channels, height, width;
    size_t kernel_height, kernel_width;
    size_t stride, padding; /* the same in both directions */
} ls_window;

/* im2col.cu: columns[(c, ky, kx)][block][oy][ox][lane] = the input value that window (oy, ox) has at (c, ky, kx), zero in the
 * padding; blocks = ceil(batch/lanes), oy < (height + 2*padding - kernel_height)/stride + 1, ox alike. Padded lanes are lanes
 * like the others. col2im: each value of dx is the sum of those columns that im2col makes of it, in the order of ky, kx. */
cudaError_t ls_kernel_im2col(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, const ls_window *window,
                             const void *x, void *columns);
cudaError_t ls_kernel_col2im(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, const ls_window *window,
                             const void *columns, void *dx);

/* An activation by channels: [blocks][channels][plane], plane = positions of a channel times lanes. */
typedef struct ls_channels {
    size_t blocks, channels, plane;
} ls_channels;

/* channels.cu: first: [blocks][channels][plane] to [channels][blocks][plane]; second: back, plus bias[channel] (NULL: none);
 * bias: y[b][c][p] += bias[c]; sums: sums[c] = sum of values[b][c][p], added in double and rounded once. */
cudaError_t ls_kernel_channels_first(cudaStream_t stream, ls_dtype dtype, const ls_channels *shape, const void *from,
                                     void *to);
cudaError_t ls_kernel_channels_second(cudaStream_t stream, ls_dtype dtype, const ls_channels *shape, const void *from,
                                      const void *bias, void *to);
cudaError_t ls_kernel_bias(cudaStream_t stream, ls_dtype dtype, const ls_channels *shape, const void *bias, void *y);
cudaError_t ls_kernel_channel_sums(cudaStream_t stream, ls_dtype dtype, const ls_channels *shape, const void *values,
                                   void *sums);

/* What names the masks of a dropout: the same values give the same mask, whatever the layout, platform and dtype. */
typedef struct ls_dropout_key {
    uint64_t seed;
    uint32_t step;
    uint32_t stream;            /* of the rank and the layer */
    const ls_step_values *live; /* NULL, or device memory with the step */
} ls_dropout_key;

/* dropout.cu: y = x/(1-p) where the mask keeps it, else 0; keep: one byte an output value in the output's layout, 1 or 0. A
 * value is kept with probability 1-p, by Philox4x32-10 of its sample and feature (features below 2^34). 0 <= p < 1; 1/(1-p)
 * is rounded to dtype. In place allowed. backward: dx = keep ? dy/(1-p) : 0. */
cudaError_t ls_kernel_dropout_forward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t features,
                                      double p, ls_dropout_key key, const void *x, void *y, uint8_t *keep);
cudaError_t ls_kernel_dropout_backward(cudaStream_t stream, ls_dtype dtype, size_t count, double p, const uint8_t *keep,
                                       const void *dy, void *dx);

/* An activation as batchnorm sees it. */
typedef struct ls_batchnorm_shape {
    size_t lanes, batch, channels, plane; /* plane: positions of a channel, height*width */
} ls_batchnorm_shape;

/* batchnorm.cu. Statistics of a channel go over the samples of the batch (padded lanes are left out) and its positions, and
 * are added in double whatever the dtype.
 *
 * statistics: mean[c] and invstd[c] = 1/sqrt(biased variance + eps), doubles. With running_mean not NULL also PyTorch's
 * update: running = (1-momentum)*running + momentum*value with the unbiased variance (batch*plane at least 2), computed in
 * double and rounded to dtype; *tracked += 1.
 * running: the same two of the running statistics.
 * forward: y = (x - mean)*invstd*weight + bias, computed in double and rounded once; lanes >= batch get 0.
 * backward_params: dbias = sums[2c] = sum(dy), dweight = sums[2c+1] = sum(dy*xhat) with xhat = (x - mean)*invstd.
 * backward_input: dx = weight*invstd*(dy - sums[2c]/n - xhat*sums[2c+1]/n), n = batch*plane; lanes >= batch get 0. */
cudaError_t ls_kernel_batchnorm_statistics(cudaStream_t stream, ls_dtype dtype, const ls_batchnorm_shape *shape,
                                           double eps, double momentum, const void *x, double *mean, double *invstd,
                                           void *running_mean, void *running_var, int64_t *tracked);
cudaError_t ls_kernel_batchnorm_running(cudaStream_t stream, ls_dtype dtype, size_t channels, double eps,
                                        const void *running_mean, const void *running_var, double *mean,
                                        double *invstd);
cudaError_t ls_kernel_batchnorm_forward(cudaStream_t stream, ls_dtype dtype, const ls_batchnorm_shape *shape,
                                        const double *mean, const double *invstd, const void *weight, const void *bias,
                                        const void *x, void *y);
cudaError_t ls_kernel_batchnorm_backward_params(cudaStream_t stream, ls_dtype dtype, const ls_batchnorm_shape *shape,
                                                const double *mean, const double *invstd, const void *x, const void *dy,
                                                double *sums, void *dweight, void *dbias);
cudaError_t ls_kernel_batchnorm_backward_input(cudaStream_t stream, ls_dtype dtype, const ls_batchnorm_shape *shape,
                                               const double *mean, const double *invstd, const double *sums,
                                               const void *weight, const void *x, const void *dy, void *dx);

/* log_softmax.cu: over `classes` features of each sample; backward dx = dy - exp(y)*sum(dy). */
cudaError_t ls_kernel_log_softmax_forward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch,
                                          size_t classes, const void *x, void *y);
cudaError_t ls_kernel_log_softmax_backward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch,
                                           size_t classes, const void *y, const void *dy, void *dx);

/* cross_entropy.cu: PyTorch's CrossEntropyLoss on logits (log-softmax inside). losses[n] (dtype, batch elements): the loss
 * of each sample, (1 - smoothing)*NLL + smoothing/classes*sum_c(-log p_c). dlogits (may be NULL): (softmax - q)/denominator
 * with q = (1 - smoothing)*onehot + smoothing/classes, zero in lanes >= batch. */
cudaError_t ls_kernel_cross_entropy(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t classes,
                                    const void *logits, const int32_t *labels, double smoothing, double denominator,
                                    void *losses, void *dlogits);

/* mse.cu: PyTorch's MSELoss over `values` outputs a sample. targets: [batch][values] float32, sample-major, or NULL: the
 * one-hot vector of the label. losses[n] (dtype, batch elements): the sum over the outputs of (y - target)^2. dy (may be
 * NULL): 2*(y - target)/denominator, zero in lanes >= batch. */
cudaError_t ls_kernel_mse(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t values, const void *y,
                          const int32_t *labels, const float *targets, double denominator, void *losses, void *dy);
/* From that gradient to that of sqrt(sum/denominator): dy *= 1/(2*sqrt(sum/denominator)); *sum (device): of the losses. As
 * in PyTorch not-a-number where the root is 0. */
cudaError_t ls_kernel_rmse(cudaStream_t stream, ls_dtype dtype, size_t count, const double *sum, double denominator,
                           void *dy);

/* reduce.cu: *sum (one double) = sum of count values of dtype, added in double in a fixed order. */
cudaError_t ls_kernel_sum(cudaStream_t stream, ls_dtype dtype, size_t count, const void *values, double *sum);

/* accuracy.cu: correct[n] = 1 if the first largest of `classes` logits of sample n is labels[n], else 0. */
cudaError_t ls_kernel_accuracy(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t classes,
                               const void *logits, const int32_t *labels, uint8_t *correct);

/* The optimizers: one launch over a flat buffer each, to the formulas and in the order of operations of PyTorch's
 * single-tensor path. Hyper-parameters are doubles; what the formulas make of them alone (1 - beta, bias corrections) is
 * computed in double and then rounded to dtype. */

/* sgd.cu: g = grad (negated to maximise) + weight_decay*w; buf = first ? g : momentum*buf + (1 - dampening)*g;
 * w -= lr*(momentum == 0 ? g : nesterov ? g + momentum*buf : buf). velocity may be NULL when momentum is 0. */
typedef struct ls_sgd {
    double lr, momentum, dampening, weight_decay;
    int nesterov, maximize;
    int first;                  /* the first step: velocity is written, not read */
    const ls_step_values *live; /* NULL, or device memory with lr: scalar[0] */
} ls_sgd;
cudaError_t ls_kernel_sgd(cudaStream_t stream, ls_dtype dtype, size_t count, void *param, const void *grad,
                          void *velocity, const ls_sgd *options);

/* adam.cu: decoupled (AdamW): w *= 1 - lr*weight_decay, else (Adam): g += weight_decay*w; m = beta1*m + (1 - beta1)*g;
 * v = beta2*v + (1 - beta2)*g^2; w -= lr/(1 - beta1^step) * m/(sqrt(v)/sqrt(1 - beta2^step) + eps); with amsgrad the largest
 * v so far in place of v. max_exp_avg_sq may be NULL without amsgrad. The buffers start as zeros. */
typedef struct ls_adam {
    double lr, beta1, beta2, eps, weight_decay;
    int decoupled, amsgrad, maximize;
    uint64_t step;              /* 1 for the first */
    const ls_step_values *live; /* NULL, or device memory with ls_adam_live of lr and step */
} ls_adam;
/* 1 - lr*weight_decay where decoupled, else 1; sqrt(1 - beta2^step); -lr/(1 - beta1^step). */
void ls_adam_live(const ls_adam *options, double scalar[LS_STEP_SCALARS]);
cudaError_t ls_kernel_adam(cudaStream_t stream, ls_dtype dtype, size_t count, void *param, const void *grad,
                           void *exp_avg, void *exp_avg_sq, void *max_exp_avg_sq, const ls_adam *options);

/* rmsprop.cu: g += weight_decay*w; v = alpha*v + (1 - alpha)*g^2; centered: a = alpha*a + (1 - alpha)*g and v - a^2 in place
 * of v; r = g/(sqrt(v) + eps); momentum: buf = momentum*buf + r in place of r; w -= lr*r. grad_avg may be NULL unless
 * centered, momentum_buffer when momentum is 0. The buffers start as zeros. */
typedef struct ls_rmsprop {
    double lr, alpha, eps, weight_decay, momentum;
    int centered, maximize;
    const ls_step_values *live; /* NULL, or device memory with lr: scalar[0] */
} ls_rmsprop;
cudaError_t ls_kernel_rmsprop(cudaStream_t stream, ls_dtype dtype, size_t count, void *param, const void *grad,
                              void *square_avg, void *grad_avg, void *momentum_buffer, const ls_rmsprop *options);

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
