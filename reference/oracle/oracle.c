/* The passes over the layers of a model, in blocks of samples, with the running bound on the device's forward error. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

static const ls_oracle_kind *const kinds[LS_LAYER_KIND_COUNT] = {
    [LS_LAYER_CONV] = &ls_oracle_conv,           [LS_LAYER_MAXPOOL] = &ls_oracle_maxpool,
    [LS_LAYER_RELU] = &ls_oracle_relu,           [LS_LAYER_FLATTEN] = &ls_oracle_flatten,
    [LS_LAYER_LINEAR] = &ls_oracle_linear,       [LS_LAYER_LOG_SOFTMAX] = &ls_oracle_log_softmax,
    [LS_LAYER_AVGPOOL] = &ls_oracle_avgpool,     [LS_LAYER_DROPOUT] = &ls_oracle_dropout,
    [LS_LAYER_BATCHNORM] = &ls_oracle_batchnorm,
};

/* Samples go through in groups of blocks: of one block, or with batchnorm of all blocks of a call. Every array holds
 * [blocks][features][LANES]. */
struct ls_oracle {
    const ls_model *model;
    bool whole;                              /* some layer looks at all samples of a call */
    size_t blocks;                           /* of the arrays */
    size_t widest;                           /* most features of a layer's input or output */
    double *values[LS_MODEL_MAX_LAYERS + 1]; /* [l]: input of layer l; the last: the model's output */
    double *errors[LS_MODEL_MAX_LAYERS + 1]; /* bounds on the device's error of the same values */
    uint8_t *choices[LS_MODEL_MAX_LAYERS];
    double *statistics[LS_MODEL_MAX_LAYERS]; /* batchnorm's */
    double *dy, *dx;                         /* gradients with respect to a layer's output and input */
    double *scratch, *weight;                /* absolute values: inputs and weights of one layer */
    double *scratch_dy;
};

/* Blocks that go through together. */
typedef struct group {
    size_t first, count; /* samples */
    size_t blocks;
} group;

static size_t values_at(const ls_model *model, size_t layer) {
    return ls_shape_features(layer < model->layer_count ? model->layers[layer].in : model->layers[layer - 1].out);
}

/* Values before a block of a layer's input. */
static size_t block_offset(const ls_model *model, size_t layer, size_t block) {
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
        if (l < model->layer_count && kinds[model->layers[l].kind]->whole) {
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
    kinds[layer->kind]->forward(&absolute);
    if (pass->bias != NULL) {
        size_t plane = ls_shape_features(layer->out) / outputs * LANES;
        for (size_t i = 0; i < outputs * plane; i++) {
            pass->y_error[i] += gamma * fabs(pass->bias[i / plane]);
        }
    }
}

/* The pass of a layer over one block of a group; of a whole kind over all of them from block 0 on. */
static ls_oracle_pass make_pass(ls_oracle *oracle, const ls_oracle_input *input, size_t layer_index, const group *g,
                                size_t block, ls_oracle_decisions *report) {
    const ls_model *model = oracle->model;
    const ls_layer *layer = &model->layers[layer_index];
    bool bound = input->decisions != NULL;
    size_t left = g->count - block * LANES;
    size_t in = block_offset(model, layer_index, block);
    size_t out = block_offset(model, layer_index + 1, block);
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
                           .follow_stride = model->decisions_per_sample,
                           .first_sample = g->first + block * LANES,
                           .report = report,
                           .unit_roundoff = input->unit_roundoff,
                           .blocks = g->blocks,
                           .count = g->count,
                           .statistics = oracle->statistics[layer_index]};
    if (bound && layer->decisions > 0) {
        pass.follow = input->decisions + pass.first_sample * model->decisions_per_sample + layer->decision_offset;
    }
    return pass;
}

/* Passes that a layer takes for a group. */
static size_t passes_of(const ls_oracle *oracle, size_t layer, const group *g) {
    return kinds[oracle->model->layers[layer].kind]->whole ? 1 : g->blocks;
}

static void load_inputs(ls_oracle *oracle, const ls_oracle_input *input, const group *g) {
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

static void forward(ls_oracle *oracle, const ls_oracle_input *input, const group *g, ls_oracle_decisions *report) {
    const ls_model *model = oracle->model;
    load_inputs(oracle, input, g);
    for (size_t l = 0; l < model->layer_count; l++) {
        const ls_oracle_kind *kind = kinds[model->layers[l].kind];
        for (size_t block = 0; block < passes_of(oracle, l, g); block++) {
            ls_oracle_pass pass = make_pass(oracle, input, l, g, block, report);
            kind->forward(&pass);
            if (pass.y_error != NULL && kind->affine) {
                bound_affine(oracle, &pass, input->unit_roundoff);
            }
            if (input->statistics != NULL && model->layers[l].buffer != SIZE_MAX) {
                take_statistics(model, &pass, input);
            }
        }
    }
}

/* Sums of the absolute values of a gradient's terms: its own pass over |x| and |dy|; a whole kind, whose terms are not
 * products of x and dy alone, takes the absolute values itself. */
static void add_magnitudes(const ls_oracle *oracle, const ls_oracle_pass *pass, double *magnitudes) {
    const ls_layer *layer = pass->layer;
    ls_oracle_pass absolute = *pass;
    absolute.dweight = tensor_mutable(oracle->model, layer->weight, magnitudes);
    absolute.dbias = tensor_mutable(oracle->model, layer->bias, magnitudes);
    absolute.absolute = true;
    if (!kinds[layer->kind]->whole) {
        for (size_t i = 0; i < ls_shape_features(layer->in) * LANES; i++) {
            oracle->scratch[i] = fabs(pass->x[i]);
        }
        for (size_t i = 0; i < ls_shape_features(layer->out) * LANES; i++) {
            oracle->scratch_dy[i] = fabs(pass->dy[i]);
        }
        absolute.x = oracle->scratch;
        absolute.dy = oracle->scratch_dy;
    }
    kinds[layer->kind]->params(&absolute);
}

static void backward(ls_oracle *oracle, const ls_oracle_input *input, const group *g, double *grads) {
    const ls_model *model = oracle->model;
    for (size_t l = model->layer_count; l-- > 0;) {
        const ls_oracle_kind *kind = kinds[model->layers[l].kind];
        memset(oracle->dx, 0, block_offset(model, l, g->blocks) * sizeof(double));
        for (size_t block = 0; block < passes_of(oracle, l, g); block++) {
            ls_oracle_pass pass = make_pass(oracle, input, l, g, block, NULL);
            pass.dy = oracle->dy + block_offset(model, l + 1, block);
            if (pass.weight != NULL) {
                pass.dweight = tensor_mutable(model, pass.layer->weight, grads);
                pass.dbias = tensor_mutable(model, pass.layer->bias, grads);
                kind->params(&pass);
                if (input->magnitudes != NULL) {
                    add_magnitudes(oracle, &pass, input->magnitudes);
                }
            }
            if (l > 0) {
                pass.dx = oracle->dx + block_offset(model, l, block);
                kind->dx(&pass);
            }
        }
        double *done = oracle->dx;
        oracle->dx = oracle->dy;
        oracle->dy = done;
    }
}

int ls_oracle_gradient(ls_oracle *oracle, const ls_oracle_input *input, double *grads, double *loss_sum,
                       ls_oracle_decisions *report) {
    const ls_model *model = oracle->model;
    ls_oracle_decisions unused = {0};
    size_t together = oracle->whole && input->count > 0 ? (input->count + LANES - 1) / LANES : 1;
    if (reserve(oracle, together) != 0) {
        return -1;
    }
    for (size_t first = 0; first < input->count; first += together * LANES) {
        size_t left = input->count - first;
        group g = {.first = first, .count = left < together * LANES ? left : together * LANES};
        g.blocks = (g.count + LANES - 1) / LANES;
        forward(oracle, input, &g, report != NULL ? report : &unused);
        for (size_t block = 0; block < g.blocks; block++) {
            ls_oracle_pass pass = make_pass(oracle, input, model->layer_count - 1, &g, block, NULL);
            *loss_sum += ls_oracle_terms(input, values_at(model, model->layer_count), pass.first_sample, pass.used,
                                         pass.y, oracle->dy + block_offset(model, model->layer_count, block));
        }
        backward(oracle, input, &g, grads);
    }
    return 0;
}
