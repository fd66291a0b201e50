/* The stand-in for cuDNN, see standin.h: convolutions in loops. */
#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/standin.h"

/* A handle is a byte; descriptors keep what they were told. */

struct cudnnTensorStruct {
    cudnnDataType_t type;
    int n, c, h, w;
};
struct cudnnFilterStruct {
    cudnnDataType_t type;
    int k, c, h, w;
};
struct cudnnConvolutionStruct {
    cudnnDataType_t type;
    cudnnMathType_t math;
    int padding, stride;
};

static double get(cudnnDataType_t type, const void *values, size_t index) {
    return type == CUDNN_DATA_DOUBLE ? ((const double *)values)[index] : (double)((const float *)values)[index];
}

static void put(cudnnDataType_t type, void *values, size_t index, double value) {
    if (type == CUDNN_DATA_DOUBLE) {
        ((double *)values)[index] = value;
    } else {
        ((float *)values)[index] = (float)value;
    }
}

/* alpha and beta are read in double for double tensors and in float otherwise. */
static void require_scalars(cudnnDataType_t type, const void *alpha, double wanted_alpha, const void *beta,
                            double wanted_beta) {
    REQUIRE(get(type, alpha, 0) == wanted_alpha && get(type, beta, 0) == wanted_beta);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    *handle = malloc(1);
    return *handle == NULL ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    (void)stream;
    return handle == NULL ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_SUCCESS ? "success" : "failure";
}

size_t cudnnGetVersion(void) {
    return 91900;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *out) {
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
    free(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format, cudnnDataType_t type,
                                         int n, int c, int h, int w) {
    REQUIRE(format == CUDNN_TENSOR_NCHW && n > 0 && c > 0 && h > 0 && w > 0);
    *d = (struct cudnnTensorStruct){type, n, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *out) {
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
    free(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t format,
                                         int k, int c, int h, int w) {
    REQUIRE(format == CUDNN_TENSOR_NCHW && k > 0 && c > 0 && h > 0 && w > 0);
    *d = (struct cudnnFilterStruct){type, k, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *out) {
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
    free(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int stride_h,
                                              int stride_w, int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
    REQUIRE(pad_h == pad_w && stride_h == stride_w && stride_h > 0 && dilation_h == 1 && dilation_w == 1);
    REQUIRE(mode == CUDNN_CROSS_CORRELATION);
    *d = (struct cudnnConvolutionStruct){compute, CUDNN_DEFAULT_MATH, pad_h, stride_h};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
    d->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t *math) {
    *math = d->math;
    return CUDNN_STATUS_SUCCESS;
}

/* The tensors of a convolution fit together, and nothing computes in TF32 unless the test wants the fast mode. */
static void require_shapes(const struct cudnnTensorStruct *x, const struct cudnnFilterStruct *w,
                           const struct cudnnConvolutionStruct *conv, const struct cudnnTensorStruct *y) {
    REQUIRE(x->type == w->type && w->type == y->type && conv->type == x->type);
    REQUIRE(standin.fast || conv->math == CUDNN_FMA_MATH);
    REQUIRE(x->n == y->n && x->c == w->c && y->c == w->k);
    REQUIRE(y->h == (x->h + 2 * conv->padding - w->h) / conv->stride + 1);
    REQUIRE(y->w == (x->w + 2 * conv->padding - w->w) / conv->stride + 1);
}

/* Each pass asks for another amount, more than cuBLAS was given, so that a workspace that did not grow shows. */
static size_t workspace(const struct cudnnTensorStruct *x, size_t pass) {
    return ((size_t)40 << 20) + (size_t)x->n * 4096 * pass;
}

/* A pass writes to all of the workspace that it asked for; its first and last bytes stand for it. */
static void use_workspace(void *space, size_t bytes, size_t wanted) {
    REQUIRE(bytes >= wanted);
    memset(space, 0xff, 4096);
    memset((char *)space + wanted - 4096, 0xff, 4096);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t conv,
                                                      const cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algo,
                                                      size_t *bytes) {
    (void)handle;
    require_shapes(x, w, conv, y);
    if (algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM && conv->stride > 1) {
        return CUDNN_STATUS_NOT_SUPPORTED; /* so that the other forward algorithm is taken now and then */
    }
    REQUIRE(standin.fast || algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ||
            algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
    *bytes = workspace(x, 1);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t dy,
                                                           const cudnnConvolutionDescriptor_t conv,
                                                           const cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes) {
    (void)handle;
    require_shapes(dx, w, conv, dy);
    REQUIRE(standin.fast || algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
    if (!standin.fast && conv->padding >= w->h) {
        return CUDNN_STATUS_NOT_SUPPORTED_SHAPE; /* a shape that cuDNN does not take at all */
    }
    *bytes = workspace(dx, 2);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t dy,
                                                             const cudnnConvolutionDescriptor_t conv,
                                                             const cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes) {
    (void)handle;
    require_shapes(x, dw, conv, dy);
    REQUIRE(standin.fast || algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
    *bytes = workspace(x, 3);
    return CUDNN_STATUS_SUCCESS;
}

/* One product of a convolution: input element, weight element, output element. */
typedef struct term {
    size_t x, w, y;
} term;

/* Calls visit for every product that goes into output element o. */
static inline __attribute__((always_inline)) void each_term_of(const struct cudnnTensorStruct *x,
                                                               const struct cudnnFilterStruct *w,
                                                               const struct cudnnConvolutionStruct *conv,
                                                               const struct cudnnTensorStruct *y, int o,
                                                               void (*visit)(void *state, term t), void *state) {
    int n = o / (y->c * y->h * y->w);
    int k = o / (y->h * y->w) % y->c;
    int top = o / y->w % y->h * conv->stride - conv->padding;
    int left = o % y->w * conv->stride - conv->padding;
    for (int c = 0; c < w->c; c++) {
        for (int i = 0; i < w->h; i++) {
            for (int j = 0; j < w->w; j++) {
                if (top + i >= 0 && top + i < x->h && left + j >= 0 && left + j < x->w) {
                    visit(state, (term){(size_t)(((n * x->c + c) * x->h + top + i) * x->w + left + j),
                                        (size_t)(((k * w->c + c) * w->h + i) * w->w + j), (size_t)o});
                }
            }
        }
    }
}

static inline __attribute__((always_inline)) void each_term(const struct cudnnTensorStruct *x,
                                                            const struct cudnnFilterStruct *w,
                                                            const struct cudnnConvolutionStruct *conv,
                                                            const struct cudnnTensorStruct *y,
                                                            void (*visit)(void *state, term t), void *state) {
    for (int o = 0; o < y->n * y->c * y->h * y->w; o++) {
        each_term_of(x, w, conv, y, o, visit, state);
    }
}

typedef struct operands {
    double *x, *w, *y; /* the two that are read; the third is NULL */
    double *sums;
} operands;

static void add_forward(void *state, term t) {
    const operands *o = state;
    o->sums[t.y] += o->x[t.x] * o->w[t.w];
}

static void add_data(void *state, term t) {
    const operands *o = state;
    o->sums[t.x] += o->y[t.y] * o->w[t.w];
}

static void add_filter(void *state, term t) {
    const operands *o = state;
    o->sums[t.w] += o->y[t.y] * o->x[t.x];
}

static double *new_sums(int count) {
    double *sums = calloc((size_t)count, sizeof *sums);
    REQUIRE(sums != NULL);
    return sums;
}

static double *widened(cudnnDataType_t type, const void *values, int count) {
    double *wide = new_sums(count);
    for (int i = 0; i < count; i++) {
        wide[i] = get(type, values, (size_t)i);
    }
    return wide;
}

static int tensor_count(const struct cudnnTensorStruct *d) {
    return d->n * d->c * d->h * d->w;
}

static int filter_count(const struct cudnnFilterStruct *d) {
    return d->k * d->c * d->h * d->w;
}

static void release(const operands *o) {
    free(o->x);
    free(o->w);
    free(o->y);
}

static void store(cudnnDataType_t type, double *sums, int count, void *to) {
    for (int i = 0; i < count; i++) {
        put(type, to, (size_t)i, sums[i]);
    }
    free(sums);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_desc,
                                      const void *x, const cudnnFilterDescriptor_t w_desc, const void *w,
                                      const cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algo,
                                      void *space, size_t bytes, const void *beta, const cudnnTensorDescriptor_t y_desc,
                                      void *y) {
    (void)handle;
    (void)algo;
    require_shapes(x_desc, w_desc, conv, y_desc);
    require_scalars(x_desc->type, alpha, 1, beta, 0);
    use_workspace(space, bytes, workspace(x_desc, 1));
    int count = tensor_count(y_desc);
    operands o = {widened(x_desc->type, x, tensor_count(x_desc)), widened(x_desc->type, w, filter_count(w_desc)), NULL,
                  new_sums(count)};
    each_term(x_desc, w_desc, conv, y_desc, add_forward, &o);
    store(x_desc->type, o.sums, count, y);
    release(&o);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           const cudnnFilterDescriptor_t w_desc, const void *w,
                                           const cudnnTensorDescriptor_t dy_desc, const void *dy,
                                           const cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdDataAlgo_t algo,
                                           void *space, size_t bytes, const void *beta,
                                           const cudnnTensorDescriptor_t dx_desc, void *dx) {
    (void)handle;
    REQUIRE(standin.fast || algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
    require_shapes(dx_desc, w_desc, conv, dy_desc);
    require_scalars(dx_desc->type, alpha, 1, beta, 0);
    use_workspace(space, bytes, workspace(dx_desc, 2));
    int count = tensor_count(dx_desc);
    operands o = {NULL, widened(dx_desc->type, w, filter_count(w_desc)),
                  widened(dx_desc->type, dy, tensor_count(dy_desc)), new_sums(count)};
    each_term(dx_desc, w_desc, conv, dy_desc, add_data, &o);
    store(dx_desc->type, o.sums, count, dx);
    release(&o);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             const cudnnTensorDescriptor_t x_desc, const void *x,
                                             const cudnnTensorDescriptor_t dy_desc, const void *dy,
                                             const cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void *space, size_t bytes,
                                             const void *beta, const cudnnFilterDescriptor_t dw_desc, void *dw) {
    (void)handle;
    REQUIRE(standin.fast || algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
    require_shapes(x_desc, dw_desc, conv, dy_desc);
    require_scalars(x_desc->type, alpha, 1, beta, 0);
    use_workspace(space, bytes, workspace(x_desc, 3));
    int count = filter_count(dw_desc);
    operands o = {widened(x_desc->type, x, tensor_count(x_desc)), NULL,
                  widened(x_desc->type, dy, tensor_count(dy_desc)), new_sums(count)};
    each_term(x_desc, dw_desc, conv, dy_desc, add_filter, &o);
    store(x_desc->type, o.sums, count, dw);
    release(&o);
    return CUDNN_STATUS_SUCCESS;
}

/* The lists of the three searches: what is first did not run. */
#define FILL_LIST(list, returned, requested, failing, winner, winners_math) \
    do {                                                                    \
        REQUIRE((requested) >= 2);                                          \
        memset(list, 0, 2 * sizeof *(list));                                \
        (list)[0].algo = (failing);                                         \
        (list)[0].status = CUDNN_STATUS_NOT_SUPPORTED;                      \
        (list)[1].algo = (winner);                                          \
        (list)[1].mathType = (winners_math);                                \
        *(returned) = 2;                                                    \
    } while (0)

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc,
                                                     const void *x, const cudnnFilterDescriptor_t w_desc, const void *w,
                                                     const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y_desc, void *y, const int requested,
                                                     int *returned, cudnnConvolutionFwdAlgoPerf_t *list, void *space,
                                                     size_t bytes) {
    (void)handle;
    require_shapes(x_desc, w_desc, conv, y_desc);
    REQUIRE(standin.fast && x != NULL && w != NULL && y != NULL && space != NULL && bytes > 0);
    FILL_LIST(list, returned, requested, CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
              CUDNN_TENSOR_OP_MATH);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w_desc, const void *w, const cudnnTensorDescriptor_t dy_desc,
    const void *dy, const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t dx_desc, void *dx,
    const int requested, int *returned, cudnnConvolutionBwdDataAlgoPerf_t *list, void *space, size_t bytes) {
    (void)handle;
    require_shapes(dx_desc, w_desc, conv, dy_desc);
    REQUIRE(standin.fast && dx != NULL && w != NULL && dy != NULL && space != NULL && bytes > 0);
    FILL_LIST(list, returned, requested, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
              CUDNN_DEFAULT_MATH);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const void *x, const cudnnTensorDescriptor_t dy_desc,
    const void *dy, const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t dw_desc, void *dw,
    const int requested, int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *list, void *space, size_t bytes) {
    (void)handle;
    require_shapes(x_desc, dw_desc, conv, dy_desc);
    REQUIRE(standin.fast && x != NULL && dw != NULL && dy != NULL && space != NULL && bytes > 0);
    FILL_LIST(list, returned, requested, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
              CUDNN_FMA_MATH);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha,
                                           const cudnnTensorDescriptor_t dy_desc, const void *dy, const void *beta,
                                           const cudnnTensorDescriptor_t db_desc, void *db) {
    (void)handle;
    require_scalars(dy_desc->type, alpha, 1, beta, 0);
    REQUIRE(db_desc->n == 1 && db_desc->c == dy_desc->c && db_desc->h == 1 && db_desc->w == 1);
    double *sums = new_sums(dy_desc->c);
    int area = dy_desc->h * dy_desc->w;
    for (int i = 0; i < dy_desc->n * dy_desc->c * area; i++) {
        sums[i / area % dy_desc->c] += get(dy_desc->type, dy, (size_t)i);
    }
    store(dy_desc->type, sums, dy_desc->c, db);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t a_desc,
                             const void *a, const void *beta, const cudnnTensorDescriptor_t c_desc, void *c) {
    (void)handle;
    require_scalars(c_desc->type, alpha, 1, beta, 1);
    REQUIRE(a_desc->type == c_desc->type && a_desc->n == 1 && a_desc->c == c_desc->c && a_desc->h == 1 &&
            a_desc->w == 1);
    int area = c_desc->h * c_desc->w;
    for (int i = 0; i < c_desc->n * c_desc->c * area; i++) {
        double sum = get(c_desc->type, c, (size_t)i) + get(c_desc->type, a, (size_t)(i / area % c_desc->c));
        put(c_desc->type, c, (size_t)i, sum);
    }
    return CUDNN_STATUS_SUCCESS;
}
