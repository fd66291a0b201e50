/* The passes over the layers of a model, in blocks of samples, with the running bound on the device's forward error. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/oracle/passes.h"

enum { LANES = LS_ORACLE_LANES };

const ls_oracle_kind *const ls_oracle_kinds[LS_LAYER_KIND_COUNT] = {
    [LS_LAYER_CONV] = &ls_oracle_conv,           [LS_LAYER_MAXPOOL] = &ls_oracle_maxpool,
    [LS_LAYER_RELU] = &ls_oracle_relu,           [LS_LAYER_FLATTEN] = &ls_oracle_flatten,
    [LS_LAYER_LINEAR] = &ls_oracle_linear,       [LS_LAYER_LOG_SOFTMAX] = &ls_oracle_log_softmax,
    [LS_LAYER_AVGPOOL] = &ls_oracle_avgpool,     [LS_LAYER_DROPOUT] = &ls_oracle_dropout,
    [LS_LAYER_BATCHNORM] = &ls_oracle_batchnorm,
};

static size_t values_at(const ls_model *model, size_t layer) {
    return ls_shape_features(layer < model->layer_count ? model->layers[layer].in : model->layers[layer - 1].out);
}

size_t ls_oracle_block_offset(const ls_model *model, size_t layer, size_t block) {
    return block * values_at(model, layer) * LANES;
}

static double *doubles(size_t count) {
    return calloc(count > 0 ? count : 1, sizeof(double));
}

static void free_blocks(ls_oracle *oracle) {
    for (size_t l = 0; l <= LS_MODEL_MAX_LAYERS; l++) {
        free(oracle->values[l]);
        free(oracle->errors[l]);
        oracle->values[l] = oracle->errors[l] = NULL;
    }
    for (size_t l = 0; l < LS_MODEL_MAX_LAYERS; l++) {
        free(oracle->choices[l]);
        oracle->choices[l] = NULL;
    }
    double **flat[] = {&oracle->dy, &oracle->dx, &oracle->scratch, &oracle->scratch_dy};
    for (size_t i = 0; i < sizeof flat / sizeof flat[0]; i++) {
        free(*flat[i]);
        *flat[i] = NULL;
    }
    oracle->blocks = 0;
}

/* Room for groups of so many blocks. */
static int reserve(ls_oracle *oracle, size_t blocks) {
    if (blocks <= oracle->blocks) {
        return 0;
    }
    free_blocks(oracle);
    const ls_model *model = oracle->model;
    bool complete = true;
    for (size_t l = 0; l <= model->layer_count; l++) {
        size_t count = values_at(model, l) * LANES * blocks;
        oracle->values[l] = doubles(count);
        oracle->errors[l] = doubles(count);
        complete = complete && oracle->values[l] != NULL && oracle->errors[l] != NULL;
        if (l < model->layer_count) {
            oracle->choices[l] = calloc(values_at(model, l + 1) * LANES * blocks, 1);
            complete = complete && oracle->choices[l] != NULL;
        }
    }
    double **flat[] = {&oracle->dy, &oracle->dx, &oracle->scratch, &oracle->scratch_dy};
    for (size_t i = 0; i < sizeof flat / sizeof flat[0]; i++) {
        *flat[i] = doubles(oracle->widest * LANES * blocks);
        complete = complete && *flat[i] != NULL;
    }
    oracle->blocks = complete ? blocks : 0;
    return complete ? 0 : -1;
}

int ls_oracle_open(const ls_model *model, ls_oracle **out) {
    *out = NULL;
    ls_oracle *oracle = calloc(1, sizeof *oracle);
    if (oracle == NULL) {
        return -1;
    }
    oracle->model = model;
    bool complete = true;
    for (size_t l = 0; l <= model->layer_count; l++) {
        size_t count = values_at(model, l);
        oracle->widest = count > oracle->widest ? count : oracle->widest;
        if (l < model->layer_count && ls_oracle_kinds[model->layers[l].kind]->whole) {
            oracle->whole = true;
            oracle->statistics[l] = doubles(model->layers[l].in.channels * LS_ORACLE_STATISTICS);
            complete = complete && oracle->statistics[l] != NULL;
        }
    }
    oracle->weight = doubles(model->param_count);
    complete = complete && oracle->weight != NULL && reserve(oracle, 1) == 0;
    if (!complete) {
        ls_oracle_close(oracle);
        return -1;
    }
    *out = oracle;
    return 0;
}

void ls_oracle_close(ls_oracle *oracle) {
    if (oracle == NULL) {
        return;
    }
    free_blocks(oracle);
    for (size_t l = 0; l < LS_MODEL_MAX_LAYERS; l++) {
        free(oracle->statistics[l]);
    }
    free(oracle->weight);
    free(oracle);
}

/* The tensor of a parameter in a flat buffer, or NULL. */
static const double *tensor(const ls_model *model, size_t param, const double *flat) {
    return param == SIZE_MAX ? NULL : flat + model->params[param].offset;
}

static double *tensor_mutable(const ls_model *model, size_t param, double *flat) {
    return param == SIZE_MAX || flat == NULL ? NULL : flat + model->params[param].offset;
}

/* The forward error of y = sum(w*x) + b over n terms, added in any order: each term passes at most n+1 roundings (its
 * product, n-1 additions, the bias), so with x' the device's input, |x' - x| <= e, Higham's gamma_{n+1} gives
 *   |y' - y| <= sum|w|*e + gamma*(sum|w|*(|x| + e) + |b|).
 * That is the layer itself with |w|, gamma*|b| and inputs e + gamma*(|x| + e). The oracle's own roundings are as many, so
 * the unit roundoffs of both are added. (Higham, Accuracy and Stability of Numerical Algorithms, 3.1.) */
static void bound_affine(const ls_oracle *oracle, const ls_oracle_pass *pass, double unit_roundoff) {
    const ls_layer *layer = pass->layer;
    size_t outputs = layer->out.channels;
    size_t weights = oracle->model->params[layer->weight].count;
    size_t terms = weights / outputs + 1; /* of a sum: its products and the bias */
    double roundings = (double)terms * (unit_roundoff + DBL_EPSILON / 2);
    double gamma = roundings / (1 - roundings);
    size_t inputs = ls_shape_features(layer->in) * LANES;
    for (size_t i = 0; i < inputs; i++) {
        double e = pass->x_error[i];
        oracle->scratch[i] = e + gamma * (fabs(pass->x[i]) + e);
    }
    for (size_t i = 0; i < weights; i++) {
        oracle->weight[i] = fabs(pass->weight[i]);
    }
    ls_oracle_pass absolute = *pass;
    absolute.x = oracle->scratch;
    absolute.y = pass->y_error;
    absolute.weight = oracle->weight;
    absolute.bias = NULL;
    ls_oracle_kinds[layer->kind]->forward(&absolute);
    if (pass->bias != NULL) {
        size_t plane = ls_shape_features(layer->out) / outputs * LANES;
        for (size_t i = 0; i < outputs * plane; i++) {
            pass->y_error[i] += gamma * fabs(pass->bias[i / plane]);
        }
    }
}

ls_oracle_pass ls_oracle_make_pass(ls_oracle *oracle, const ls_oracle_input *input, size_t layer_index,
                                   const ls_oracle_group *g, size_t block, ls_oracle_decisions *report) {
    const ls_model *model = oracle->model;
    const ls_layer *layer = &model->layers[layer_index];
    bool bound = input->decisions != NULL && oracle->noise == NULL;
    if (oracle->noise != NULL) {
        oracle->noise->layer = layer_index;
    }
    size_t left = g->count - block * LANES;
    size_t in = ls_oracle_block_offset(model, layer_index, block);
    size_t out = ls_oracle_block_offset(model, layer_index + 1, block);
    ls_oracle_pass pass = {.layer = layer,
                           .layer_index = layer_index,
                           .used = left < LANES ? left : LANES,
                           .weight = tensor(model, layer->weight, input->params),
                           .bias = tensor(model, layer->bias, input->params),
                           .x = oracle->values[layer_index] + in,
                           .y = oracle->values[layer_index + 1] + out,
                           .x_error = bound ? oracle->errors[layer_index] + in : NULL,
                           .y_error = bound ? oracle->errors[layer_index + 1] + out : NULL,
                           .choice = oracle->choices[layer_index] + out,
                           .masked = input->decisions != NULL,
                           .follow_stride = model->decisions_per_sample,
                           .first_sample = g->first + block * LANES,
                           .report = report,
                           .unit_roundoff = input->unit_roundoff,
                           .blocks = g->blocks,
                           .count = g->count,
                           .statistics = oracle->statistics[layer_index],
                           .noise = oracle->noise};
    if (bound && layer->decisions > 0) {
        pass.follow = input->decisions + pass.first_sample * model->decisions_per_sample + layer->decision_offset;
    }
    return pass;
}

/* Passes that a layer takes for a group. */
static size_t passes_of(const ls_oracle *oracle, size_t layer, const ls_oracle_group *g) {
    return ls_oracle_kinds[oracle->model->layers[layer].kind]->whole ? 1 : g->blocks;
}

static void load_inputs(ls_oracle *oracle, const ls_oracle_input *input, const ls_oracle_group *g) {
    size_t features = values_at(oracle->model, 0);
    size_t bytes = g->blocks * features * LANES * sizeof(double);
    memset(oracle->values[0], 0, bytes);
    memset(oracle->errors[0], 0, bytes); /* inputs and parameters are the device's own */
    for (size_t i = 0; i < g->count; i++) {
        const double *x = input->x + (g->first + i) * features;
        double *to = oracle->values[0] + i / LANES * features * LANES + i % LANES;
        for (size_t f = 0; f < features; f++) {
            to[f * LANES] = x[f];
        }
    }
}

static void take_statistics(const ls_model *model, const ls_oracle_pass *pass, const ls_oracle_input *input) {
    const ls_buffer *buffers = &model->buffers[pass->layer->buffer];
    ls_oracle_batchnorm_statistics(pass, input->statistics + buffers[0].offset, input->statistics + buffers[1].offset,
                                   input->statistics_error + buffers[0].offset,
                                   input->statistics_error + buffers[1].offset);
}

static void forward(ls_oracle *oracle, const ls_oracle_input *input, const ls_oracle_group *g,
                    ls_oracle_decisions *report) {
    const ls_model *model = oracle->model;
    load_inputs(oracle, input, g);
    for (size_t l = 0; l < model->layer_count; l++) {
        const ls_oracle_kind *kind = ls_oracle_kinds[model->layers[l].kind];
        for (size_t block = 0; block < passes_of(oracle, l, g); block++) {
            ls_oracle_pass pass = ls_oracle_make_pass(oracle, input, l, g, block, report);
            kind->forward(&pass);
            if (pass.y_error != NULL && kind->affine) {
                bound_affine(oracle, &pass, input->unit_roundoff);
            }
            if (pass.noise != NULL && kind->affine) {
                size_t at = ls_oracle_block_offset(model, l + 1, block);
                ls_oracle_noise_add(&pass, pass.layer->out, pass.y, oracle->errors[l + 1] + at,
                                    oracle->spread->shared_y[l]);
            }
            if (input->statistics != NULL && model->layers[l].buffer != SIZE_MAX) {
                take_statistics(model, &pass, input);
            }
        }
    }
}

/* After the forward pass, whose bounds are not needed any more. */
static void spread_forward(ls_oracle *oracle, const ls_oracle_input *input, const ls_oracle_group *g) {
    const ls_model *model = oracle->model;
    for (size_t l = 0; l < model->layer_count; l++) {
        for (size_t block = 0; ls_oracle_kinds[model->layers[l].kind]->affine && block < g->blocks; block++) {
            ls_oracle_pass pass = ls_oracle_make_pass(oracle, input, l, g, block, NULL);
            ls_oracle_spread_forward(oracle, &pass,
                                     oracle->errors[l + 1] + ls_oracle_block_offset(model, l + 1, block));
        }
    }
}

/* A layer's gradients, and what random roundings need of them. */
static void backward_params(ls_oracle *oracle, ls_oracle_pass *pass, double *grads) {
    const ls_oracle_kind *kind = ls_oracle_kinds[pass->layer->kind];
    pass->dweight = tensor_mutable(oracle->model, pass->layer->weight, grads);
    pass->dbias = tensor_mutable(oracle->model, pass->layer->bias, grads);
    kind->params(pass);
    if (oracle->spread != NULL && pass->noise == NULL && kind->affine) {
        ls_oracle_spread_params(oracle, pass);
    }
}

static void backward_dx(ls_oracle *oracle, ls_oracle_pass *pass, size_t block) {
    const ls_oracle_kind *kind = ls_oracle_kinds[pass->layer->kind];
    size_t at = ls_oracle_block_offset(oracle->model, pass->layer_index, block);
    pass->dx = oracle->dx + at;
    kind->dx(pass);
    if (!kind->affine || oracle->spread == NULL) {
        return;
    }
    double *deviations = oracle->spread->dx[pass->layer_index] + at;
    if (pass->noise != NULL) {
        ls_oracle_noise_add(pass, pass->layer->in, pass->dx, deviations, oracle->spread->shared_dx[pass->layer_index]);
    } else {
        ls_oracle_spread_dx(oracle, pass, deviations);
    }
}

static void backward(ls_oracle *oracle, const ls_oracle_input *input, const ls_oracle_group *g, double *grads) {
    const ls_model *model = oracle->model;
    for (size_t l = model->layer_count; l-- > 0;) {
        memset(oracle->dx, 0, ls_oracle_block_offset(model, l, g->blocks) * sizeof(double));
        for (size_t block = 0; block < passes_of(oracle, l, g); block++) {
            ls_oracle_pass pass = ls_oracle_make_pass(oracle, input, l, g, block, NULL);
            pass.dy = oracle->dy + ls_oracle_block_offset(model, l + 1, block);
            if (pass.weight != NULL) {
                backward_params(oracle, &pass, grads);
            }
            if (l > 0) {
                backward_dx(oracle, &pass, block);
            }
        }
        double *done = oracle->dx;
        oracle->dx = oracle->dy;
        oracle->dy = done;
    }
}

int ls_oracle_groups(ls_oracle *oracle, const ls_oracle_input *input, ls_oracle_group *group) {
    *group = (ls_oracle_group){0};
    return reserve(oracle, oracle->whole && input->count > 0 ? (input->count + LANES - 1) / LANES : 1);
}

bool ls_oracle_next(const ls_oracle *oracle, const ls_oracle_input *input, ls_oracle_group *group) {
    size_t together = oracle->whole ? input->count : LANES;
    group->first += group->count;
    size_t left = input->count - group->first;
    group->count = left < together ? left : together;
    group->blocks = (group->count + LANES - 1) / LANES;
    return group->count > 0;
}

void ls_oracle_run(ls_oracle *oracle, const ls_oracle_input *input, const ls_oracle_group *group, double *grads,
                   double *loss_sum, ls_oracle_decisions *report) {
    const ls_model *model = oracle->model;
    forward(oracle, input, group, report);
    if (oracle->spread != NULL && oracle->noise == NULL) {
        spread_forward(oracle, input, group);
    }
    for (size_t block = 0; block < group->blocks; block++) {
        ls_oracle_pass pass = ls_oracle_make_pass(oracle, input, model->layer_count - 1, group, block, NULL);
        *loss_sum += ls_oracle_terms(input, values_at(model, model->layer_count), pass.first_sample, pass.used, pass.y,
                                     oracle->dy + ls_oracle_block_offset(model, model->layer_count, block), pass.noise);
    }
    backward(oracle, input, group, grads);
}

int ls_oracle_gradient(ls_oracle *oracle, const ls_oracle_input *input, double *grads, double *loss_sum,
                       ls_oracle_decisions *report) {
    ls_oracle_decisions unused = {0};
    ls_oracle_group group;
    if (ls_oracle_groups(oracle, input, &group) != 0) {
        return -1;
    }
    while (ls_oracle_next(oracle, input, &group)) {
        ls_oracle_run(oracle, input, &group, grads, loss_sum, report != NULL ? report : &unused);
    }
    return 0;
}
