/* Products of matrices for the im2col engine, by cuBLAS. cuBLAS is column-major, so a row-major matrix is its transpose there,
 * and c = a*b is computed as c^T = b^T * a^T. */
#include "gpu/cuda/math.h"

ls_rc ls_math_gemm(ls_math *math, ls_dtype dtype, const ls_gemm *g) {
    LS_TRY(ls_math_fits_int(g->rows, "the rows of a matrix"));
    LS_TRY(ls_math_fits_int(g->columns, "the columns of a matrix"));
    LS_TRY(ls_math_fits_int(g->inner, "the terms of a product"));
    cublasOperation_t op_b = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_a = g->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int m = (int)g->columns;
    int n = (int)g->rows;
    int k = (int)g->inner;
    int ldb = g->transpose_b ? k : m;
    int lda = g->transpose_a ? n : k;
    if (dtype == LS_FLOAT64) {
        const double beta = g->accumulate ? 1.0 : 0.0;
        LS_CUBLAS(cublasDgemm(math->cublas, op_b, op_a, m, n, k, &ls_one.wide, g->b, ldb, g->a, lda, &beta, g->c, m));
    } else {
        const float beta = g->accumulate ? 1.0f : 0.0f;
        LS_CUBLAS(cublasSgemm(math->cublas, op_b, op_a, m, n, k, &ls_one.single, g->b, ldb, g->a, lda, &beta, g->c, m));
    }
    return LS_OK;
}
