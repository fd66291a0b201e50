/* Benchmarks of the layers with weights: forward, gradient of the input, gradient of the parameters, of every such layer of
 * the networks of bench/micro/step.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/micro.h"
#include "bench/micro/step.h"
#include "bench/micro/timed.h"
#include "gpu/layer_math.h"
#include "impls/rank.h"

enum { BATCH = 64, MAX_ENTRIES = 256 };

typedef enum pass { FORWARD, BACKWARD_INPUT, BACKWARD_PARAMS, PASSES } pass;
static const char *const pass_names[PASSES] = {"forward", "backward_input", "backward_params"};

typedef struct entry {
    ls_layer layer;
    size_t weights;
    double flops; /* of a sample */
    ls_dtype dtype;
    pass pass;
} entry;

static entry *entries;
static size_t entry_count;

typedef struct layer_under_test {
    const entry *e;
    cudaStream_t stream;
    ls_math *math;
    ls_conv *conv;
    ls_linear *linear;
    void *x, *y, *weight, *bias; /* values or gradients, as the pass wants */
} layer_under_test;

static ls_rc launch(void *self) {
    layer_under_test *t = self;
    if (t->conv != NULL) {
        switch (t->e->pass) {
        case FORWARD:
            return ls_conv_forward(t->conv, BATCH, t->x, t->weight, t->bias, t->y);
        case BACKWARD_INPUT:
            return ls_conv_backward_input(t->conv, BATCH, t->y, t->weight, t->x);
        default:
            return ls_conv_backward_params(t->conv, BATCH, t->x, t->y, t->weight, t->bias);
        }
    }
    switch (t->e->pass) {
    case FORWARD:
        return ls_linear_forward(t->linear, BATCH, t->x, t->weight, t->bias, t->y);
    case BACKWARD_INPUT:
        return ls_linear_backward_input(t->linear, BATCH, t->y, t->weight, t->x);
    default:
        return ls_linear_backward_params(t->linear, BATCH, t->x, t->y, t->weight, t->bias);
    }
}

static ls_rc allocate(void **out, size_t bytes) {
    LS_CUDA(cudaMalloc(out, bytes));
    LS_CUDA(cudaMemset(*out, 0x3f, bytes));
    return LS_OK;
}

static ls_rc open_layer(layer_under_test *t) {
    const ls_layer *l = &t->e->layer;
    size_t size = ls_dtype_size(t->e->dtype);
    LS_CUDA(cudaSetDevice(0));
    LS_CUDA(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking));
    LS_TRY(ls_math_open(t->stream, &t->math));
    LS_TRY(allocate(&t->x, ls_activation_count(BATCH, ls_shape_features(l->in)) * size));
    LS_TRY(allocate(&t->y, ls_activation_count(BATCH, ls_shape_features(l->out)) * size));
    LS_TRY(allocate(&t->weight, t->e->weights * size));
    LS_TRY(allocate(&t->bias, l->out.channels * size));
    LS_CUDA(cudaDeviceSynchronize());
    if (l->kind == LS_LAYER_LINEAR) {
        return ls_linear_open(t->math, ls_shape_features(l->in), ls_shape_features(l->out), t->e->dtype, BATCH,
                              &t->linear);
    }
    ls_conv_shape shape = {.in_channels = l->in.channels,
                           .in_height = l->in.height,
                           .in_width = l->in.width,
                           .out_channels = l->out.channels,
                           .kernel_height = l->kernel,
                           .kernel_width = l->kernel,
                           .stride = l->stride,
                           .padding = l->padding};
    return ls_conv_open(t->math, &shape, t->e->dtype, BATCH, &t->conv);
}

static void close_layer(layer_under_test *t) {
    if (t->stream != NULL) {
        (void)cudaStreamSynchronize(t->stream);
    }
    if (t->conv != NULL) {
        ls_conv_close(t->conv);
    }
    if (t->linear != NULL) {
        ls_linear_close(t->linear);
    }
    if (t->math != NULL) {
        ls_math_close(t->math);
    }
    (void)cudaFree(t->x);
    (void)cudaFree(t->y);
    (void)cudaFree(t->weight);
    (void)cudaFree(t->bias);
    if (t->stream != NULL) {
        (void)cudaStreamDestroy(t->stream);
    }
}

static void run(ls_gbench_state *state, void *argument) {
    const entry *e = argument;
    layer_under_test t = {.e = e};
    double values = (double)(BATCH * (ls_shape_features(e->layer.in) + ls_shape_features(e->layer.out)) + e->weights);
    ls_micro_work work = {
        .bytes = values * (double)ls_dtype_size(e->dtype), .operations = BATCH * e->flops, .dtype = e->dtype};
    ls_rc rc = open_layer(&t);
    if (rc == LS_OK) {
        rc = ls_micro_timed(state, t.stream, &work, launch, &t);
    }
    if (rc != LS_OK) {
        ls_gbench_fail(state, rc, "the layer could not be measured");
    }
    close_layer(&t);
}

static ls_rc add_layer(const ls_micro_model *named, const ls_model *model, const ls_layer *layer, bool first) {
    for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
        for (pass p = 0; p < PASSES; p++) {
            char name[192];
            if (first && p == BACKWARD_INPUT) {
                continue; /* nobody needs the gradient of the images */
            }
            if (entry_count == MAX_ENTRIES) {
                return ls_fail(LS_DEVICE_FAILED, "more than %d benchmarks of layers", MAX_ENTRIES);
            }
            entry *e = &entries[entry_count++];
            *e = (entry){.layer = *layer,
                         .weights = model->params[layer->weight].count,
                         .flops = ls_micro_layer_flops(layer, model),
                         .dtype = dtype,
                         .pass = p};
            snprintf(name, sizeof name, "layer/%s/%s.%s/%s/%s/batch:%d", named->label, ls_layer_kind_name(layer->kind),
                     layer->name, pass_names[p], ls_dtype_name(dtype), BATCH);
            ls_gbench_register(name, LS_GBENCH_WALL, run, e);
        }
    }
    return LS_OK;
}

ls_rc ls_micro_add_layers(const ls_micro_options *options) {
    (void)options;
    entries = ls_calloc(MAX_ENTRIES, sizeof *entries, "benchmarks");
    if (entries == NULL) {
        return LS_DEVICE_FAILED;
    }
    entry_count = 0;
    for (const ls_micro_model *named = ls_micro_models; named->label != NULL; named++) {
        ls_run description;
        ls_model model;
        ls_normalize normalize;
        bool first = true;
        ls_micro_step_run(named->model, LS_FLOAT32, BATCH, &description);
        LS_TRY(ls_run_model(&description, &model, &normalize));
        for (size_t i = 0; i < model.layer_count; i++) {
            if (ls_micro_layer_flops(&model.layers[i], &model) > 0) {
                LS_TRY(add_layer(named, &model, &model.layers[i], first));
                first = false;
            }
        }
    }
    return LS_OK;
}

void ls_micro_end_layers(void) {
    free(entries);
    entries = NULL;
}
