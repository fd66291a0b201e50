/* Linear layers by cuBLAS. cuBLAS is column-major, so a row-major [rows][columns] matrix is its columns x rows matrix:
 * x is in*batch, y and dy out*batch, weight in*out. */
#include "gpu/cuda/bias.h"
#include "gpu/cuda/math.h"

#include <stdlib.h>

struct ls_linear {
    ls_math *math;
    size_t in, out;
    ls_dtype dtype;
    size_t max_batch;
    size_t batch; /* that y_desc is set for */
    cudnnTensorDescriptor_t y_desc, bias_desc;
};

/* c = op(a) * op(b), column-major, c is rows x columns, `inner` products summed. */
typedef struct gemm {
    cublasOperation_t op_a, op_b;
    size_t rows, columns, inner;
    const void *a, *b;
    size_t lda, ldb;
    void *c;
} gemm;

static ls_rc run_gemm(const ls_linear *linear, const gemm *g) {
    cublasHandle_t cublas = linear->math->cublas;
    if (linear->dtype == LS_FLOAT64) {
        LS_CUBLAS(cublasDgemm(cublas, g->op_a, g->op_b, (int)g->rows, (int)g->columns, (int)g->inner, &ls_one.wide,
                              g->a, (int)g->lda, g->b, (int)g->ldb, &ls_zero.wide, g->c, (int)g->rows));
    } else {
        LS_CUBLAS(cublasSgemm(cublas, g->op_a, g->op_b, (int)g->rows, (int)g->columns, (int)g->inner, &ls_one.single,
                              g->a, (int)g->lda, g->b, (int)g->ldb, &ls_zero.single, g->c, (int)g->rows));
    }
    return LS_OK;
}

static ls_rc set_batch(ls_linear *linear, const char *call, size_t batch) {
    LS_TRY(ls_batch_check(call, batch, linear->max_batch));
    if (batch == linear->batch) {
        return LS_OK;
    }
    LS_CUDNN(cudnnSetTensor4dDescriptor(linear->y_desc, CUDNN_TENSOR_NCHW, ls_dtype_cudnn(linear->dtype), (int)batch,
                                        (int)linear->out, 1, 1));
    linear->batch = batch;
    return LS_OK;
}

static ls_rc plan(ls_linear *linear) {
    LS_CUDNN(cudnnCreateTensorDescriptor(&linear->y_desc));
    LS_CUDNN(cudnnCreateTensorDescriptor(&linear->bias_desc));
    LS_CUDNN(cudnnSetTensor4dDescriptor(linear->bias_desc, CUDNN_TENSOR_NCHW, ls_dtype_cudnn(linear->dtype), 1,
                                        (int)linear->out, 1, 1));
    return set_batch(linear, "linear", linear->max_batch);
}

ls_rc ls_linear_open(ls_math *math, size_t in_features, size_t out_features, ls_dtype dtype, size_t max_batch,
                     ls_linear **out) {
    *out = NULL;
    LS_TRY(ls_linear_shape_check(in_features, out_features));
    LS_TRY(ls_math_fits_int(max_batch * in_features, "the input of a linear layer"));
    LS_TRY(ls_math_fits_int(max_batch * out_features, "the output of a linear layer"));
    LS_TRY(ls_math_fits_int(in_features * out_features, "the weight of a linear layer"));
    ls_linear *linear = ls_calloc(1, sizeof *linear, "linear layer");
    if (linear == NULL) {
        return LS_DEVICE_FAILED;
    }
    linear->math = math;
    linear->in = in_features;
    linear->out = out_features;
    linear->dtype = dtype;
    linear->max_batch = max_batch > 0 ? max_batch : 1;
    ls_rc rc = plan(linear);
    if (rc != LS_OK) {
        ls_linear_close(linear);
        return rc;
    }
    *out = linear;
    return LS_OK;
}

/* y (out x batch) = weight^T (out x in) * x (in x batch) */
ls_rc ls_linear_forward(ls_linear *linear, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    if (batch == 0) {
        return LS_OK;
    }
    LS_TRY(set_batch(linear, "ls_linear_forward", batch));
    gemm product = {CUBLAS_OP_T, CUBLAS_OP_N, linear->out, batch, linear->in, weight, x, linear->in, linear->in, y};
    LS_TRY(run_gemm(linear, &product));
    return bias == NULL ? LS_OK : ls_bias_add(linear->math, linear->dtype, linear->bias_desc, bias, linear->y_desc, y);
}

/* dx (in x batch) = weight (in x out) * dy (out x batch) */
ls_rc ls_linear_backward_input(ls_linear *linear, size_t batch, const void *dy, const void *weight, void *dx) {
    if (batch == 0) {
        return LS_OK;
    }
    LS_TRY(set_batch(linear, "ls_linear_backward_input", batch));
    gemm product = {CUBLAS_OP_N, CUBLAS_OP_N, linear->in, batch, linear->out, weight, dy, linear->in, linear->out, dx};
    return run_gemm(linear, &product);
}

/* dweight (in x out) = x (in x batch) * dy^T (batch x out). Without samples the sums are empty. */
ls_rc ls_linear_backward_params(ls_linear *linear, size_t batch, const void *x, const void *dy, void *dweight,
                                void *dbias) {
    if (batch == 0) {
        size_t element = ls_dtype_size(linear->dtype);
        LS_CUDA(cudaMemsetAsync(dweight, 0, linear->in * linear->out * element, linear->math->stream));
        if (dbias != NULL) {
            LS_CUDA(cudaMemsetAsync(dbias, 0, linear->out * element, linear->math->stream));
        }
        return LS_OK;
    }
    LS_TRY(set_batch(linear, "ls_linear_backward_params", batch));
    gemm product = {CUBLAS_OP_N, CUBLAS_OP_T, linear->in, linear->out, batch, x, dy, linear->in, linear->out, dweight};
    LS_TRY(run_gemm(linear, &product));
    return dbias == NULL ? LS_OK
                         : ls_bias_grad(linear->math, linear->dtype, linear->y_desc, dy, linear->bias_desc, dbias);
}

void ls_linear_close(ls_linear *linear) {
    if (linear == NULL) {
        return;
    }
    const cudnnTensorDescriptor_t tensors[2] = {linear->y_desc, linear->bias_desc};
    for (size_t i = 0; i < 2; i++) {
        if (tensors[i] != NULL) {
            (void)ls_cudnn_check(cudnnDestroyTensorDescriptor(tensors[i]), "cudnnDestroyTensorDescriptor", __FILE__,
                                 __LINE__);
        }
    }
    free(linear);
}
