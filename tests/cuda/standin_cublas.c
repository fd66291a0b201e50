/* The stand-in for cuBLAS, see standin.h: column-major products in loops. */
#include <cublas_v2.h>

#include "tests/cuda/standin.h"

struct cublasContext {
    cublasMath_t math;
    size_t workspace_bytes;
};

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    *handle = calloc(1, sizeof **handle);
    return *handle == NULL ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
    (void)handle;
    REQUIRE(standin.fast || mode == CUBLAS_ATOMICS_NOT_ALLOWED);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    (void)handle;
    REQUIRE(mode == CUBLAS_POINTER_MODE_HOST);
    return CUBLAS_STATUS_SUCCESS;
}

/* "cublasSetStream() unconditionally resets the cuBLAS library workspace back to the default workspace pool." */
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    (void)stream;
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
    REQUIRE(workspace != NULL);
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value) {
    *value = type == MAJOR_VERSION ? 13 : 0;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "failure";
}

/* What both precisions require: a workspace of its own, no TF32, leading dimensions that hold a column. */
static void require_gemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                         int lda, int ldb, int ldc) {
    REQUIRE((standin.fast || handle->math == CUBLAS_PEDANTIC_MATH) && handle->workspace_bytes == 32u * 1024 * 1024);
    REQUIRE(m > 0 && n > 0 && k > 0);
    REQUIRE(lda >= (ta == CUBLAS_OP_N ? m : k) && ldb >= (tb == CUBLAS_OP_N ? k : n) && ldc >= m);
}

/* Element (row, column) of op(a), column-major. */
static size_t at(cublasOperation_t op, int row, int column, int ld) {
    return op == CUBLAS_OP_N ? (size_t)column * (size_t)ld + (size_t)row : (size_t)row * (size_t)ld + (size_t)column;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                              const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta,
                              float *c, int ldc) {
    require_gemm(handle, ta, tb, m, n, k, lda, ldb, ldc);
    REQUIRE(*alpha == 1 && (*beta == 0 || *beta == 1));
    for (int row = 0; row < m; row++) {
        for (int column = 0; column < n; column++) {
            double sum = *beta == 0 ? 0 : (double)c[at(CUBLAS_OP_N, row, column, ldc)];
            for (int i = 0; i < k; i++) {
                sum += (double)a[at(ta, row, i, lda)] * (double)b[at(tb, i, column, ldb)];
            }
            c[at(CUBLAS_OP_N, row, column, ldc)] = (float)sum;
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                              const double *alpha, const double *a, int lda, const double *b, int ldb,
                              const double *beta, double *c, int ldc) {
    require_gemm(handle, ta, tb, m, n, k, lda, ldb, ldc);
    REQUIRE(*alpha == 1 && (*beta == 0 || *beta == 1));
    for (int row = 0; row < m; row++) {
        for (int column = 0; column < n; column++) {
            double sum = *beta == 0 ? 0 : (double)c[at(CUBLAS_OP_N, row, column, ldc)];
            for (int i = 0; i < k; i++) {
                sum += a[at(ta, row, i, lda)] * b[at(tb, i, column, ldb)];
            }
            c[at(CUBLAS_OP_N, row, column, ldc)] = sum;
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}
