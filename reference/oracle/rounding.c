/* How far rounding alone may carry a device from the oracle: Monte-Carlo arithmetic (Parker, Pierce and Eggert, "Monte Carlo
 * arithmetic", Computing in Science and Engineering 2(4), 2000). The oracle's passes run again in double, and wherever a device
 * of unit roundoff u rounds, the result is moved at random. What the network makes of all these, how they cancel and where
 * they meet again, is then arithmetic and needs no bound. A device's decisions at relu and max-pool stay as they are.
 *
 * A rounded result v is off by at most u|v| either way, as if uniformly distributed: v*(1 + u*r), r uniform in -1..1, of
 * variance u^2 v^2/3. (Half a unit in the last place is between u|v|/2 and u|v|: this is the larger.) Where v lies below the
 * normal range the device may lose `smallest`.
 *
 * A sum of n terms t_1 + ... + t_n rounds each product and each partial sum S_k; the errors add up, so the variance is
 *   u^2/3 * (sum t^2 + sum_k S_k^2).
 * A device may add in any order. Over all orders, with Q = sum t^2 and T = sum t, E S_k^2 = k/n*Q + k(k-1)/(n(n-1))*(T^2 - Q)
 * and
 *   E sum_k S_k^2 = (n+1)*(Q/6 + T^2/3).
 * Weights' gradients are sums over m samples with P terms each, and those of one sample are of a kind: their sum B is not what
 * P terms in random order make. Samples in any order, in each its terms in any order, with R = sum B^2:
 *   E sum_k S_k^2 = P*(R*(m+1)/6 + T^2*(m-2)/3) + (P+1)*((T^2 - R)/2 + R/3 + Q/6),
 * the same as above for m = 1. Blocks added separately, pairs, fused products and wider accumulators all have less. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/oracle/passes.h"

enum { LANES = LS_ORACLE_LANES };

/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static const uint64_t golden_gamma = UINT64_C(0x9e3779b97f4a7c15);

/* -1..1 from 53 bits. */
static double uniform_of(uint64_t bits) {
    return (double)(int64_t)(bits >> 11) * 0x1p-52 - 1;
}

static double random_for(const ls_oracle_noise *noise, uint64_t place, uint64_t what) {
    return uniform_of(mix((noise->draw ^ what) + (place + 1) * golden_gamma));
}

/* Of a value's rounding: the same whenever the value comes again in the layer, since then it is made of the same numbers and
 * rounds the same way. An image's background does not average its roundings out. */
static double uniform(const ls_oracle_noise *noise, double value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    return random_for(noise, noise->layer, mix(bits));
}

static double moved(const ls_oracle_noise *noise, double unit_roundoff, double value) {
    return value == 0 ? 0 : value + uniform(noise, value) * (unit_roundoff * fabs(value) + noise->smallest);
}

double ls_oracle_rounded(const ls_oracle_noise *noise, double value) {
    return noise == NULL ? value : moved(noise, noise->unit_roundoff, value);
}

/* A result in double is stored with its exponent's range, so nothing small is lost. */
double ls_oracle_rounded_double(const ls_oracle_noise *noise, double value) {
    return noise == NULL ? value : value + uniform(noise, value) * DBL_EPSILON / 2 * value;
}

/* Libraries keep exp and log within one unit in the last place, and exp(0) = 1. */
double ls_oracle_rounded_function(const ls_oracle_noise *noise, double value) {
    return noise == NULL || value == 1 ? value : moved(noise, 2 * noise->unit_roundoff, value);
}

double ls_oracle_rounded_alike(const ls_oracle_noise *noise, size_t key, double roundings, double value) {
    return noise == NULL ? value : value * (1 + random_for(noise, key, 0) * roundings * noise->unit_roundoff);
}

/* The terms of a sum, or of many alike: m groups of P terms, Q and R as above. */
typedef struct terms {
    double groups, size;
    double products; /* sum of the squares of terms that are rounded themselves */
    double squares, group_squares;
} terms;

static double sum_deviation(double unit_roundoff, double smallest, const terms *t, double total) {
    double m = t->groups;
    double total_square = total * total;
    double partial = t->size * (t->group_squares * (m + 1) / 6 + total_square * (m - 2) / 3) +
                     (t->size + 1) * ((total_square - t->group_squares) / 2 + t->group_squares / 3 + t->squares / 6);
    if (t->squares == 0) {
        return 0; /* zeros are exact */
    }
    double n = m * t->size;
    return sqrt((unit_roundoff * unit_roundoff * (t->products + fmax(0, partial)) + n * smallest * smallest) / 3);
}

static terms one_group(double n, double products, double squares, double total) {
    return (terms){.groups = 1, .size = n, .products = products, .squares = squares, .group_squares = total * total};
}

/* A value moved by that deviation, uniformly: together many roundings are all but normal. */
static double spread_out(const ls_oracle_noise *noise, double value, double deviation) {
    return value + uniform(noise, value) * sqrt(3) * deviation;
}

/* No partial sum in any order is larger than the positive or the negative terms are together: (sum|t| + |sum t|)/2. Random orders
 * would make less, but what lies side by side in an image is alike, and in double the largest costs no power. */
double ls_oracle_rounded_sum(const ls_oracle_noise *noise, double sum, double n, double magnitudes, double rounded) {
    double largest = (magnitudes + fabs(sum)) / 2;
    double deviation = DBL_EPSILON / 2 * sqrt((rounded + n * largest * largest) / 3);
    return noise == NULL ? sum : spread_out(noise, sum, deviation);
}

void ls_oracle_noise_add(const ls_oracle_pass *pass, ls_shape shape, double *values, const double *deviations,
                         const double *shared) {
    size_t plane = shape.height * shape.width;
    for (size_t c = 0; c < shape.channels; c++) {
        double mean = shared[c] / (double)(pass->count * plane);
        double common = sqrt(3) * mean * random_for(pass->noise, pass->noise->layer, c);
        for (size_t i = c * plane * LANES; i < (c + 1) * plane * LANES; i++) {
            if (deviations[i] > 0) {
                values[i] = spread_out(pass->noise, values[i], deviations[i]) + common;
            }
        }
    }
}

static void square(const double *values, size_t count, double *out) {
    for (size_t i = 0; i < count; i++) {
        out[i] = values[i] * values[i];
    }
}

/* A pass over squares: of x, dy and weights. */
static ls_oracle_pass squared_pass(ls_oracle *oracle, const ls_oracle_pass *pass) {
    const ls_layer *layer = pass->layer;
    ls_oracle_pass out = *pass;
    square(pass->weight, oracle->model->params[layer->weight].count, oracle->weight);
    square(pass->x, ls_shape_features(layer->in) * LANES, oracle->scratch);
    out.weight = oracle->weight;
    out.bias = NULL;
    out.x = oracle->scratch;
    out.x_error = NULL;
    if (pass->dy != NULL) {
        square(pass->dy, ls_shape_features(layer->out) * LANES, oracle->scratch_dy);
        out.dy = oracle->scratch_dy;
    }
    return out;
}

/* Roundings of like sums are not quite independent: each channel's errors have a small mean, which counts where many of them
 * are added up again. It is taken from sums in the device's precision: found against values. */
static void add_shared(const ls_oracle_pass *pass, ls_shape shape, const double *found, const double *values,
                       double *shared) {
    size_t plane = shape.height * shape.width;
    for (size_t i = 0; i < shape.channels * plane; i++) {
        for (size_t lane = 0; lane < pass->used; lane++) {
            shared[i / plane] += found[i * LANES + lane] - values[i * LANES + lane];
        }
    }
}

void ls_oracle_spread_forward(ls_oracle *oracle, const ls_oracle_pass *pass, double *out) {
    const ls_layer *layer = pass->layer;
    ls_oracle_pass squares = squared_pass(oracle, pass);
    squares.y = out;
    ls_oracle_kinds[layer->kind]->forward(&squares);
    size_t channels = layer->out.channels;
    size_t plane = ls_shape_features(layer->out) / channels * LANES;
    size_t weights = oracle->model->params[layer->weight].count / channels;
    double n = (double)weights + 1; /* the bias is one of them */
    double u = oracle->spread->unit_roundoff;
    for (size_t i = 0; i < channels * plane; i++) {
        double bias = pass->bias != NULL ? pass->bias[i / plane] : 0;
        terms t = one_group(n, out[i], out[i] + bias * bias, pass->y[i]);
        out[i] = sum_deviation(u, oracle->spread->smallest, &t, pass->y[i]);
    }
    ls_oracle_pass one_by_one = *pass;
    one_by_one.one_by_one = true;
    one_by_one.y = oracle->scratch_dy;
    one_by_one.y_error = NULL;
    ls_oracle_kinds[layer->kind]->forward(&one_by_one);
    add_shared(pass, layer->out, one_by_one.y, pass->y, oracle->spread->shared_y[pass->layer_index]);
}

void ls_oracle_spread_dx(ls_oracle *oracle, const ls_oracle_pass *pass, double *out) {
    const ls_layer *layer = pass->layer;
    ls_oracle_pass squares = squared_pass(oracle, pass);
    size_t inputs = ls_shape_features(layer->in);
    memset(out, 0, inputs * LANES * sizeof *out);
    squares.dx = out;
    ls_oracle_kinds[layer->kind]->dx(&squares);
    /* Every output channel, at each position of a convolution's kernel. */
    double n = (double)(layer->out.channels * (layer->kind == LS_LAYER_CONV ? layer->kernel * layer->kernel : 1));
    for (size_t i = 0; i < inputs * LANES; i++) {
        terms t = one_group(n, out[i], out[i], pass->dx[i]);
        out[i] = sum_deviation(oracle->spread->unit_roundoff, oracle->spread->smallest, &t, pass->dx[i]);
    }
    ls_oracle_pass one_by_one = *pass;
    one_by_one.one_by_one = true;
    one_by_one.dx = oracle->scratch;
    memset(one_by_one.dx, 0, inputs * LANES * sizeof *one_by_one.dx);
    ls_oracle_kinds[layer->kind]->dx(&one_by_one);
    add_shared(pass, layer->in, one_by_one.dx, pass->dx, oracle->spread->shared_dx[pass->layer_index]);
}

void ls_oracle_spread_params(ls_oracle *oracle, const ls_oracle_pass *pass) {
    const ls_param *params = oracle->model->params;
    const ls_layer *layer = pass->layer;
    const ls_oracle_kind *kind = ls_oracle_kinds[layer->kind];
    ls_oracle_pass squares = squared_pass(oracle, pass);
    ls_oracle_pass samples = *pass;
    ls_oracle_pass one_by_one = *pass;
    samples.sample_squares = true;
    one_by_one.one_by_one = true;
    squares.dweight = oracle->spread->squares + params[layer->weight].offset;
    samples.dweight = oracle->spread->sample_squares + params[layer->weight].offset;
    one_by_one.dweight = oracle->spread->one_by_one + params[layer->weight].offset;
    if (layer->bias != SIZE_MAX) {
        squares.dbias = oracle->spread->squares + params[layer->bias].offset;
        samples.dbias = oracle->spread->sample_squares + params[layer->bias].offset;
        one_by_one.dbias = oracle->spread->one_by_one + params[layer->bias].offset;
    }
    kind->params(&squares);
    kind->params(&samples);
    kind->params(&one_by_one);
}

/* Equal terms (of an image's background, behind a batchnorm) are rounded alike as long as the sum keeps its exponent, and
 * roundings that all go one way do not average out. How far that goes one accumulator shows that adds term by term: its
 * error, in the 2-norm of a tensor, is a lower limit of the deviations. More accumulators have less. */
static void widen_alike(ls_oracle_spread *spread, const ls_param *param, const double *total) {
    double errors = 0;
    double variances = 0;
    for (size_t i = param->offset; i < param->offset + param->count; i++) {
        double error = spread->one_by_one[i] - total[i];
        errors += error * error;
        variances += spread->squares[i] * spread->squares[i];
    }
    double factor = errors > variances && variances > 0 ? sqrt(errors / variances) : 1;
    for (size_t i = param->offset; i < param->offset + param->count; i++) {
        spread->squares[i] *= factor;
    }
}

/* The deviations of the sums that are gradients of weights and biases, into spread->squares. total: the gradient. */
static void spread_sums(const ls_oracle *oracle, double samples, const double *total) {
    const ls_model *model = oracle->model;
    ls_oracle_spread *spread = oracle->spread;
    for (size_t p = 0; p < model->param_tensors; p++) {
        const ls_param *param = &model->params[p];
        const ls_layer *layer = &model->layers[param->layer];
        if (!ls_oracle_kinds[layer->kind]->affine) {
            continue;
        }
        for (size_t i = param->offset; i < param->offset + param->count; i++) {
            terms t = {.groups = samples,
                       .size = (double)(layer->out.height * layer->out.width),
                       .products = layer->weight == p ? spread->squares[i] : 0,
                       .squares = spread->squares[i],
                       .group_squares = spread->sample_squares[i]};
            spread->squares[i] = sum_deviation(spread->unit_roundoff, spread->smallest, &t, total[i]);
        }
        widen_alike(spread, param, total);
    }
}

static void spread_close(ls_oracle_spread *spread) {
    for (size_t l = 0; l < LS_MODEL_MAX_LAYERS; l++) {
        free(spread->dx[l]);
        free(spread->shared_y[l]);
        free(spread->shared_dx[l]);
    }
    free(spread->squares);
    free(spread->sample_squares);
    free(spread->one_by_one);
}

static int spread_open(const ls_oracle *oracle, const ls_oracle_input *input, const ls_oracle_draws *draws,
                       ls_oracle_spread *spread) {
    const ls_model *model = oracle->model;
    *spread = (ls_oracle_spread){.unit_roundoff = input->unit_roundoff,
                                 .smallest = draws->smallest,
                                 .squares = calloc(model->param_count, sizeof(double)),
                                 .sample_squares = calloc(model->param_count, sizeof(double)),
                                 .one_by_one = calloc(model->param_count, sizeof(double))};
    bool complete = spread->squares != NULL && spread->sample_squares != NULL && spread->one_by_one != NULL;
    for (size_t l = 0; l < model->layer_count; l++) {
        const ls_layer *layer = &model->layers[l];
        if (ls_oracle_kinds[layer->kind]->affine) {
            spread->dx[l] = calloc(ls_oracle_block_offset(model, l, oracle->blocks), sizeof(double));
            spread->shared_y[l] = calloc(layer->out.channels, sizeof(double));
            spread->shared_dx[l] = calloc(layer->in.channels, sizeof(double));
            complete = complete && spread->dx[l] != NULL && spread->shared_y[l] != NULL && spread->shared_dx[l] != NULL;
        }
    }
    if (!complete) {
        spread_close(spread);
    }
    return complete ? 0 : -1;
}

static void noise_open(const ls_oracle_input *input, const ls_oracle_draws *draws, ls_oracle_noise *noise) {
    for (size_t k = 0; k < draws->count; k++) {
        noise[k] = (ls_oracle_noise){.unit_roundoff = input->unit_roundoff,
                                     .smallest = draws->smallest,
                                     .draw = mix((draws->first + k + 1) * golden_gamma)};
    }
}

static void forget_shared(ls_oracle *oracle) {
    for (size_t l = 0; l < oracle->model->layer_count; l++) {
        const ls_layer *layer = &oracle->model->layers[l];
        if (ls_oracle_kinds[layer->kind]->affine) {
            memset(oracle->spread->shared_y[l], 0, layer->out.channels * sizeof(double));
            memset(oracle->spread->shared_dx[l], 0, layer->in.channels * sizeof(double));
        }
    }
}

/* A group without roundings, which leaves their deviations, then with those of each draw. */
static void draw_group(ls_oracle *oracle, const ls_oracle_input *input, const ls_oracle_group *group,
                       const ls_oracle_draws *draws, ls_oracle_noise *noise, double *total) {
    ls_oracle_decisions unused = {0};
    double loss = 0;
    oracle->noise = NULL;
    forget_shared(oracle);
    ls_oracle_run(oracle, input, group, total, &loss, &unused);
    for (size_t k = 0; k < draws->count; k++) {
        oracle->noise = &noise[k];
        ls_oracle_run(oracle, input, group, draws->grads + k * oracle->model->param_count, &draws->loss_sums[k],
                      &unused);
    }
}

int ls_oracle_draw(ls_oracle *oracle, const ls_oracle_input *input, const ls_oracle_draws *draws) {
    ls_oracle_group group;
    ls_oracle_spread spread;
    size_t params = oracle->model->param_count;
    if (ls_oracle_groups(oracle, input, &group) != 0 || spread_open(oracle, input, draws, &spread) != 0) {
        return -1;
    }
    ls_oracle_noise *noise = calloc(draws->count + 1, sizeof *noise);
    double *total = calloc(params + 1, sizeof *total);
    bool complete = noise != NULL && total != NULL;
    if (complete) {
        noise_open(input, draws, noise);
        oracle->spread = &spread;
        while (ls_oracle_next(oracle, input, &group)) {
            draw_group(oracle, input, &group, draws, noise, total);
        }
        spread_sums(oracle, (double)input->count, total);
        for (size_t k = 0; k < draws->count; k++) {
            double *grads = draws->grads + k * params;
            for (size_t i = 0; i < params; i++) {
                grads[i] = spread_out(&noise[k], grads[i], spread.squares[i]);
            }
        }
    }
    oracle->spread = NULL;
    oracle->noise = NULL;
    free(noise);
    free(total);
    spread_close(&spread);
    return complete ? 0 : -1;
}
