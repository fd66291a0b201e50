#include <math.h>

#include "reference/model.h"
#include "reference/rng.h"

static void init_exact(const ls_model *model, float *flat) {
    for (size_t p = 0; p < model->param_tensors; p++) {
        const ls_param *param = &model->params[p];
        for (size_t i = 0; i < param->count; i++) {
            uint64_t bits = ls_splitmix64(((uint64_t)p << 40) + (uint64_t)i);
            bool zero = param->dims > 1 && bits % 16 != 0;
            flat[param->offset + i] = zero ? 0.0F : (bits >> 32) % 2 == 0 ? 1.0F : -1.0F;
        }
    }
}

void ls_model_init(const ls_model *model, uint64_t seed, float *flat) {
    if (model->init == LS_INIT_EXACT) {
        init_exact(model, flat);
        return;
    }
    ls_mt19937 rng;
    ls_mt19937_seed(&rng, seed);
    for (size_t p = 0; p < model->param_tensors; p++) {
        const ls_param *param = &model->params[p];
        if (param->fan_in == 0) { /* batchnorm */
            for (size_t i = 0; i < param->count; i++) {
                flat[param->offset + i] = p == model->layers[param->layer].weight ? 1.0F : 0.0F;
            }
            continue;
        }
        /* torch computes the bound of a weight as sqrt(3)*gain/sqrt(fan_in) with gain = sqrt(2/(1+5)) and that of a bias
         * as 1/sqrt(fan_in), both in double; the products may differ in the last bit of a double, so keep both. */
        double fan_in = (double)param->fan_in;
        bool weight = param->dims > 1;
        double bound =
            weight ? sqrt(3.0) * (sqrt(2.0 / (1.0 + sqrt(5.0) * sqrt(5.0))) / sqrt(fan_in)) : 1.0 / sqrt(fan_in);
        for (size_t i = 0; i < param->count; i++) {
            flat[param->offset + i] = ls_mt19937_uniform(&rng, (float)-bound, (float)bound);
        }
    }
}

void ls_model_init_buffers(const ls_model *model, float *values, int64_t *tracked) {
    for (size_t b = 0; b < model->buffer_tensors; b++) {
        const ls_buffer *buffer = &model->buffers[b];
        if (buffer->is_count) {
            tracked[buffer->offset] = 0;
            continue;
        }
        bool mean = b == model->layers[buffer->layer].buffer;
        for (size_t i = 0; i < buffer->count; i++) {
            values[buffer->offset + i] = mean ? 0.0F : 1.0F;
        }
    }
}
