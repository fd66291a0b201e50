/* Convolution by cuDNN. Only algorithms that form each output as one plain sum of products are taken: transforms (FFT,
 * Winograd) have larger errors than the forward error bound that verification rests on, and are not exact on exact inputs.
 * Backward data 1 and backward filter 1 are cuDNN's deterministic ones of that kind. */
#include "gpu/cuda/bias.h"
#include "gpu/cuda/math.h"

#include <stdlib.h>

struct ls_conv {
    ls_math *math;
    ls_conv_shape shape;
    ls_dtype dtype;
    size_t max_batch;
    size_t batch; /* that the descriptors are set for */
    cudnnTensorDescriptor_t x_desc, y_desc, bias_desc;
    cudnnFilterDescriptor_t weight_desc;
    cudnnConvolutionDescriptor_t conv_desc;
    cudnnConvolutionFwdAlgo_t forward;
};

static const cudnnConvolutionBwdDataAlgo_t backward_data = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
static const cudnnConvolutionBwdFilterAlgo_t backward_filter = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

/* Bytes of workspace that the three passes need with the descriptors as they are. */
static ls_rc workspace_needed(const ls_conv *conv, size_t *bytes) {
    cudnnHandle_t cudnn = conv->math->cudnn;
    size_t forward = 0;
    size_t data = 0;
    size_t filter = 0;
    LS_CUDNN(cudnnGetConvolutionForwardWorkspaceSize(cudnn, conv->x_desc, conv->weight_desc, conv->conv_desc,
                                                     conv->y_desc, conv->forward, &forward));
    LS_CUDNN(cudnnGetConvolutionBackwardDataWorkspaceSize(cudnn, conv->weight_desc, conv->y_desc, conv->conv_desc,
                                                          conv->x_desc, backward_data, &data));
    LS_CUDNN(cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnn, conv->x_desc, conv->y_desc, conv->conv_desc,
                                                            conv->weight_desc, backward_filter, &filter));
    size_t most = forward > data ? forward : data;
    *bytes = most > filter ? most : filter;
    return LS_OK;
}

static ls_rc describe_batch(const ls_conv *conv, size_t batch) {
    const ls_conv_shape *s = &conv->shape;
    cudnnDataType_t type = ls_dtype_cudnn(conv->dtype);
    LS_CUDNN(cudnnSetTensor4dDescriptor(conv->x_desc, CUDNN_TENSOR_NCHW, type, (int)batch, (int)s->in_channels,
                                        (int)s->in_height, (int)s->in_width));
    LS_CUDNN(cudnnSetTensor4dDescriptor(conv->y_desc, CUDNN_TENSOR_NCHW, type, (int)batch, (int)s->out_channels,
                                        (int)ls_conv_out_height(s), (int)ls_conv_out_width(s)));
    return LS_OK;
}

/* Makes ready for a batch. A smaller batch than the planned one needs no more workspace as a rule; cuDNN does not promise
 * it, so the workspace would grow then. */
static ls_rc set_batch(ls_conv *conv, const char *call, size_t batch) {
    LS_TRY(ls_batch_check(call, batch, conv->max_batch));
    if (batch == conv->batch) {
        return LS_OK;
    }
    LS_TRY(describe_batch(conv, batch));
    size_t needed = 0;
    LS_TRY(workspace_needed(conv, &needed));
    LS_TRY(ls_math_reserve(conv->math, needed));
    conv->batch = batch;
    return LS_OK;
}

static ls_rc check_sizes(const ls_conv_shape *s, size_t max_batch) {
    LS_TRY(ls_math_fits_int(max_batch, "the batch of a convolution"));
    LS_TRY(ls_math_fits_int(max_batch * s->in_channels * s->in_height * s->in_width, "the input of a convolution"));
    LS_TRY(ls_math_fits_int(max_batch * s->out_channels * ls_conv_out_height(s) * ls_conv_out_width(s),
                            "the output of a convolution"));
    return ls_math_fits_int(s->out_channels * s->in_channels * s->kernel_height * s->kernel_width,
                            "the weight of a convolution");
}

/* The precomputed variant of implicit GEMM is the faster; it is taken where it serves the shape. */
static void choose_forward(ls_conv *conv) {
    size_t bytes = 0;
    conv->forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    cudnnStatus_t status = cudnnGetConvolutionForwardWorkspaceSize(
        conv->math->cudnn, conv->x_desc, conv->weight_desc, conv->conv_desc, conv->y_desc, conv->forward, &bytes);
    if (status != CUDNN_STATUS_SUCCESS) {
        conv->forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
    }
    ls_math_note_forward(conv->forward);
}

static ls_rc plan(ls_conv *conv) {
    const ls_conv_shape *s = &conv->shape;
    cudnnDataType_t type = ls_dtype_cudnn(conv->dtype);
    LS_CUDNN(cudnnCreateTensorDescriptor(&conv->x_desc));
    LS_CUDNN(cudnnCreateTensorDescriptor(&conv->y_desc));
    LS_CUDNN(cudnnCreateTensorDescriptor(&conv->bias_desc));
    LS_CUDNN(cudnnCreateFilterDescriptor(&conv->weight_desc));
    LS_CUDNN(cudnnCreateConvolutionDescriptor(&conv->conv_desc));
    LS_CUDNN(cudnnSetTensor4dDescriptor(conv->bias_desc, CUDNN_TENSOR_NCHW, type, 1, (int)s->out_channels, 1, 1));
    LS_CUDNN(cudnnSetFilter4dDescriptor(conv->weight_desc, type, CUDNN_TENSOR_NCHW, (int)s->out_channels,
                                        (int)s->in_channels, (int)s->kernel_height, (int)s->kernel_width));
    /* PyTorch's convolution is a cross-correlation. */
    LS_CUDNN(cudnnSetConvolution2dDescriptor(conv->conv_desc, (int)s->padding, (int)s->padding, (int)s->stride,
                                             (int)s->stride, 1, 1, CUDNN_CROSS_CORRELATION, type));
    LS_CUDNN(cudnnSetConvolutionMathType(conv->conv_desc, CUDNN_FMA_MATH));
    LS_TRY(describe_batch(conv, conv->max_batch));
    choose_forward(conv);
    return set_batch(conv, "convolution", conv->max_batch);
}

ls_rc ls_conv_open(ls_math *math, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch, ls_conv **out) {
    *out = NULL;
    LS_TRY(ls_conv_shape_check(shape));
    LS_TRY(check_sizes(shape, max_batch));
    ls_conv *conv = ls_calloc(1, sizeof *conv, "convolution");
    if (conv == NULL) {
        return LS_DEVICE_FAILED;
    }
    conv->math = math;
    conv->shape = *shape;
    conv->dtype = dtype;
    conv->max_batch = max_batch > 0 ? max_batch : 1;
    ls_rc rc = plan(conv);
    if (rc != LS_OK) {
        ls_conv_close(conv);
        return rc;
    }
    *out = conv;
    return LS_OK;
}

ls_rc ls_conv_forward(ls_conv *conv, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    if (batch == 0) {
        return LS_OK;
    }
    LS_TRY(set_batch(conv, "ls_conv_forward", batch));
    ls_math *math = conv->math;
    LS_CUDNN(cudnnConvolutionForward(math->cudnn, ls_scalar_of(&ls_one, conv->dtype), conv->x_desc, x,
                                     conv->weight_desc, weight, conv->conv_desc, conv->forward, math->workspace,
                                     math->workspace_bytes, ls_scalar_of(&ls_zero, conv->dtype), conv->y_desc, y));
    return bias == NULL ? LS_OK : ls_bias_add(math, conv->dtype, conv->bias_desc, bias, conv->y_desc, y);
}

ls_rc ls_conv_backward_input(ls_conv *conv, size_t batch, const void *dy, const void *weight, void *dx) {
    if (batch == 0) {
        return LS_OK;
    }
    LS_TRY(set_batch(conv, "ls_conv_backward_input", batch));
    ls_math *math = conv->math;
    LS_CUDNN(cudnnConvolutionBackwardData(
        math->cudnn, ls_scalar_of(&ls_one, conv->dtype), conv->weight_desc, weight, conv->y_desc, dy, conv->conv_desc,
        backward_data, math->workspace, math->workspace_bytes, ls_scalar_of(&ls_zero, conv->dtype), conv->x_desc, dx));
    return LS_OK;
}

/* Without samples the sums are empty. */
static ls_rc zero_params(const ls_conv *conv, void *dweight, void *dbias) {
    const ls_conv_shape *s = &conv->shape;
    size_t weights = s->out_channels * s->in_channels * s->kernel_height * s->kernel_width;
    size_t element = ls_dtype_size(conv->dtype);
    LS_CUDA(cudaMemsetAsync(dweight, 0, weights * element, conv->math->stream));
    if (dbias != NULL) {
        LS_CUDA(cudaMemsetAsync(dbias, 0, s->out_channels * element, conv->math->stream));
    }
    return LS_OK;
}

ls_rc ls_conv_backward_params(ls_conv *conv, size_t batch, const void *x, const void *dy, void *dweight, void *dbias) {
    if (batch == 0) {
        return zero_params(conv, dweight, dbias);
    }
    LS_TRY(set_batch(conv, "ls_conv_backward_params", batch));
    ls_math *math = conv->math;
    LS_CUDNN(cudnnConvolutionBackwardFilter(math->cudnn, ls_scalar_of(&ls_one, conv->dtype), conv->x_desc, x,
                                            conv->y_desc, dy, conv->conv_desc, backward_filter, math->workspace,
                                            math->workspace_bytes, ls_scalar_of(&ls_zero, conv->dtype),
                                            conv->weight_desc, dweight));
    return dbias == NULL ? LS_OK : ls_bias_grad(math, conv->dtype, conv->y_desc, dy, conv->bias_desc, dbias);
}

/* cuDNN's fused operations bring other numbers than the separate ones. */
bool ls_conv_pools(size_t kernel, size_t stride) {
    (void)kernel;
    (void)stride;
    return false;
}

ls_rc ls_conv_attach(ls_conv *conv, const ls_conv_pool *pool) {
    (void)conv;
    return ls_fail(LS_BAD_INPUT, "a max-pooling of %zu x %zu in the same pass as a convolution: not on this platform",
                   pool->kernel, pool->kernel);
}

void ls_conv_close(ls_conv *conv) {
    if (conv == NULL) {
        return;
    }
    const cudnnTensorDescriptor_t tensors[3] = {conv->x_desc, conv->y_desc, conv->bias_desc};
    for (size_t i = 0; i < 3; i++) {
        if (tensors[i] != NULL) {
            (void)ls_cudnn_check(cudnnDestroyTensorDescriptor(tensors[i]), "cudnnDestroyTensorDescriptor", __FILE__,
                                 __LINE__);
        }
    }
    if (conv->weight_desc != NULL) {
        (void)ls_cudnn_check(cudnnDestroyFilterDescriptor(conv->weight_desc), "cudnnDestroyFilterDescriptor", __FILE__,
                             __LINE__);
    }
    if (conv->conv_desc != NULL) {
        (void)ls_cudnn_check(cudnnDestroyConvolutionDescriptor(conv->conv_desc), "cudnnDestroyConvolutionDescriptor",
                             __FILE__, __LINE__);
    }
    free(conv);
}
