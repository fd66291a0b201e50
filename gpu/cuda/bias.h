/* Biases of convolution and linear layers, by cuDNN. Nothing outside gpu/cuda includes this. */
#ifndef LS_GPU_CUDA_BIAS_H
#define LS_GPU_CUDA_BIAS_H

#include "gpu/cuda/math.h"

/* y[n][c][h][w] += bias[c], where y_desc describes y and bias_desc is [1][channels][1][1]. */
ls_rc ls_bias_add(ls_math *math, ls_dtype dtype, cudnnTensorDescriptor_t bias_desc, const void *bias,
                  cudnnTensorDescriptor_t y_desc, void *y);

/* dbias[c] = the sum of dy[n][c][h][w] over n, h and w. */
ls_rc ls_bias_grad(ls_math *math, ls_dtype dtype, cudnnTensorDescriptor_t dy_desc, const void *dy,
                   cudnnTensorDescriptor_t bias_desc, void *dbias);

#endif
