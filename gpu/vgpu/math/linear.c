/* Linear layers by the direct engine, on a stream: each call is one operation of the stream's thread. */
#include <stdlib.h>

#include "gpu/layer_engine.h"
#include "gpu/vgpu/internal.h"
#include "gpu/vgpu/math/plan.h"

typedef struct linear_layer {
    ls_math *math;
    direct_linear plans;
} linear_layer;

/* What an operation carries to the stream's thread. */
typedef struct linear_call {
    linear_layer *linear;
    size_t batch;
    const void *in[3];
    void *out[2];
} linear_call;

static size_t call_blocks(const linear_call *call) {
    return (call->batch + DIRECT_LANES - 1) / DIRECT_LANES;
}

static cudaError_t run_forward(void *payload) {
    const linear_call *call = payload;
    direct_linear_forward(call->linear->math->isa, &call->linear->plans, call_blocks(call), call->in[0], call->in[1],
                          call->in[2], call->out[0]);
    return cudaSuccess;
}

static cudaError_t run_backward_input(void *payload) {
    const linear_call *call = payload;
    direct_linear_backward_input(call->linear->math->isa, &call->linear->plans, call_blocks(call), call->in[0],
                                 call->in[1], call->out[0]);
    return cudaSuccess;
}

static cudaError_t run_backward_params(void *payload) {
    const linear_call *call = payload;
    direct_linear_backward_params(call->linear->math->isa, &call->linear->plans, call_blocks(call), call->in[0],
                                  call->in[1], call->out[0], call->out[1]);
    return cudaSuccess;
}

/* The place noted for diagnostics stays the caller's. */
static ls_rc submit(const char *name, vgpu_operation run, const linear_call *call) {
    cudaError_t status = vgpu_submit(call->linear->math->stream, name, run, call, sizeof *call);
    return (ls_cuda_check)(status, name, __FILE__, __LINE__);
}

/* Bytes of what a call uses. */
typedef struct sizes {
    size_t x, y, weight, bias;
} sizes;

static sizes sizes_of(const linear_call *call) {
    const direct_linear *plans = &call->linear->plans;
    size_t element = ls_dtype_size(plans->dtype);
    size_t samples = call_blocks(call) * DIRECT_LANES;
    return (sizes){.x = samples * plans->in * element,
                   .y = samples * plans->out * element,
                   .weight = plans->in * plans->out * element,
                   .bias = plans->out * element};
}

static ls_rc linear_open(ls_math *math, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch, void **state) {
    linear_layer *linear = ls_calloc(1, sizeof *linear, "a linear layer");
    if (linear == NULL) {
        return LS_DEVICE_FAILED;
    }
    linear->math = math;
    ls_rc rc = direct_linear_make(math->isa, shape->in_channels, shape->out_channels, dtype, max_batch, &linear->plans);
    if (rc != LS_OK) {
        free(linear);
        return rc;
    }
    *state = linear;
    return LS_OK;
}

static ls_rc linear_forward(void *state, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    linear_call call = {.linear = state, .batch = batch, .in = {x, weight, bias}, .out = {y, NULL}};
    LS_ACCESS(LS_READS(x, sizes_of(&call).x), LS_READS(weight, sizes_of(&call).weight),
              LS_READS(bias, sizes_of(&call).bias), LS_WRITES(y, sizes_of(&call).y));
    return submit("linear forward", run_forward, &call);
}

static ls_rc linear_backward_input(void *state, size_t batch, const void *dy, const void *weight, void *dx) {
    linear_call call = {.linear = state, .batch = batch, .in = {dy, weight, NULL}, .out = {dx, NULL}};
    LS_ACCESS(LS_READS(dy, sizes_of(&call).y), LS_READS(weight, sizes_of(&call).weight),
              LS_WRITES(dx, sizes_of(&call).x));
    return submit("linear backward input", run_backward_input, &call);
}

static ls_rc linear_backward_params(void *state, size_t batch, const void *x, const void *dy, void *dweight,
                                    void *dbias) {
    linear_call call = {.linear = state, .batch = batch, .in = {x, dy, NULL}, .out = {dweight, dbias}};
    LS_ACCESS(LS_READS(x, sizes_of(&call).x), LS_READS(dy, sizes_of(&call).y),
              LS_WRITES(dweight, sizes_of(&call).weight), LS_WRITES(dbias, sizes_of(&call).bias));
    return submit("linear backward params", run_backward_params, &call);
}

/* Waits for the stream first: its operations may still use the plans. */
static void linear_close(void *state) {
    linear_layer *linear = state;
    (void)ls_cuda_check(cudaStreamSynchronize(linear->math->stream), "closing a linear layer", __FILE__, __LINE__);
    direct_linear_free(&linear->plans);
    free(linear);
}

static const ls_layer_engine linear_engine = {.open = linear_open,
                                              .forward = linear_forward,
                                              .backward_input = linear_backward_input,
                                              .backward_params = linear_backward_params,
                                              .close = linear_close};

const ls_layer_engine *ls_platform_linear_engine(void) {
    return &linear_engine;
}
