/* Convolution by cuDNN. Outside the fast mode only algorithms that form each output as one plain sum of products are taken:
 * transforms (FFT, Winograd) have larger errors than the forward error bound that verification rests on, and are not exact on
 * exact inputs. Backward data 1 and backward filter 1 are cuDNN's deterministic ones of that kind. */
#include "gpu/cuda/conv.h"

#include <stdio.h>
#include <stdlib.h>

ls_rc ls_cudnn_check(cudnnStatus_t status, const char *call, const char *file, int line) {
    if (status == CUDNN_STATUS_SUCCESS) {
        return LS_OK;
    }
    return ls_fail(LS_DEVICE_FAILED, "%s:%d: %s: %s (cuDNN status %d)", file, line, call, cudnnGetErrorString(status),
                   (int)status);
}

ls_rc ls_cudnn_attach(ls_math *math) {
    LS_CUDNN(cudnnCreate(&math->cudnn));
    LS_CUDNN(cudnnSetStream(math->cudnn, math->stream));
    return LS_OK;
}

void ls_cudnn_detach(ls_math *math) {
    if (math->cudnn != NULL) {
        (void)ls_cudnn_check(cudnnDestroy(math->cudnn), "cudnnDestroy", __FILE__, __LINE__);
    }
}

void ls_cudnn_describe(char *text, size_t size) {
    size_t version = cudnnGetVersion(); /* major*10000 + minor*100 + patch */
    (void)snprintf(text, size, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

static cudnnDataType_t type_of(const ls_cudnn_conv *c) {
    return c->dtype == LS_FLOAT64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

/* Bytes of workspace that a pass needs with the descriptors as they are. */
static cudnnStatus_t pass_workspace(const ls_cudnn_conv *c, int pass, size_t *bytes) {
    cudnnHandle_t cudnn = c->math->cudnn;
    const cudnnConvolutionDescriptor_t conv_desc = c->conv_desc[pass];
    switch (pass) {
    case LS_CONV_FORWARD:
        return cudnnGetConvolutionForwardWorkspaceSize(cudnn, c->x_desc, c->weight_desc, conv_desc, c->y_desc,
                                                       (cudnnConvolutionFwdAlgo_t)c->algorithm[pass], bytes);
    case LS_CONV_DATA:
        return cudnnGetConvolutionBackwardDataWorkspaceSize(cudnn, c->weight_desc, c->y_desc, conv_desc, c->x_desc,
                                                            (cudnnConvolutionBwdDataAlgo_t)c->algorithm[pass], bytes);
    default:
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnn, c->x_desc, c->y_desc, conv_desc, c->weight_desc,
                                                              (cudnnConvolutionBwdFilterAlgo_t)c->algorithm[pass],
                                                              bytes);
    }
}

static ls_rc workspace_needed(const ls_cudnn_conv *c, size_t *most) {
    *most = 0;
    for (int pass = 0; pass < LS_CONV_PASSES; pass++) {
        size_t bytes = 0;
        LS_CUDNN(pass_workspace(c, pass, &bytes));
        *most = bytes > *most ? bytes : *most;
    }
    return LS_OK;
}

static ls_rc describe_batch(ls_cudnn_conv *c, size_t batch) {
    const ls_conv_shape *s = &c->shape;
    c->batch = 0;
    LS_CUDNN(cudnnSetTensor4dDescriptor(c->x_desc, CUDNN_TENSOR_NCHW, type_of(c), (int)batch, (int)s->in_channels,
                                        (int)s->in_height, (int)s->in_width));
    LS_CUDNN(cudnnSetTensor4dDescriptor(c->y_desc, CUDNN_TENSOR_NCHW, type_of(c), (int)batch, (int)s->out_channels,
                                        (int)ls_conv_out_height(s), (int)ls_conv_out_width(s)));
    c->batch = batch;
    return LS_OK;
}

/* Makes ready for a batch. The workspace of a smaller batch than the planned one was planned for the nearest powers of two; cuDNN
 * does not promise that those between need no more. Should one, the step waits while the workspace grows, and says so. */
static ls_rc set_batch(ls_cudnn_conv *c, size_t batch) {
    if (batch == c->batch) {
        return LS_OK;
    }
    LS_TRY(describe_batch(c, batch));
    size_t needed = 0;
    LS_TRY(workspace_needed(c, &needed));
    if (needed > c->math->workspace_bytes) {
        ls_notice(
            "a convolution planned for %zu samples needs more workspace for %zu: %zu bytes, planned %zu; this step "
            "waits for it",
            c->max_batch, batch, needed, c->math->workspace_bytes);
    }
    return ls_math_reserve(c->math, needed);
}

static ls_rc check_sizes(const ls_conv_shape *s, size_t max_batch) {
    LS_TRY(ls_math_fits_int(max_batch, "the batch of a convolution"));
    LS_TRY(ls_math_fits_int(max_batch * s->in_channels * s->in_height * s->in_width, "the input of a convolution"));
    LS_TRY(ls_math_fits_int(max_batch * s->out_channels * ls_conv_out_height(s) * ls_conv_out_width(s),
                            "the output of a convolution"));
    return ls_math_fits_int(s->out_channels * s->in_channels * s->kernel_height * s->kernel_width,
                            "the weight of a convolution");
}

static bool unsupported(cudnnStatus_t status) {
    return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
}

/* The algorithms of the exact modes. *takes: false when cuDNN has one of them for this shape not at all. */
static ls_rc choose_exact(ls_cudnn_conv *c, bool *takes) {
    c->algorithm[LS_CONV_FORWARD] = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM; /* the faster, where it serves */
    c->algorithm[LS_CONV_DATA] = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
    c->algorithm[LS_CONV_FILTER] = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
    size_t bytes = 0;
    if (unsupported(pass_workspace(c, LS_CONV_FORWARD, &bytes))) {
        c->algorithm[LS_CONV_FORWARD] = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
    }
    *takes = true;
    for (int pass = 0; pass < LS_CONV_PASSES; pass++) {
        cudnnStatus_t status = pass_workspace(c, pass, &bytes);
        *takes = *takes && !unsupported(status);
        if (!unsupported(status)) {
            LS_CUDNN(status);
        }
    }
    return LS_OK;
}

static ls_rc create_descriptors(ls_cudnn_conv *c) {
    const ls_conv_shape *s = &c->shape;
    bool fast = ls_math_get_mode() == LS_MATH_FAST;
    LS_CUDNN(cudnnCreateTensorDescriptor(&c->x_desc));
    LS_CUDNN(cudnnCreateTensorDescriptor(&c->y_desc));
    LS_CUDNN(cudnnCreateTensorDescriptor(&c->bias_desc));
    LS_CUDNN(cudnnCreateFilterDescriptor(&c->weight_desc));
    LS_CUDNN(cudnnSetFilter4dDescriptor(c->weight_desc, type_of(c), CUDNN_TENSOR_NCHW, (int)s->out_channels,
                                        (int)s->in_channels, (int)s->kernel_height, (int)s->kernel_width));
    LS_CUDNN(cudnnSetTensor4dDescriptor(c->bias_desc, CUDNN_TENSOR_NCHW, type_of(c), 1, (int)s->out_channels, 1, 1));
    for (int pass = 0; pass < LS_CONV_PASSES; pass++) {
        LS_CUDNN(cudnnCreateConvolutionDescriptor(&c->conv_desc[pass]));
        LS_CUDNN(cudnnSetConvolution2dDescriptor(c->conv_desc[pass], (int)s->padding, (int)s->padding, (int)s->stride,
                                                 (int)s->stride, 1, 1, CUDNN_CROSS_CORRELATION, type_of(c)));
        LS_CUDNN(cudnnSetConvolutionMathType(c->conv_desc[pass], fast ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH));
    }
    return describe_batch(c, c->max_batch);
}

static ls_rc note(const ls_cudnn_conv *c) {
    static const char *const names[LS_CONV_PASSES] = {"conv forward", "conv backward data", "conv backward filter"};
    for (int pass = 0; pass < LS_CONV_PASSES; pass++) {
        cudnnMathType_t math = CUDNN_FMA_MATH;
        LS_CUDNN(cudnnGetConvolutionMathType(c->conv_desc[pass], &math));
        ls_math_note("%s %d%s", names[pass], c->algorithm[pass],
                     math == CUDNN_FMA_MATH       ? ""
                     : math == CUDNN_DEFAULT_MATH ? " default math"
                                                  : " tensor math");
    }
    return LS_OK;
}

/* *takes: false when cuDNN does not take the shape. */
static ls_rc plan(ls_cudnn_conv *c, bool *takes) {
    *takes = true;
    LS_TRY(create_descriptors(c));
    if (ls_math_get_mode() == LS_MATH_FAST) {
        LS_TRY(ls_cudnn_conv_fastest(c));
    } else {
        LS_TRY(choose_exact(c, takes));
    }
    if (!*takes) {
        ls_math_note("conv by im2col, a shape not in cuDNN");
        return LS_OK;
    }
    LS_TRY(note(c));
    size_t most = 0;
    for (size_t batch = 1; batch < c->max_batch * 2; batch *= 2) {
        size_t needed = 0;
        LS_TRY(describe_batch(c, batch < c->max_batch ? batch : c->max_batch));
        LS_TRY(workspace_needed(c, &needed));
        most = needed > most ? needed : most;
    }
    return ls_math_reserve(c->math, most);
}

static void conv_close(void *state) {
    ls_cudnn_conv *c = state;
    const cudnnTensorDescriptor_t tensors[3] = {c->x_desc, c->y_desc, c->bias_desc};
    for (size_t i = 0; i < 3; i++) {
        if (tensors[i] != NULL) {
            (void)ls_cudnn_check(cudnnDestroyTensorDescriptor(tensors[i]), "cudnnDestroyTensorDescriptor", __FILE__,
                                 __LINE__);
        }
    }
    if (c->weight_desc != NULL) {
        (void)ls_cudnn_check(cudnnDestroyFilterDescriptor(c->weight_desc), "cudnnDestroyFilterDescriptor", __FILE__,
                             __LINE__);
    }
    for (int pass = 0; pass < LS_CONV_PASSES; pass++) {
        if (c->conv_desc[pass] != NULL) {
            (void)ls_cudnn_check(cudnnDestroyConvolutionDescriptor(c->conv_desc[pass]),
                                 "cudnnDestroyConvolutionDescriptor", __FILE__, __LINE__);
        }
    }
    free(c);
}

static ls_rc conv_open(ls_math *math, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch, void **state) {
    LS_TRY(check_sizes(shape, max_batch));
    ls_cudnn_conv *c = ls_calloc(1, sizeof *c, "convolution");
    if (c == NULL) {
        return LS_DEVICE_FAILED;
    }
    *c = (ls_cudnn_conv){.math = math, .shape = *shape, .dtype = dtype, .max_batch = max_batch};
    bool takes = true;
    ls_rc rc = plan(c, &takes);
    if (rc != LS_OK || !takes) {
        conv_close(c);
        return rc; /* without a state the im2col engine takes it */
    }
    *state = c;
    return LS_OK;
}

static ls_rc conv_forward(void *state, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    ls_cudnn_conv *c = state;
    ls_math *math = c->math;
    const void *one = ls_scalar_of(&ls_one, c->dtype);
    LS_TRY(set_batch(c, batch));
    LS_CUDNN(cudnnConvolutionForward(math->cudnn, one, c->x_desc, x, c->weight_desc, weight,
                                     c->conv_desc[LS_CONV_FORWARD],
                                     (cudnnConvolutionFwdAlgo_t)c->algorithm[LS_CONV_FORWARD], math->workspace,
                                     math->workspace_bytes, ls_scalar_of(&ls_zero, c->dtype), c->y_desc, y));
    if (bias != NULL) {
        LS_CUDNN(cudnnAddTensor(math->cudnn, one, c->bias_desc, bias, one, c->y_desc, y));
    }
    return LS_OK;
}

static ls_rc conv_backward_input(void *state, size_t batch, const void *dy, const void *weight, void *dx) {
    ls_cudnn_conv *c = state;
    ls_math *math = c->math;
    LS_TRY(set_batch(c, batch));
    LS_CUDNN(cudnnConvolutionBackwardData(math->cudnn, ls_scalar_of(&ls_one, c->dtype), c->weight_desc, weight,
                                          c->y_desc, dy, c->conv_desc[LS_CONV_DATA],
                                          (cudnnConvolutionBwdDataAlgo_t)c->algorithm[LS_CONV_DATA], math->workspace,
                                          math->workspace_bytes, ls_scalar_of(&ls_zero, c->dtype), c->x_desc, dx));
    return LS_OK;
}

static ls_rc conv_backward_params(void *state, size_t batch, const void *x, const void *dy, void *dweight,
                                  void *dbias) {
    ls_cudnn_conv *c = state;
    ls_math *math = c->math;
    const void *one = ls_scalar_of(&ls_one, c->dtype);
    const void *zero = ls_scalar_of(&ls_zero, c->dtype);
    LS_TRY(set_batch(c, batch));
    LS_CUDNN(cudnnConvolutionBackwardFilter(math->cudnn, one, c->x_desc, x, c->y_desc, dy, c->conv_desc[LS_CONV_FILTER],
                                            (cudnnConvolutionBwdFilterAlgo_t)c->algorithm[LS_CONV_FILTER],
                                            math->workspace, math->workspace_bytes, zero, c->weight_desc, dweight));
    if (dbias != NULL) {
        LS_CUDNN(cudnnConvolutionBackwardBias(math->cudnn, one, c->y_desc, dy, zero, c->bias_desc, dbias));
    }
    return LS_OK;
}

/* No pooling in the same pass: cuDNN's fused operations bring other numbers than the separate ones. */
static const ls_layer_engine cudnn_engine = {.open = conv_open,
                                             .forward = conv_forward,
                                             .backward_input = conv_backward_input,
                                             .backward_params = conv_backward_params,
                                             .close = conv_close};

const ls_layer_engine *ls_platform_conv_engine(void) {
    return &cudnn_engine;
}
