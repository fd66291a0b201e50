/* The passes over the layers of a model, in blocks of samples, with the running bound on the device's forward error. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

static const ls_oracle_kind *const kinds[LS_LAYER_KIND_COUNT] = {
    [LS_LAYER_CONV] = &ls_oracle_conv,     [LS_LAYER_MAXPOOL] = &ls_oracle_maxpool,
    [LS_LAYER_RELU] = &ls_oracle_relu,     [LS_LAYER_FLATTEN] = &ls_oracle_flatten,
    [LS_LAYER_LINEAR] = &ls_oracle_linear, [LS_LAYER_LOG_SOFTMAX] = &ls_oracle_log_softmax,
};

struct ls_oracle {
    const ls_model *model;
    double *values[LS_MODEL_MAX_LAYERS + 1]; /* [l]: input of layer l; the last: the model's output */
    double *errors[LS_MODEL_MAX_LAYERS + 1]; /* bounds on the device's error of the same values */
    uint8_t *choices[LS_MODEL_MAX_LAYERS];
    double *dy, *dx;          /* gradients with respect to a layer's output and input */
    double *scratch, *weight; /* absolute values: inputs and weights of one layer */
    double *scratch_dy;
};

static size_t values_at(const ls_model *model, size_t layer) {
    return ls_shape_features(layer < model->layer_count ? model->layers[layer].in : model->layers[layer - 1].out);
}

static double *doubles(size_t count) {
    return calloc(count > 0 ? count : 1, sizeof(double));
}

int ls_oracle_open(const ls_model *model, ls_oracle **out) {
    *out = NULL;
    ls_oracle *oracle = calloc(1, sizeof *oracle);
    if (oracle == NULL) {
        return -1;
    }
    oracle->model = model;
    size_t widest = 0;
    bool complete = true;
    for (size_t l = 0; l <= model->layer_count; l++) {
        size_t count = values_at(model, l) * LANES;
        widest = count > widest ? count : widest;
        oracle->values[l] = doubles(count);
        oracle->errors[l] = doubles(count);
        complete = complete && oracle->values[l] != NULL && oracle->errors[l] != NULL;
        if (l < model->layer_count) {
            oracle->choices[l] = calloc(values_at(model, l + 1) * LANES, 1);
            complete = complete && oracle->choices[l] != NULL;
        }
    }
    oracle->dy = doubles(widest);
    oracle->dx = doubles(widest);
    oracle->scratch = doubles(widest);
    oracle->scratch_dy = doubles(widest);
    oracle->weight = doubles(model->param_count);
    complete = complete && oracle->dy != NULL && oracle->dx != NULL && oracle->scratch != NULL &&
               oracle->scratch_dy != NULL && oracle->weight != NULL;
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
    for (size_t l = 0; l <= LS_MODEL_MAX_LAYERS; l++) {
        free(oracle->values[l]);
        free(oracle->errors[l]);
    }
    for (size_t l = 0; l < LS_MODEL_MAX_LAYERS; l++) {
        free(oracle->choices[l]);
    }
    free(oracle->dy);
    free(oracle->dx);
    free(oracle->scratch);
    free(oracle->scratch_dy);
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
    double roundings = (double)(weights / outputs + 1) * (unit_roundoff + DBL_EPSILON / 2);
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

static ls_oracle_pass make_pass(ls_oracle *oracle, const ls_oracle_input *input, size_t layer_index, size_t first,
                                size_t used, ls_oracle_decisions *report) {
    const ls_model *model = oracle->model;
    const ls_layer *layer = &model->layers[layer_index];
    bool bound = input->decisions != NULL;
    ls_oracle_pass pass = {.layer = layer,
                           .layer_index = layer_index,
                           .used = used,
                           .weight = tensor(model, layer->weight, input->params),
                           .bias = tensor(model, layer->bias, input->params),
                           .x = oracle->values[layer_index],
                           .y = oracle->values[layer_index + 1],
                           .x_error = bound ? oracle->errors[layer_index] : NULL,
                           .y_error = bound ? oracle->errors[layer_index + 1] : NULL,
                           .choice = oracle->choices[layer_index],
                           .follow_stride = model->decisions_per_sample,
                           .first_sample = first,
                           .report = report};
    if (bound && layer->decisions > 0) {
        pass.follow = input->decisions + first * model->decisions_per_sample + layer->decision_offset;
    }
    return pass;
}

static void forward(ls_oracle *oracle, const ls_oracle_input *input, size_t first, size_t used,
                    ls_oracle_decisions *report) {
    const ls_model *model = oracle->model;
    size_t features = values_at(model, 0);
    memset(oracle->values[0], 0, features * LANES * sizeof(double));
    memset(oracle->errors[0], 0, features * LANES * sizeof(double)); /* inputs and parameters are the device's own */
    for (size_t lane = 0; lane < used; lane++) {
        const double *x = input->x + (first + lane) * features;
        for (size_t f = 0; f < features; f++) {
            oracle->values[0][f * LANES + lane] = x[f];
        }
    }
    for (size_t l = 0; l < model->layer_count; l++) {
        ls_oracle_pass pass = make_pass(oracle, input, l, first, used, report);
        kinds[model->layers[l].kind]->forward(&pass);
        if (pass.y_error != NULL && pass.weight != NULL) {
            bound_affine(oracle, &pass, input->unit_roundoff);
        }
    }
}

/* Sums of the absolute values of a gradient's terms: its own pass over |x| and |dy|. */
static void add_magnitudes(const ls_oracle *oracle, const ls_oracle_pass *pass, double *magnitudes) {
    const ls_layer *layer = pass->layer;
    for (size_t i = 0; i < ls_shape_features(layer->in) * LANES; i++) {
        oracle->scratch[i] = fabs(pass->x[i]);
    }
    for (size_t i = 0; i < ls_shape_features(layer->out) * LANES; i++) {
        oracle->scratch_dy[i] = fabs(pass->dy[i]);
    }
    ls_oracle_pass absolute = *pass;
    absolute.x = oracle->scratch;
    absolute.dy = oracle->scratch_dy;
    absolute.dweight = tensor_mutable(oracle->model, layer->weight, magnitudes);
    absolute.dbias = tensor_mutable(oracle->model, layer->bias, magnitudes);
    kinds[layer->kind]->params(&absolute);
}

static void backward(ls_oracle *oracle, const ls_oracle_input *input, size_t first, size_t used, double *grads) {
    const ls_model *model = oracle->model;
    for (size_t l = model->layer_count; l-- > 0;) {
        ls_oracle_pass pass = make_pass(oracle, input, l, first, used, NULL);
        const ls_oracle_kind *kind = kinds[model->layers[l].kind];
        pass.dy = oracle->dy;
        if (pass.weight != NULL) {
            pass.dweight = tensor_mutable(model, pass.layer->weight, grads);
            pass.dbias = tensor_mutable(model, pass.layer->bias, grads);
            kind->params(&pass);
            if (input->magnitudes != NULL) {
                add_magnitudes(oracle, &pass, input->magnitudes);
            }
        }
        if (l > 0) {
            pass.dx = oracle->dx;
            memset(pass.dx, 0, values_at(model, l) * LANES * sizeof(double));
            kind->dx(&pass);
            oracle->dx = oracle->dy;
            oracle->dy = pass.dx;
        }
    }
}

int ls_oracle_gradient(ls_oracle *oracle, const ls_oracle_input *input, double *grads, double *loss_sum,
                       ls_oracle_decisions *report) {
    const ls_model *model = oracle->model;
    ls_oracle_decisions unused = {0};
    for (size_t first = 0; first < input->count; first += LANES) {
        size_t used = input->count - first < LANES ? input->count - first : LANES;
        forward(oracle, input, first, used, report != NULL ? report : &unused);
        *loss_sum += ls_oracle_terms(input, values_at(model, model->layer_count), first, used,
                                     oracle->values[model->layer_count], oracle->dy);
        backward(oracle, input, first, used, grads);
    }
    return 0;
}
