/* Convolutions on a stream: each call is one operation of the stream's thread. */
#include <stdlib.h>

#include "gpu/vgpu/internal.h"
#include "gpu/vgpu/math/plan.h"

struct ls_conv {
    ls_math *math;
    direct_plans plans;
};

/* What an operation carries to the stream's thread. */
typedef struct conv_call {
    ls_conv *conv;
    size_t batch;
    const void *in[3];
    void *out[2];
} conv_call;

static size_t call_blocks(const conv_call *call) {
    return (call->batch + DIRECT_LANES - 1) / DIRECT_LANES;
}

static cudaError_t run_forward(void *payload) {
    const conv_call *call = payload;
    const ls_conv *conv = call->conv;
    conv->math->isa->gather[conv->plans.dtype](&conv->plans.forward, call_blocks(call), call->in[0], call->in[1],
                                               call->in[2], call->out[0]);
    return cudaSuccess;
}

static cudaError_t run_backward_input(void *payload) {
    const conv_call *call = payload;
    const ls_conv *conv = call->conv;
    conv->math->isa->gather[conv->plans.dtype](&conv->plans.backward_input, call_blocks(call), call->in[0], call->in[1],
                                               NULL, call->out[0]);
    return cudaSuccess;
}

static cudaError_t run_backward_params(void *payload) {
    const conv_call *call = payload;
    const direct_plans *plans = &call->conv->plans;
    call->conv->math->isa->correlate[plans->dtype](&plans->backward_params, call_blocks(call), call->in[0], call->in[1],
                                                   call->out[0], call->out[1]);
    return cudaSuccess;
}

/* The place noted for diagnostics stays the caller's. */
static ls_rc submit(const char *name, vgpu_operation run, const conv_call *call) {
    LS_TRY(ls_batch_check(name, call->batch, call->conv->plans.max_batch));
    cudaError_t status = vgpu_submit(call->conv->math->stream, name, run, call, sizeof *call);
    return (ls_cuda_check)(status, name, __FILE__, __LINE__);
}

/* Bytes of what a call uses. */
typedef struct sizes {
    size_t x, y, weight, bias;
} sizes;

static sizes sizes_of(const conv_call *call) {
    const direct_gather *plan = &call->conv->plans.forward;
    size_t element = ls_dtype_size(call->conv->plans.dtype);
    size_t samples = call_blocks(call) * DIRECT_LANES;
    return (sizes){
        .x = samples * plan->in_channels * plan->in_height * plan->in_width * element,
        .y = samples * plan->out_channels * plan->out_height * plan->out_width * element,
        .weight = plan->out_channels * plan->in_channels * plan->tap_rows * plan->tap_columns * element,
        .bias = plan->out_channels * element,
    };
}

ls_rc ls_conv_open(ls_math *math, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch, ls_conv **out) {
    *out = NULL;
    LS_TRY(ls_conv_shape_check(shape));
    ls_conv *conv = ls_calloc(1, sizeof *conv, "a convolution");
    if (conv == NULL) {
        return LS_DEVICE_FAILED;
    }
    conv->math = math;
    ls_rc rc = direct_plans_make(math->isa, shape, dtype, max_batch, &conv->plans);
    if (rc != LS_OK) {
        free(conv);
        return rc;
    }
    *out = conv;
    return LS_OK;
}

ls_rc ls_conv_forward(ls_conv *conv, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    conv_call call = {.conv = conv, .batch = batch, .in = {x, weight, bias}, .out = {y, NULL}};
    LS_ACCESS(LS_READS(x, sizes_of(&call).x), LS_READS(weight, sizes_of(&call).weight),
              LS_READS(bias, sizes_of(&call).bias), LS_WRITES(y, sizes_of(&call).y));
    return submit("conv forward", run_forward, &call);
}

ls_rc ls_conv_backward_input(ls_conv *conv, size_t batch, const void *dy, const void *weight, void *dx) {
    conv_call call = {.conv = conv, .batch = batch, .in = {dy, weight, NULL}, .out = {dx, NULL}};
    LS_ACCESS(LS_READS(dy, sizes_of(&call).y), LS_READS(weight, sizes_of(&call).weight),
              LS_WRITES(dx, sizes_of(&call).x));
    return submit("conv backward input", run_backward_input, &call);
}

ls_rc ls_conv_backward_params(ls_conv *conv, size_t batch, const void *x, const void *dy, void *dweight, void *dbias) {
    conv_call call = {.conv = conv, .batch = batch, .in = {x, dy, NULL}, .out = {dweight, dbias}};
    LS_ACCESS(LS_READS(x, sizes_of(&call).x), LS_READS(dy, sizes_of(&call).y),
              LS_WRITES(dweight, sizes_of(&call).weight), LS_WRITES(dbias, sizes_of(&call).bias));
    return submit("conv backward params", run_backward_params, &call);
}

/* Waits for the stream first: its operations may still use the plans. */
void ls_conv_close(ls_conv *conv) {
    if (conv == NULL) {
        return;
    }
    (void)ls_cuda_check(cudaStreamSynchronize(conv->math->stream), "closing a convolution", __FILE__, __LINE__);
    direct_plans_free(&conv->plans);
    free(conv);
}
