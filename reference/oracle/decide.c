/* Layers that decide by comparison: relu and max-pool. They follow the device's decisions where these are given, and
 * report each one that differs from their own. */
#include <math.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

void ls_oracle_differs(const ls_oracle_pass *pass, size_t lane, size_t position, double distance, double bound) {
    ls_oracle_decisions *report = pass->report;
    report->different++;
    if (!(distance <= bound)) { /* also when either is not a number */
        report->unproven++;
    }
    double ratio = distance > 0 ? distance / bound : 0;
    if (isnan(distance) || isnan(bound)) {
        ratio = INFINITY;
    }
    if (report->different == 1 || ratio > report->worst_ratio) {
        report->worst_ratio = ratio;
        report->worst_sample = pass->first_sample + lane;
        report->worst_layer = pass->layer_index;
        report->worst_position = position;
    }
}

static uint8_t followed(const ls_oracle_pass *pass, size_t lane, size_t position) {
    pass->report->total++;
    return pass->follow[lane * pass->follow_stride + position];
}

/* y = x where x > 0, else 0; relu'(0) = 0. relu does not stretch distances: a value let through keeps its bound. One that
 * the device stopped is exactly 0 on both sides. */
static void relu_forward(const ls_oracle_pass *pass) {
    size_t features = ls_shape_features(pass->layer->in);
    for (size_t f = 0; f < features; f++) {
        for (size_t lane = 0; lane < LANES; lane++) {
            size_t at = f * LANES + lane;
            double x = pass->x[at];
            uint8_t own = pass->noise != NULL ? pass->choice[at] : x > 0 ? 1 : 0;
            if (pass->follow != NULL && lane < pass->used) {
                uint8_t device = followed(pass, lane, f);
                if (device > 1) {
                    ls_oracle_differs(pass, lane, f, INFINITY, 0); /* no decision at all */
                } else if (device != own) {
                    ls_oracle_differs(pass, lane, f, fabs(x), pass->x_error[at]);
                    own = device;
                }
            }
            pass->choice[at] = own;
            pass->y[at] = own ? x : 0;
            if (pass->y_error != NULL) {
                pass->y_error[at] = own ? pass->x_error[at] : 0;
            }
        }
    }
}

static void relu_dx(const ls_oracle_pass *pass) {
    size_t features = ls_shape_features(pass->layer->in);
    for (size_t at = 0; at < features * LANES; at++) {
        pass->dx[at] += pass->choice[at] ? pass->dy[at] : 0;
    }
}

/* The input that position k of the window of output (channel, r, c) lies on: an index of features, or SIZE_MAX for the
 * padding. */
static size_t window_input(const ls_layer *layer, size_t channel, size_t r, size_t c, size_t k) {
    size_t row = r * layer->stride + k / layer->kernel;
    size_t column = c * layer->stride + k % layer->kernel;
    if (row < layer->padding || column < layer->padding || row - layer->padding >= layer->in.height ||
        column - layer->padding >= layer->in.width) {
        return SIZE_MAX;
    }
    return (channel * layer->in.height + row - layer->padding) * layer->in.width + column - layer->padding;
}

/* The first maximum of the window in scan order, as PyTorch's. */
static size_t own_maximum(const ls_oracle_pass *pass, const size_t *inputs, size_t count, size_t lane) {
    size_t best = 0; /* of padding: the first input of the window replaces it */
    for (size_t k = 0; k < count; k++) {
        if (inputs[k] != SIZE_MAX &&
            (inputs[best] == SIZE_MAX || pass->x[inputs[k] * LANES + lane] > pass->x[inputs[best] * LANES + lane])) {
            best = k;
        }
    }
    return best;
}

/* The device's choice where it is possible at all, else own. */
static size_t follow_choice(const ls_oracle_pass *pass, const size_t *inputs, size_t count, size_t lane,
                            size_t position, size_t own) {
    size_t device = followed(pass, lane, position);
    if (device == own) {
        return own;
    }
    if (device >= count || inputs[device] == SIZE_MAX) {
        ls_oracle_differs(pass, lane, position, INFINITY, 0);
        return own;
    }
    size_t mine = inputs[own] * LANES + lane;
    size_t theirs = inputs[device] * LANES + lane;
    double distance = pass->x[mine] - pass->x[theirs];
    double bound = pass->x_error[mine] + pass->x_error[theirs];
    if (distance == 0 && bound == 0) {
        distance =
            INFINITY; /* equal values that the device holds exactly, as zeros behind a relu: the first must win */
    }
    ls_oracle_differs(pass, lane, position, distance, bound);
    return device;
}

enum { MAX_WINDOW = 256 }; /* a choice is one byte */

static void maxpool_forward(const ls_oracle_pass *pass) {
    const ls_layer *layer = pass->layer;
    size_t count = layer->kernel * layer->kernel;
    size_t inputs[MAX_WINDOW] = {0};
    for (size_t position = 0; position < ls_shape_features(layer->out); position++) {
        size_t c = position % layer->out.width;
        size_t r = position / layer->out.width % layer->out.height;
        size_t channel = position / (layer->out.width * layer->out.height);
        for (size_t k = 0; k < count; k++) {
            inputs[k] = window_input(layer, channel, r, c, k);
        }
        for (size_t lane = 0; lane < LANES; lane++) {
            size_t chosen =
                pass->noise != NULL ? pass->choice[position * LANES + lane] : own_maximum(pass, inputs, count, lane);
            if (pass->follow != NULL && lane < pass->used) {
                chosen = follow_choice(pass, inputs, count, lane, position, chosen);
            }
            size_t to = position * LANES + lane;
            pass->choice[to] = (uint8_t)chosen;
            pass->y[to] = pass->x[inputs[chosen] * LANES + lane];
            if (pass->y_error != NULL) {
                pass->y_error[to] = pass->x_error[inputs[chosen] * LANES + lane];
            }
        }
    }
}

static void maxpool_dx(const ls_oracle_pass *pass) {
    const ls_layer *layer = pass->layer;
    for (size_t position = 0; position < ls_shape_features(layer->out); position++) {
        size_t c = position % layer->out.width;
        size_t r = position / layer->out.width % layer->out.height;
        size_t channel = position / (layer->out.width * layer->out.height);
        for (size_t lane = 0; lane < LANES; lane++) {
            size_t from = position * LANES + lane;
            double *dx = pass->dx + window_input(layer, channel, r, c, pass->choice[from]) * LANES + lane;
            *dx = *dx != 0 ? ls_oracle_rounded(pass->noise, *dx + pass->dy[from]) : pass->dy[from];
        }
    }
}

const ls_oracle_kind ls_oracle_relu = {.forward = relu_forward, .dx = relu_dx};
const ls_oracle_kind ls_oracle_maxpool = {.forward = maxpool_forward, .dx = maxpool_dx};
