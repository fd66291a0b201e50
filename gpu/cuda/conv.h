/* A convolution in cuDNN's words, shared by conv.c and conv_fastest.c. Nothing outside gpu/cuda includes this. */
#ifndef LS_GPU_CUDA_CONV_H
#define LS_GPU_CUDA_CONV_H

#include <cudnn.h>

#include "gpu/cuda/math.h"

/* LS_CUDNN(call): as LS_CUDA of gpu/gpu.h. */
#define LS_CUDNN(call) LS_TRY(ls_cudnn_check((call), #call, __FILE__, __LINE__))
ls_rc ls_cudnn_check(cudnnStatus_t status, const char *call, const char *file, int line);

enum { LS_CONV_FORWARD, LS_CONV_DATA, LS_CONV_FILTER, LS_CONV_PASSES };

typedef struct ls_cudnn_conv {
    ls_math *math;
    ls_conv_shape shape;
    ls_dtype dtype;
    size_t max_batch;
    size_t batch; /* that the descriptors are set for */
    cudnnTensorDescriptor_t x_desc, y_desc, bias_desc;
    cudnnFilterDescriptor_t weight_desc;
    cudnnConvolutionDescriptor_t conv_desc[LS_CONV_PASSES]; /* they differ in their math */
    int algorithm[LS_CONV_PASSES];                          /* cudnnConvolution{Fwd,BwdData,BwdFilter}Algo_t */
} ls_cudnn_conv;

/* Chooses the fastest algorithm of each pass by running all of them on the largest batch, whose descriptors are set, with the
 * math that it was the fastest with. Allocates and synchronises. */
ls_rc ls_cudnn_conv_fastest(ls_cudnn_conv *conv);

#endif
