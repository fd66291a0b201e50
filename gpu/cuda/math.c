/* The handles and the workspace of a device, and what computes here in words. */
#include "gpu/cuda/math.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* cuBLAS asks for 32 MiB from compute capability 9.0 on, and 4 MiB below (cuBLAS documentation, cublasSetWorkspace). */
enum { WORKSPACE_AT_OPEN = 32 * 1024 * 1024 };

ls_rc ls_cudnn_check(cudnnStatus_t status, const char *call, const char *file, int line) {
    if (status == CUDNN_STATUS_SUCCESS) {
        return LS_OK;
    }
    return ls_fail(LS_DEVICE_FAILED, "%s:%d: %s: %s (cuDNN status %d)", file, line, call, cudnnGetErrorString(status),
                   (int)status);
}

ls_rc ls_cublas_check(cublasStatus_t status, const char *call, const char *file, int line) {
    if (status == CUBLAS_STATUS_SUCCESS) {
        return LS_OK;
    }
    return ls_fail(LS_DEVICE_FAILED, "%s:%d: %s: %s (cuBLAS status %d)", file, line, call,
                   cublasGetStatusString(status), (int)status);
}

ls_rc ls_math_fits_int(size_t value, const char *what) {
    if (value > INT_MAX) {
        return ls_fail(LS_BAD_INPUT, "%s is %zu, and cuDNN and cuBLAS take at most %d; use a smaller batch", what,
                       value, INT_MAX);
    }
    return LS_OK;
}

size_t ls_lanes(void) {
    return 1;
}

size_t ls_activation_count(size_t batch, size_t features) {
    return batch * features;
}

ls_rc ls_math_reserve(ls_math *math, size_t bytes) {
    if (bytes <= math->workspace_bytes) {
        return LS_OK;
    }
    void *larger = NULL;
    LS_CUDA(cudaMalloc(&larger, bytes));
    /* cudaFree waits for the device, so nothing still uses the old one. */
    ls_rc rc = ls_cuda_check(cudaFree(math->workspace), "cudaFree(workspace)", __FILE__, __LINE__);
    math->workspace = larger;
    math->workspace_bytes = bytes;
    LS_TRY(rc);
    LS_CUBLAS(cublasSetWorkspace(math->cublas, larger, bytes));
    return LS_OK;
}

/* Two modes keep gradients comparable with the oracle and the same from run to run: no TF32 anywhere (cuBLAS: pedantic;
 * cuDNN: FMA math for each convolution), and no algorithm that adds atomically. A workspace of our own makes cuBLAS
 * reproducible whatever other streams do (cuBLAS documentation, "Results Reproducibility"). */
static ls_rc set_up(ls_math *math) {
    LS_CUDNN(cudnnCreate(&math->cudnn));
    LS_CUDNN(cudnnSetStream(math->cudnn, math->stream));
    LS_CUBLAS(cublasCreate(&math->cublas));
    LS_CUBLAS(cublasSetMathMode(math->cublas, CUBLAS_PEDANTIC_MATH));
    LS_CUBLAS(cublasSetAtomicsMode(math->cublas, CUBLAS_ATOMICS_NOT_ALLOWED));
    LS_CUBLAS(cublasSetPointerMode(math->cublas, CUBLAS_POINTER_MODE_HOST));
    LS_CUBLAS(cublasSetStream(math->cublas, math->stream)); /* resets the workspace, so it comes before it */
    return ls_math_reserve(math, WORKSPACE_AT_OPEN);
}

ls_rc ls_math_open(cudaStream_t stream, ls_math **out) {
    *out = NULL;
    ls_math *math = ls_calloc(1, sizeof *math, "layer math");
    if (math == NULL) {
        return LS_DEVICE_FAILED;
    }
    math->stream = stream;
    ls_rc rc = set_up(math);
    if (rc != LS_OK) {
        ls_math_close(math);
        return rc;
    }
    *out = math;
    return LS_OK;
}

void ls_math_close(ls_math *math) {
    if (math == NULL) {
        return;
    }
    if (math->cublas != NULL) {
        (void)ls_cublas_check(cublasDestroy(math->cublas), "cublasDestroy", __FILE__, __LINE__);
    }
    if (math->cudnn != NULL) {
        (void)ls_cudnn_check(cudnnDestroy(math->cudnn), "cudnnDestroy", __FILE__, __LINE__);
    }
    (void)ls_cuda_check(cudaFree(math->workspace), "cudaFree(workspace)", __FILE__, __LINE__);
    free(math);
}

/* Which forward algorithms were planned: bit 0 implicit GEMM, bit 1 implicit precomputed GEMM. */
static atomic_uint forward_planned;
static char descriptions[4][256];
static pthread_once_t descriptions_once = PTHREAD_ONCE_INIT;

void ls_math_note_forward(cudnnConvolutionFwdAlgo_t algorithm) {
    atomic_fetch_or(&forward_planned, algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ? 2u : 1u);
}

static void write_descriptions(void) {
    static const char *const forward[4] = {"none planned", "implicit GEMM", "implicit precomputed GEMM",
                                           "implicit GEMM and implicit precomputed GEMM"};
    size_t cudnn = cudnnGetVersion(); /* major*10000 + minor*100 + patch */
    int cublas[3] = {0, 0, 0};
    static const libraryPropertyType part[3] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    for (size_t i = 0; i < 3; i++) {
        (void)ls_cublas_check(cublasGetProperty(part[i], &cublas[i]), "cublasGetProperty", __FILE__, __LINE__);
    }
    for (size_t mask = 0; mask < 4; mask++) {
        (void)snprintf(descriptions[mask], sizeof descriptions[mask],
                       "cuDNN %zu.%zu.%zu (FMA; forward %s, backward data 1, backward filter 1), "
                       "cuBLAS %d.%d.%d (pedantic)",
                       cudnn / 10000, cudnn / 100 % 100, cudnn % 100, forward[mask], cublas[0], cublas[1], cublas[2]);
    }
}

const char *ls_math_description(void) {
    if (pthread_once(&descriptions_once, write_descriptions) != 0) {
        return "cuDNN, cuBLAS";
    }
    return descriptions[atomic_load(&forward_planned)];
}
