#include "verify/exact.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "verify/values.h"

enum { EXACT_BATCH = 16 };

bool ls_exact_is(const ls_run *run) {
    return strcmp(run->model, "exact") == 0;
}

static bool is_power_of_two(size_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

void ls_exact_fit(ls_run *run) {
    snprintf(run->data, sizeof run->data, "exact");
    run->model_file[0] = '\0';
    run->normalize_given = false;
    run->loss = (ls_loss_options){.kind = LS_LOSS_MSE,
                                  .reduction = is_power_of_two(run->devices) ? run->loss.reduction : LS_LOSS_SUM};
    run->lr = 0;
    run->batch = EXACT_BATCH;
    run->global_batch = 0;
}

bool ls_exact_possible(const ls_run *run, const ls_impl *impl, char *why, size_t size) {
    if (impl->reduction == LS_REDUCTION_SUM || is_power_of_two(run->devices)) {
        return true;
    }
    snprintf(why, size, "a mean over %zu ranks is not exact in binary", run->devices);
    return false;
}

static bool whole(double value) {
    return value == rint(value);
}

/* Largest absolute input and target of a step; INFINITY when one is not a whole number. */
static void data_range(const ls_case *c, size_t step, double *input, double *target) {
    size_t features = ls_shape_features(c->model.input);
    size_t outputs = c->data->target_count;
    *input = *target = c->data->values != NULL && c->data->targets != NULL ? 0 : INFINITY;
    for (size_t device = 0; device < c->devices && *input < INFINITY; device++) {
        const ls_capture_local *local = ls_case_local(c, step, device);
        for (size_t i = 0; i < (size_t)local->count; i++) {
            for (size_t f = 0; f < features; f++) {
                double x = (double)c->data->values[local->indices[i] * features + f];
                *input = whole(x) ? fmax(*input, fabs(x)) : INFINITY;
            }
            for (size_t t = 0; t < outputs; t++) {
                double y = (double)c->data->targets[local->indices[i] * outputs + t];
                *target = whole(y) ? fmax(*target, fabs(y)) : INFINITY;
            }
        }
    }
}

enum { WIDEST = 128 }; /* features of a layer of the network `exact` */

/* The bounds of one layer: values[i] of its inputs, errors[o] of the gradients of its outputs. */
typedef struct bounds {
    double values[LS_MODEL_MAX_LAYERS + 1][WIDEST];
    double error[2][WIDEST];
} bounds;

static double weight_of(const ls_case *c, const void *params, const ls_layer *layer, size_t o, size_t i) {
    size_t in = ls_shape_features(layer->in);
    return fabs(ls_value(c->run.dtype, params, c->model.params[layer->weight].offset + o * in + i));
}

/* |y_o| <= sum_i |w_oi| |x_i| + |b_o|: also of every partial sum. Returns the largest. */
static double forward(const ls_case *c, const void *params, size_t l, bounds *b) {
    const ls_layer *layer = &c->model.layers[l];
    size_t in = ls_shape_features(layer->in), out = ls_shape_features(layer->out);
    double largest = 0;
    for (size_t o = 0; o < out; o++) {
        double sum = layer->weight == SIZE_MAX ? b->values[l][o] : 0;
        for (size_t i = 0; layer->weight != SIZE_MAX && i < in; i++) {
            sum += weight_of(c, params, layer, o, i) * b->values[l][i];
        }
        if (layer->bias != SIZE_MAX) {
            sum += fabs(ls_value(c->run.dtype, params, c->model.params[layer->bias].offset + o));
        }
        b->values[l + 1][o] = sum;
        largest = fmax(largest, sum);
    }
    return largest;
}

/* |dw_oi| <= N |dy_o| |x_i|, |db_o| <= N |dy_o|, |dx_i| <= sum_o |w_oi| |dy_o|. Returns the largest. */
static double backward(const ls_case *c, const void *params, size_t l, double samples, bounds *b) {
    const ls_layer *layer = &c->model.layers[l];
    if (layer->weight == SIZE_MAX) {
        return 0;
    }
    size_t in = ls_shape_features(layer->in), out = ls_shape_features(layer->out);
    double most_x = 1, most_dy = 0, largest = 0; /* 1: the bias */
    for (size_t i = 0; i < in; i++) {
        most_x = fmax(most_x, b->values[l][i]);
        b->error[1][i] = 0;
        for (size_t o = 0; o < out; o++) {
            b->error[1][i] += weight_of(c, params, layer, o, i) * b->error[0][o];
        }
        largest = fmax(largest, b->error[1][i]);
    }
    for (size_t o = 0; o < out; o++) {
        most_dy = fmax(most_dy, b->error[0][o]);
    }
    memcpy(b->error[0], b->error[1], in * sizeof b->error[0][0]);
    return fmax(largest, samples * most_dy * most_x);
}

/* In units of the last bit: whole numbers forward; backward from y - t, whole too, the factor 2/(N*C) or 2 in front of it and
 * the mean over ranks being powers of two. */
double ls_exact_largest(const ls_case *c, size_t step) {
    const void *params = ls_case_reduced(c, step, 0)->params_before;
    double largest = 0, input = 0, target = 0;
    bounds b = {0};
    data_range(c, step, &input, &target);
    for (size_t i = 0; i < c->model.param_count; i++) {
        largest = whole(ls_value(c->run.dtype, params, i)) ? largest : INFINITY;
    }
    for (size_t l = 0; l < c->model.layer_count; l++) {
        const ls_layer *layer = &c->model.layers[l];
        bool known = layer->kind == LS_LAYER_LINEAR || layer->kind == LS_LAYER_FLATTEN;
        if (!known || ls_shape_features(layer->in) > WIDEST || ls_shape_features(layer->out) > WIDEST) {
            return INFINITY;
        }
    }
    if (!(fmax(largest, fmax(input, target)) < INFINITY)) {
        return INFINITY;
    }
    for (size_t f = 0; f < ls_shape_features(c->model.input); f++) {
        b.values[0][f] = input;
    }
    for (size_t l = 0; l < c->model.layer_count; l++) {
        largest = fmax(largest, forward(c, params, l, &b));
    }
    for (size_t o = 0; o < c->model.classes; o++) {
        b.error[0][o] = b.values[c->model.layer_count][o] + target;
    }
    for (size_t l = c->model.layer_count; l-- > 0;) {
        largest = fmax(largest, backward(c, params, l, (double)ls_case_samples(c, step), &b));
    }
    return largest;
}
