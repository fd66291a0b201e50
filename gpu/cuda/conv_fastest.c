/* The fastest algorithm of each pass of a convolution, as cuDNN measures them. */
#include "gpu/cuda/conv.h"

/* What an algorithm may use of workspace, as in PyTorch's benchmark mode it may use much. */
#define WORKSPACE_LIMIT ((size_t)256 << 20)

typedef struct buffers {
    void *x, *weight, *y, *workspace;
} buffers;

/* The first of the list that ran; cuDNN sorts by time. */
#define TAKE_FIRST(conv, pass, list, count)                                                                           \
    do {                                                                                                              \
        int at_ = 0;                                                                                                  \
        while (at_ < (count) && (list)[at_].status != CUDNN_STATUS_SUCCESS) {                                         \
            at_++;                                                                                                    \
        }                                                                                                             \
        if (at_ == (count)) {                                                                                         \
            return ls_fail(LS_DEVICE_FAILED, "cuDNN runs none of its algorithms for pass %d of a convolution", pass); \
        }                                                                                                             \
        (conv)->algorithm[pass] = (int)(list)[at_].algo;                                                              \
        LS_CUDNN(cudnnSetConvolutionMathType((conv)->conv_desc[pass], (list)[at_].mathType));                         \
    } while (0)

static ls_rc fastest_forward(ls_cudnn_conv *c, const buffers *b) {
    cudnnConvolutionFwdAlgoPerf_t list[CUDNN_CONVOLUTION_FWD_ALGO_COUNT * 4];
    int count = 0;
    LS_CUDNN(cudnnFindConvolutionForwardAlgorithmEx(
        c->math->cudnn, c->x_desc, b->x, c->weight_desc, b->weight, c->conv_desc[LS_CONV_FORWARD], c->y_desc, b->y,
        (int)(sizeof list / sizeof *list), &count, list, b->workspace, WORKSPACE_LIMIT));
    TAKE_FIRST(c, LS_CONV_FORWARD, list, count);
    return LS_OK;
}

static ls_rc fastest_data(ls_cudnn_conv *c, const buffers *b) {
    cudnnConvolutionBwdDataAlgoPerf_t list[CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT * 4];
    int count = 0;
    LS_CUDNN(cudnnFindConvolutionBackwardDataAlgorithmEx(
        c->math->cudnn, c->weight_desc, b->weight, c->y_desc, b->y, c->conv_desc[LS_CONV_DATA], c->x_desc, b->x,
        (int)(sizeof list / sizeof *list), &count, list, b->workspace, WORKSPACE_LIMIT));
    TAKE_FIRST(c, LS_CONV_DATA, list, count);
    return LS_OK;
}

static ls_rc fastest_filter(ls_cudnn_conv *c, const buffers *b) {
    cudnnConvolutionBwdFilterAlgoPerf_t list[CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT * 4];
    int count = 0;
    LS_CUDNN(cudnnFindConvolutionBackwardFilterAlgorithmEx(
        c->math->cudnn, c->x_desc, b->x, c->y_desc, b->y, c->conv_desc[LS_CONV_FILTER], c->weight_desc, b->weight,
        (int)(sizeof list / sizeof *list), &count, list, b->workspace, WORKSPACE_LIMIT));
    TAKE_FIRST(c, LS_CONV_FILTER, list, count);
    return LS_OK;
}

static ls_rc allocate(const ls_cudnn_conv *c, buffers *b) {
    const ls_conv_shape *s = &c->shape;
    const size_t counts[3] = {c->max_batch * s->in_channels * s->in_height * s->in_width,
                              s->out_channels * s->in_channels * s->kernel_height * s->kernel_width,
                              c->max_batch * s->out_channels * ls_conv_out_height(s) * ls_conv_out_width(s)};
    void **const targets[3] = {&b->x, &b->weight, &b->y};
    for (size_t i = 0; i < 3; i++) {
        size_t bytes = counts[i] * ls_dtype_size(c->dtype);
        LS_CUDA(cudaMalloc(targets[i], bytes));
        LS_CUDA(cudaMemsetAsync(*targets[i], 0, bytes, c->math->stream));
    }
    LS_CUDA(cudaMalloc(&b->workspace, WORKSPACE_LIMIT));
    return LS_OK;
}

ls_rc ls_cudnn_conv_fastest(ls_cudnn_conv *conv) {
    buffers b = {NULL, NULL, NULL, NULL};
    ls_rc rc = allocate(conv, &b);
    if (rc == LS_OK) {
        rc = fastest_forward(conv, &b);
    }
    if (rc == LS_OK) {
        rc = fastest_data(conv, &b);
    }
    if (rc == LS_OK) {
        rc = fastest_filter(conv, &b);
    }
    void *const all[4] = {b.x, b.weight, b.y, b.workspace};
    for (size_t i = 0; i < 4; i++) {
        ls_rc freed = ls_cuda_check(cudaFree(all[i]), "cudaFree", __FILE__, __LINE__);
        rc = rc == LS_OK ? freed : rc;
    }
    return rc;
}
