/* Convolutions by the direct engine, on a stream: each call is one operation of the stream's thread. */
#include <stdlib.h>

#include "gpu/layer_engine.h"
#include "gpu/vgpu/internal.h"
#include "gpu/vgpu/math/plan.h"
#include "gpu/vgpu/runtime.h"

typedef struct direct_conv {
    ls_math *math;
    direct_plans plans;
    ls_conv_pool pool; /* kernel 0: none */
} direct_conv;

/* What an operation carries to the stream's thread. */
typedef struct conv_call {
    direct_conv *conv;
    size_t batch;
    const void *in[3];
    void *out[2];
} conv_call;

static size_t call_blocks(const conv_call *call) {
    return (call->batch + DIRECT_LANES - 1) / DIRECT_LANES;
}

static cudaError_t run_forward(void *payload) {
    const conv_call *call = payload;
    const direct_conv *conv = call->conv;
    conv->math->isa->forward[conv->plans.dtype](&conv->plans.forward, call_blocks(call), call->in[0], call->in[1],
                                                call->in[2], call->out[0], conv->pool.index);
    return cudaSuccess;
}

static direct_gradient gradient_of(const direct_conv *conv, const void *dy) {
    return (direct_gradient){.dy = dy, .index = conv->pool.index, .y = conv->pool.y};
}

static cudaError_t run_backward_input(void *payload) {
    const conv_call *call = payload;
    const direct_conv *conv = call->conv;
    const direct_gradient dy = gradient_of(conv, call->in[0]);
    conv->math->isa->backward[conv->plans.dtype](&conv->plans.backward_input, call_blocks(call), &dy, call->in[1],
                                                 call->out[0]);
    return cudaSuccess;
}

static cudaError_t run_backward_params(void *payload) {
    const conv_call *call = payload;
    const direct_conv *conv = call->conv;
    const direct_gradient dy = gradient_of(conv, call->in[1]);
    conv->math->isa->correlate[conv->plans.dtype](&conv->plans.backward_params, call_blocks(call), call->in[0], &dy,
                                                  call->out[0], call->out[1]);
    return cudaSuccess;
}

/* The place noted for diagnostics stays the caller's. */
static ls_rc submit(const char *name, vgpu_operation run, const conv_call *call) {
    cudaError_t status = vgpu_submit(call->conv->math->stream, name, run, call, sizeof *call);
    return (ls_cuda_check)(status, name, __FILE__, __LINE__);
}

/* Bytes of what a call uses. */
typedef struct sizes {
    size_t x, y, weight, bias, index, relu;
} sizes;

static sizes sizes_of(const conv_call *call) {
    const direct_plans *plans = &call->conv->plans;
    const direct_gather *plan = &plans->forward;
    const bool pooled = plan->pool != NULL;
    size_t element = ls_dtype_size(plans->dtype);
    size_t samples = call_blocks(call) * DIRECT_LANES;
    size_t pixels = pooled ? plans->pool.out_height * plans->pool.out_width : plan->out_height * plan->out_width;
    size_t outputs = samples * plan->out_channels * pixels;
    return (sizes){
        .x = samples * plan->in_channels * plan->in_height * plan->in_width * element,
        .y = outputs * element,
        .weight = plan->out_channels * plan->in_channels * plan->tap_rows * plan->tap_columns * element,
        .bias = plan->out_channels * element,
        .index = pooled ? outputs : 0,
        .relu = pooled && plans->pool.relu ? outputs * element : 0,
    };
}

static ls_rc direct_open(ls_math *math, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch, void **state) {
    direct_conv *conv = ls_calloc(1, sizeof *conv, "a convolution");
    if (conv == NULL) {
        return LS_DEVICE_FAILED;
    }
    conv->math = math;
    ls_rc rc = direct_plans_make(math->isa, shape, dtype, max_batch, &conv->plans);
    if (rc != LS_OK) {
        free(conv);
        return rc;
    }
    *state = conv;
    return LS_OK;
}

static bool direct_pools(size_t kernel, size_t stride) {
    return kernel == stride && kernel <= 15 && vgpu_get_settings()->fuses;
}

static ls_rc direct_attach(void *state, const ls_conv_pool *pool) {
    direct_conv *conv = state;
    const direct_gather *plan = &conv->plans.forward;
    if (conv->pool.kernel != 0 || pool->kernel < 1 || pool->kernel > 15 || pool->kernel > plan->out_height ||
        pool->kernel > plan->out_width) {
        return ls_fail(LS_BAD_INPUT,
                       "a max-pooling of %zu x %zu in the same pass as a convolution: expected one that fits its %zu x "
                       "%zu outputs, 15 at most, and no other before",
                       pool->kernel, pool->kernel, plan->out_height, plan->out_width);
    }
    LS_TRY(direct_plans_pool(conv->math->isa, &conv->plans, pool->kernel, pool->relu));
    conv->pool = *pool;
    return LS_OK;
}

static ls_rc direct_forward(void *state, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    direct_conv *conv = state;
    conv_call call = {.conv = conv, .batch = batch, .in = {x, weight, bias}, .out = {y, NULL}};
    LS_ACCESS(LS_READS(x, sizes_of(&call).x), LS_READS(weight, sizes_of(&call).weight),
              LS_READS(bias, sizes_of(&call).bias), LS_WRITES(y, sizes_of(&call).y),
              LS_WRITES(conv->pool.index, sizes_of(&call).index));
    return submit("conv forward", run_forward, &call);
}

static ls_rc direct_backward_input(void *state, size_t batch, const void *dy, const void *weight, void *dx) {
    direct_conv *conv = state;
    conv_call call = {.conv = conv, .batch = batch, .in = {dy, weight, NULL}, .out = {dx, NULL}};
    LS_ACCESS(LS_READS(dy, sizes_of(&call).y), LS_READS(weight, sizes_of(&call).weight),
              LS_READS(conv->pool.index, sizes_of(&call).index), LS_READS(conv->pool.y, sizes_of(&call).relu),
              LS_WRITES(dx, sizes_of(&call).x));
    return submit("conv backward input", run_backward_input, &call);
}

static ls_rc direct_backward_params(void *state, size_t batch, const void *x, const void *dy, void *dweight,
                                    void *dbias) {
    direct_conv *conv = state;
    conv_call call = {.conv = conv, .batch = batch, .in = {x, dy, NULL}, .out = {dweight, dbias}};
    LS_ACCESS(LS_READS(x, sizes_of(&call).x), LS_READS(dy, sizes_of(&call).y),
              LS_READS(conv->pool.index, sizes_of(&call).index), LS_READS(conv->pool.y, sizes_of(&call).relu),
              LS_WRITES(dweight, sizes_of(&call).weight), LS_WRITES(dbias, sizes_of(&call).bias));
    return submit("conv backward params", run_backward_params, &call);
}

/* Waits for the stream first: its operations may still use the plans. */
static void direct_close(void *state) {
    direct_conv *conv = state;
    (void)ls_cuda_check(cudaStreamSynchronize(conv->math->stream), "closing a convolution", __FILE__, __LINE__);
    direct_plans_free(&conv->plans);
    free(conv);
}

static const ls_layer_engine direct_engine = {.open = direct_open,
                                              .forward = direct_forward,
                                              .backward_input = direct_backward_input,
                                              .backward_params = direct_backward_params,
                                              .close = direct_close,
                                              .pools = direct_pools,
                                              .attach = direct_attach};

const ls_layer_engine *ls_platform_conv_engine(void) {
    return &direct_engine;
}
