#include "bench/micro/step.h"

#include <stdio.h>
#include <stdlib.h>

#include "impls/options.h"

const ls_micro_model ls_micro_models[] = {
    {"seed-cnn", "seed-cnn"},
    {"seed-conv", "seed-conv"},
    {"cnn-20-50-500", "input 1x28x28; conv 20 k5; maxpool 2; relu; conv 50 k5; maxpool 2; relu; flatten; linear 500; "
                      "relu; linear 10"},
    {NULL, NULL},
};

void ls_micro_step_run(const char *model, ls_dtype dtype, size_t batch, ls_run *run) {
    ls_run_defaults(run);
    snprintf(run->model, sizeof run->model, "%s", model);
    snprintf(run->data, sizeof run->data, "synthetic:64"); /* for its shape; nothing is read */
    run->dtype = dtype;
    run->batch = batch;
    run->devices = 1;
}

ls_rc ls_micro_batch_make(const ls_model *model, size_t count, size_t seed, ls_micro_batch *out) {
    size_t features = ls_shape_features(model->input);
    *out = (ls_micro_batch){0};
    /* indices first, for their alignment */
    out->memory = ls_calloc(count, sizeof(size_t) + sizeof(int32_t) + features, "a batch");
    if (out->memory == NULL) {
        return LS_DEVICE_FAILED;
    }
    size_t *indices = out->memory;
    int32_t *labels = (int32_t *)(indices + count);
    uint8_t *pixels = (uint8_t *)(labels + count);
    uint64_t random = seed * 2 + 1;
    for (size_t i = 0; i < count * features; i++) {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL; /* Knuth, MMIX */
        pixels[i] = (uint8_t)(random >> 56);
    }
    for (size_t i = 0; i < count; i++) {
        indices[i] = i;
        labels[i] = (int32_t)(i % model->classes);
    }
    out->batch = (ls_batch){.count = count, .pixels = pixels, .labels = labels, .indices = indices};
    return LS_OK;
}

void ls_micro_batch_free(ls_micro_batch *batch) {
    free(batch->memory);
    *batch = (ls_micro_batch){0};
}

double ls_micro_layer_flops(const ls_layer *layer, const ls_model *model) {
    if (layer->kind != LS_LAYER_CONV && layer->kind != LS_LAYER_LINEAR) {
        return 0;
    }
    /* each weight takes part once in every position of its output channel */
    double positions = layer->kind == LS_LAYER_CONV ? (double)(layer->out.height * layer->out.width) : 1;
    return 2 * positions * (double)model->params[layer->weight].count;
}

/* Behind a max-pooling of windows side by side one output of a window has a gradient. */
static double gradient_share(const ls_layer *layer, size_t behind) {
    const ls_layer *pool = &layer[1];
    if (behind == 0 || layer->kind != LS_LAYER_CONV || pool->kind != LS_LAYER_MAXPOOL || pool->kernel != pool->stride) {
        return 1;
    }
    return (double)ls_shape_features(pool->out) / (double)ls_shape_features(layer->out);
}

double ls_micro_step_flops(const ls_model *model) {
    double total = 0;
    bool first = true;
    for (size_t i = 0; i < model->layer_count; i++) {
        double flops = ls_micro_layer_flops(&model->layers[i], model);
        double gradient = flops * gradient_share(&model->layers[i], model->layer_count - 1 - i);
        total += flops + (first && flops > 0 ? 1 : 2) * gradient;
        first = first && flops == 0;
    }
    return total;
}
