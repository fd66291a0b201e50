/* The handles and the workspace of a device, and what computes here in words. */
#include "gpu/cuda/math.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

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
    LS_CUBLAS(cublasSetWorkspace(math->cublas, larger, LS_CUBLAS_BYTES));
    return LS_OK;
}

ls_rc ls_math_reserve_scratch(ls_math *math, size_t bytes) {
    return ls_math_reserve(math, LS_CUBLAS_BYTES + bytes);
}

void *ls_math_scratch(const ls_math *math) {
    return (char *)math->workspace + LS_CUBLAS_BYTES;
}

size_t ls_math_scratch_target(void) {
    return (size_t)256 << 20;
}

cudaStream_t ls_math_stream(const ls_math *math) {
    return math->stream;
}

bool ls_math_mode_is_exact(ls_math_mode mode) {
    return mode != LS_MATH_FAST;
}

/* Outside the fast mode gradients stay comparable with the oracle and the same from run to run: no TF32 anywhere (cuBLAS:
 * pedantic; cuDNN: FMA math for each convolution), and no algorithm that adds atomically. A workspace of our own makes cuBLAS
 * reproducible whatever other streams do (cuBLAS documentation, "Results Reproducibility"). */
static ls_rc set_up(ls_math *math) {
    bool fast = ls_math_get_mode() == LS_MATH_FAST;
    LS_TRY(ls_cudnn_attach(math));
    LS_CUBLAS(cublasLtCreate(&math->lt));
    LS_CUBLAS(cublasCreate(&math->cublas));
    LS_CUBLAS(cublasSetMathMode(math->cublas, fast ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_PEDANTIC_MATH));
    LS_CUBLAS(cublasSetAtomicsMode(math->cublas, fast ? CUBLAS_ATOMICS_ALLOWED : CUBLAS_ATOMICS_NOT_ALLOWED));
    LS_CUBLAS(cublasSetPointerMode(math->cublas, CUBLAS_POINTER_MODE_HOST));
    LS_CUBLAS(cublasSetStream(math->cublas, math->stream)); /* resets the workspace, so it comes before it */
    return ls_math_reserve(math, LS_CUBLAS_BYTES);
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
    if (math->lt != NULL) {
        (void)ls_cublas_check(cublasLtDestroy(math->lt), "cublasLtDestroy", __FILE__, __LINE__);
    }
    ls_cudnn_detach(math);
    (void)ls_cuda_check(cudaFree(math->workspace), "cudaFree(workspace)", __FILE__, __LINE__);
    free(math);
}

const char *ls_math_description(void) {
    static _Thread_local char text[2048];
    static const char *const modes[] = {[LS_MATH_EXACT] = "FMA and pedantic math",
                                        [LS_MATH_FAST] = "fastest, TF32 allowed",
                                        [LS_MATH_IM2COL] = "im2col and GEMM, pedantic math"};
    char cudnn[64], notes[1536];
    int cublas[3] = {0, 0, 0};
    static const libraryPropertyType part[3] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    for (size_t i = 0; i < 3; i++) {
        (void)ls_cublas_check(cublasGetProperty(part[i], &cublas[i]), "cublasGetProperty", __FILE__, __LINE__);
    }
    ls_cudnn_describe(cudnn, sizeof cudnn);
    ls_math_notes(notes, sizeof notes);
    (void)snprintf(text, sizeof text, "%s, cuBLAS %d.%d.%d; %s%s%s", cudnn, cublas[0], cublas[1], cublas[2],
                   modes[ls_math_get_mode()], notes[0] != '\0' ? ": " : "", notes);
    return text;
}
