/* What the files of this folder share: the state behind ls_math, and checked calls of cuDNN and cuBLAS. Nothing outside
 * gpu/cuda includes this. */
#ifndef LS_GPU_CUDA_MATH_H
#define LS_GPU_CUDA_MATH_H

#include <cublas_v2.h>
#include <cudnn.h>

#include "gpu/layer_math.h"

/* Everything on an ls_math runs on one stream, one after the other, so that cuDNN and cuBLAS share one workspace. */
struct ls_math {
    cudaStream_t stream;
    cudnnHandle_t cudnn;
    cublasHandle_t cublas;
    void *workspace;
    size_t workspace_bytes;
};

/* LS_CUDNN(call), LS_CUBLAS(call): as LS_CUDA of gpu/gpu.h. */
#define LS_CUDNN(call)  LS_TRY(ls_cudnn_check((call), #call, __FILE__, __LINE__))
#define LS_CUBLAS(call) LS_TRY(ls_cublas_check((call), #call, __FILE__, __LINE__))
ls_rc ls_cudnn_check(cudnnStatus_t status, const char *call, const char *file, int line);
ls_rc ls_cublas_check(cublasStatus_t status, const char *call, const char *file, int line);

/* Makes the workspace at least so large. It allocates only when it must grow, which planning sees to. */
ls_rc ls_math_reserve(ls_math *math, size_t bytes);

/* The forward algorithm of a convolution that was planned, for ls_math_description. */
void ls_math_note_forward(cudnnConvolutionFwdAlgo_t algorithm);

/* cuDNN and cuBLAS count in int: one line and LS_BAD_INPUT when `value`, described by `what`, does not fit. */
ls_rc ls_math_fits_int(size_t value, const char *what);

/* cuDNN reads alpha and beta in the type that it computes in: double for float64, float for float32. */
typedef struct ls_scalar {
    float single;
    double wide;
} ls_scalar;
static const ls_scalar ls_one = {1.0f, 1.0};
static const ls_scalar ls_zero = {0.0f, 0.0};

static inline const void *ls_scalar_of(const ls_scalar *scalar, ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? (const void *)&scalar->wide : (const void *)&scalar->single;
}

static inline cudnnDataType_t ls_dtype_cudnn(ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

#endif
