/* Convolution and linear layers on any platform: what is checked, and which engine computes. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/layer_engine.h"

static atomic_int chosen_mode = LS_MATH_EXACT;

void ls_math_set_mode(ls_math_mode mode) {
    atomic_store(&chosen_mode, mode);
}

ls_math_mode ls_math_get_mode(void) {
    return (ls_math_mode)atomic_load(&chosen_mode);
}

static const char *const mode_names[] = {
    [LS_MATH_EXACT] = "exact", [LS_MATH_FAST] = "fast", [LS_MATH_IM2COL] = "im2col"};

const char *ls_math_mode_name(ls_math_mode mode) {
    return mode_names[mode];
}

bool ls_math_mode_find(const char *name, ls_math_mode *out) {
    for (size_t i = 0; i < sizeof mode_names / sizeof *mode_names; i++) {
        if (strcmp(mode_names[i], name) == 0) {
            *out = (ls_math_mode)i;
            return true;
        }
    }
    return false;
}

/* What ls_conv and ls_linear both are. */
typedef struct layer {
    const ls_layer_engine *engine;
    void *state;
    cudaStream_t stream;
    size_t max_batch;
    size_t weight_bytes, bias_bytes;
} layer;

struct ls_conv {
    layer layer;
};
struct ls_linear {
    layer layer;
};

/* By the mode of this process. */
static const ls_layer_engine *choose_engine(const ls_layer_engine *own) {
    return ls_math_get_mode() == LS_MATH_IM2COL || own == NULL ? &ls_im2col_engine : own;
}

static ls_rc open_layer(ls_math *math, const ls_layer_engine *own, const ls_conv_shape *s, ls_dtype dtype,
                        size_t max_batch, layer *out) {
    size_t element = ls_dtype_size(dtype);
    *out = (layer){.engine = choose_engine(own),
                   .stream = ls_math_stream(math),
                   .max_batch = max_batch,
                   .weight_bytes = s->out_channels * s->in_channels * s->kernel_height * s->kernel_width * element,
                   .bias_bytes = s->out_channels * element};
    size_t planned = max_batch > 0 ? max_batch : 1;
    LS_TRY(out->engine->open(math, s, dtype, planned, &out->state));
    if (out->state == NULL) {
        out->engine = &ls_im2col_engine;
        LS_TRY(out->engine->open(math, s, dtype, planned, &out->state));
    }
    return LS_OK;
}

static ls_rc forward(layer *l, const char *call, size_t batch, const void *x, const void *weight, const void *bias,
                     void *y) {
    LS_TRY(ls_batch_check(call, batch, l->max_batch));
    return batch == 0 ? LS_OK : l->engine->forward(l->state, batch, x, weight, bias, y);
}

static ls_rc backward_input(layer *l, const char *call, size_t batch, const void *dy, const void *weight, void *dx) {
    LS_TRY(ls_batch_check(call, batch, l->max_batch));
    return batch == 0 ? LS_OK : l->engine->backward_input(l->state, batch, dy, weight, dx);
}

/* The place noted for diagnostics stays the caller's. */
static ls_rc zero(const layer *l, void *memory, size_t bytes) {
    return (ls_cuda_check)(cudaMemsetAsync(memory, 0, bytes, l->stream), "the gradient of an empty batch", __FILE__,
                           __LINE__);
}

/* Without samples the sums are empty. */
static ls_rc backward_params(layer *l, const char *call, size_t batch, const void *x, const void *dy, void *dweight,
                             void *dbias) {
    LS_TRY(ls_batch_check(call, batch, l->max_batch));
    if (batch > 0) {
        return l->engine->backward_params(l->state, batch, x, dy, dweight, dbias);
    }
    LS_TRY(zero(l, dweight, l->weight_bytes));
    return dbias == NULL ? LS_OK : zero(l, dbias, l->bias_bytes);
}

static void close_layer(layer *l) {
    if (l->state != NULL) {
        l->engine->close(l->state);
    }
}

ls_rc ls_conv_open(ls_math *math, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch, ls_conv **out) {
    *out = NULL;
    LS_TRY(ls_conv_shape_check(shape));
    ls_conv *conv = ls_calloc(1, sizeof *conv, "a convolution");
    if (conv == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_rc rc = open_layer(math, ls_platform_conv_engine(), shape, dtype, max_batch, &conv->layer);
    if (rc != LS_OK) {
        ls_conv_close(conv);
        return rc;
    }
    *out = conv;
    return LS_OK;
}

bool ls_conv_pools(size_t kernel, size_t stride) {
    const ls_layer_engine *engine = choose_engine(ls_platform_conv_engine());
    return engine->pools != NULL && engine->pools(kernel, stride);
}

ls_rc ls_conv_attach(ls_conv *conv, const ls_conv_pool *pool) {
    const ls_layer_engine *engine = conv->layer.engine;
    if (engine->attach == NULL) {
        return ls_fail(LS_BAD_INPUT,
                       "a max-pooling of %zu x %zu in the same pass as a convolution: the engine of this convolution "
                       "computes none",
                       pool->kernel, pool->kernel);
    }
    return engine->attach(conv->layer.state, pool);
}

ls_rc ls_conv_forward(ls_conv *conv, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    return forward(&conv->layer, "ls_conv_forward", batch, x, weight, bias, y);
}

ls_rc ls_conv_backward_input(ls_conv *conv, size_t batch, const void *dy, const void *weight, void *dx) {
    return backward_input(&conv->layer, "ls_conv_backward_input", batch, dy, weight, dx);
}

ls_rc ls_conv_backward_params(ls_conv *conv, size_t batch, const void *x, const void *dy, void *dweight, void *dbias) {
    return backward_params(&conv->layer, "ls_conv_backward_params", batch, x, dy, dweight, dbias);
}

void ls_conv_close(ls_conv *conv) {
    if (conv != NULL) {
        close_layer(&conv->layer);
        free(conv);
    }
}

ls_rc ls_linear_open(ls_math *math, size_t in_features, size_t out_features, ls_dtype dtype, size_t max_batch,
                     ls_linear **out) {
    *out = NULL;
    LS_TRY(ls_linear_shape_check(in_features, out_features));
    ls_linear *linear = ls_calloc(1, sizeof *linear, "a linear layer");
    if (linear == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_conv_shape shape = {.in_channels = in_features,
                           .in_height = 1,
                           .in_width = 1,
                           .out_channels = out_features,
                           .kernel_height = 1,
                           .kernel_width = 1,
                           .stride = 1,
                           .padding = 0};
    ls_rc rc = open_layer(math, ls_platform_linear_engine(), &shape, dtype, max_batch, &linear->layer);
    if (rc != LS_OK) {
        ls_linear_close(linear);
        return rc;
    }
    *out = linear;
    return LS_OK;
}

ls_rc ls_linear_forward(ls_linear *linear, size_t batch, const void *x, const void *weight, const void *bias, void *y) {
    return forward(&linear->layer, "ls_linear_forward", batch, x, weight, bias, y);
}

ls_rc ls_linear_backward_input(ls_linear *linear, size_t batch, const void *dy, const void *weight, void *dx) {
    return backward_input(&linear->layer, "ls_linear_backward_input", batch, dy, weight, dx);
}

ls_rc ls_linear_backward_params(ls_linear *linear, size_t batch, const void *x, const void *dy, void *dweight,
                                void *dbias) {
    return backward_params(&linear->layer, "ls_linear_backward_params", batch, x, dy, dweight, dbias);
}

void ls_linear_close(ls_linear *linear) {
    if (linear != NULL) {
        close_layer(&linear->layer);
        free(linear);
    }
}
