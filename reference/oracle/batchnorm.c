/* Batch normalisation over the samples of one call, which are those of one device. The one kind of layer that looks at all
 * samples at once: its pass spans all blocks. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

/* The rows of pass->statistics, [channels] each. */
enum { MEAN, VARIANCE, INVERSE, SUM, SUM_XHAT, MEAN_ERROR, VARIANCE_ERROR, ROWS };

_Static_assert((int)ROWS == (int)LS_ORACLE_STATISTICS, "room for the statistics of a channel");

static double *row(const ls_oracle_pass *pass, int which) {
    return pass->statistics + (size_t)which * pass->layer->in.channels;
}

/* One channel's values among all: position p of block b starts at value(...). */
typedef struct channel {
    size_t index, plane, stride; /* stride: from one block to the next */
    size_t blocks, count;        /* count: samples */
} channel;

static channel channel_of(const ls_oracle_pass *pass, size_t index) {
    const ls_layer *layer = pass->layer;
    return (channel){.index = index,
                     .plane = layer->in.height * layer->in.width,
                     .stride = ls_shape_features(layer->in) * LANES,
                     .blocks = pass->blocks,
                     .count = pass->count};
}

static size_t value_at(const channel *c, size_t block, size_t p) {
    return block * c->stride + (c->index * c->plane + p) * LANES;
}

static size_t used_in(const channel *c, size_t block) {
    size_t left = c->count - block * LANES;
    return left < LANES ? left : LANES;
}

/* What a sum is made of. */
typedef double term(const ls_oracle_pass *pass, const channel *c, size_t at);

/* The sums of terms, of their magnitudes and of their squares. */
typedef struct sums {
    double plain, magnitudes, squares;
} sums;

/* Over the samples and positions of a channel. */
static sums sums_over(const ls_oracle_pass *pass, const channel *c, term *f) {
    sums total = {0};
    for (size_t block = 0; block < c->blocks; block++) {
        for (size_t p = 0; p < c->plane; p++) {
            size_t at = value_at(c, block, p);
            sums own = {0};
            for (size_t lane = 0; lane < used_in(c, block); lane++) {
                double value = f(pass, c, at + lane);
                own.plain += value;
                own.magnitudes += fabs(value);
                own.squares += value * value;
            }
            total.plain += own.plain;
            total.magnitudes += own.magnitudes;
            total.squares += own.squares;
        }
    }
    return total;
}

static double sum_over(const ls_oracle_pass *pass, const channel *c, term *f) {
    return sums_over(pass, c, f).plain;
}

static double term_x(const ls_oracle_pass *pass, const channel *c, size_t at) {
    (void)c;
    return pass->x[at];
}

static double deviation(const ls_oracle_pass *pass, const channel *c, size_t at) {
    return pass->x[at] - row(pass, MEAN)[c->index];
}

static double term_square(const ls_oracle_pass *pass, const channel *c, size_t at) {
    double d = deviation(pass, c, at);
    return d * d;
}

static double term_magnitude(const ls_oracle_pass *pass, const channel *c, size_t at) {
    (void)c;
    return fabs(pass->x[at]) + pass->x_error[at];
}

static double term_error(const ls_oracle_pass *pass, const channel *c, size_t at) {
    (void)c;
    return pass->x_error[at];
}

/* The bound on how far the device's x - mean lies from the oracle's; see bound_channel. */
static double deviation_error(const ls_oracle_pass *pass, const channel *c, size_t at) {
    return pass->x_error[at] + row(pass, MEAN_ERROR)[c->index] + 2 * DBL_EPSILON * fabs(deviation(pass, c, at));
}

static double term_square_error(const ls_oracle_pass *pass, const channel *c, size_t at) {
    double d = fabs(deviation(pass, c, at));
    double error = deviation_error(pass, c, at);
    return 2 * d * error + error * error;
}

/* The device's forward error. It adds n values of a channel in double, in any order, so with |x' - x| <= e, Higham's
 * gamma_n (of both sides, hence DBL_EPSILON), d = x - mean and D the bound on |d' - d|:
 *   |mean' - mean| <= M = mean(e) + gamma*mean(|x| + e)
 *   D = e + M + 2*2^-52*|d|                                   the subtraction, on both sides
 *   |var' - var|   <= V = mean(2|d|D + D^2)*(1 + gamma) + gamma*var
 * (var' is the mean of d'^2 around the device's own mean, of which the same holds). For s = var + eps and r = V/s < 1,
 *   |invstd'/invstd - 1| <= R = 1/sqrt(1 - r) - 1 + 8*2^-53   square root and division on both sides, with room
 * since the curve 1/sqrt is steeper to the left. y = d*invstd*w + b is computed in double and rounded once to the device's
 * type:
 *   |y' - y| <= |w|*invstd*(|d|*R + D*(1 + R)) + (u + 8*2^-53)*(|w|*invstd*(|d| + D)*(1 + R) + |b|). */
static double bound_channel(const ls_oracle_pass *pass, const channel *c) {
    double n = (double)(c->count * c->plane);
    double gamma = n * DBL_EPSILON / (1 - n * DBL_EPSILON);
    double variance = row(pass, VARIANCE)[c->index];
    row(pass, MEAN_ERROR)[c->index] = sum_over(pass, c, term_error) / n + gamma * sum_over(pass, c, term_magnitude) / n;
    double v = sum_over(pass, c, term_square_error) / n * (1 + gamma) + gamma * variance;
    row(pass, VARIANCE_ERROR)[c->index] = v;
    double relative = v / (variance + pass->layer->eps);
    return relative < 1 ? expm1(-0.5 * log1p(-relative)) + 4 * DBL_EPSILON : INFINITY;
}

static void write_errors(const ls_oracle_pass *pass, const channel *c) {
    double r = bound_channel(pass, c);
    double factor = fabs(pass->weight[c->index]) * row(pass, INVERSE)[c->index];
    double u = pass->unit_roundoff + 4 * DBL_EPSILON;
    for (size_t block = 0; block < c->blocks; block++) {
        for (size_t p = 0; p < c->plane; p++) {
            for (size_t lane = 0; lane < LANES; lane++) {
                size_t at = value_at(c, block, p) + lane;
                double d = fabs(deviation(pass, c, at));
                double error = deviation_error(pass, c, at);
                pass->y_error[at] = lane < used_in(c, block)
                                        ? factor * (d * r + error * (1 + r)) +
                                              u * (factor * (d + error) * (1 + r) + fabs(pass->bias[c->index]))
                                        : 0;
            }
        }
    }
}

/* The same with a device's roundings, which adds in double. roundings: of a term itself. */
static double device_sum(const ls_oracle_pass *pass, const channel *c, term *f, double roundings) {
    sums all = sums_over(pass, c, f);
    double n = (double)(c->count * c->plane);
    return ls_oracle_rounded_sum(pass->noise, all.plain, n, all.magnitudes, roundings * all.squares);
}

/* What a term's square gains from the rounding of x - mean: it moves d*dy by one such error, d*d by two, 4 in the variance. */
enum { PRODUCT_ROUNDINGS = 2, SQUARE_ROUNDINGS = 5 };

/* 1/sqrt(var + eps) from the sum of squares, each operation rounded. */
static double device_inverse(const ls_oracle_noise *noise, double variance, double eps) {
    double sum = ls_oracle_rounded_double(noise, variance + eps);
    return ls_oracle_rounded_double(noise, 1 / ls_oracle_rounded_double(noise, sqrt(sum)));
}

/* y = (x - mean)*(w/sqrt(var + eps)) + b with the biased variance. A device computes in double and rounds y once more. */
static void batchnorm_forward(const ls_oracle_pass *pass) {
    const ls_oracle_noise *noise = pass->noise;
    for (size_t i = 0; i < pass->layer->in.channels; i++) {
        channel c = channel_of(pass, i);
        double n = (double)(c.count * c.plane);
        row(pass, MEAN)[i] = ls_oracle_rounded_double(noise, device_sum(pass, &c, term_x, 0) / n);
        row(pass, VARIANCE)[i] =
            ls_oracle_rounded_double(noise, device_sum(pass, &c, term_square, SQUARE_ROUNDINGS) / n);
        row(pass, INVERSE)[i] = device_inverse(noise, row(pass, VARIANCE)[i], pass->layer->eps);
        double factor = ls_oracle_rounded_double(noise, row(pass, INVERSE)[i] * pass->weight[i]);
        for (size_t block = 0; block < c.blocks; block++) {
            for (size_t p = 0; p < c.plane; p++) {
                size_t at = value_at(&c, block, p);
                for (size_t lane = 0; lane < LANES; lane++) {
                    double centred = ls_oracle_rounded_double(noise, deviation(pass, &c, at + lane));
                    double scaled = ls_oracle_rounded_double(noise, centred * factor);
                    pass->y[at + lane] =
                        lane < used_in(&c, block) ? ls_oracle_rounded(noise, scaled + pass->bias[i]) : 0;
                }
            }
        }
        if (pass->y_error != NULL) {
            write_errors(pass, &c);
        }
    }
}

static double term_dy(const ls_oracle_pass *pass, const channel *c, size_t at) {
    (void)c;
    return pass->dy[at];
}

static double term_dy_xhat(const ls_oracle_pass *pass, const channel *c, size_t at) {
    return pass->dy[at] * deviation(pass, c, at) * row(pass, INVERSE)[c->index];
}

/* dbias = sum(dy), dweight = sum(dy*xhat). A device adds in double. */
static void batchnorm_params(const ls_oracle_pass *pass) {
    for (size_t i = 0; i < pass->layer->in.channels; i++) {
        channel c = channel_of(pass, i);
        row(pass, SUM)[i] = device_sum(pass, &c, term_dy, 0);
        row(pass, SUM_XHAT)[i] =
            ls_oracle_rounded_double(pass->noise, device_sum(pass, &c, term_dy_xhat, PRODUCT_ROUNDINGS));
        pass->dbias[i] += ls_oracle_rounded(pass->noise, row(pass, SUM)[i]);
        pass->dweight[i] += ls_oracle_rounded(pass->noise, row(pass, SUM_XHAT)[i]);
    }
}

/* By the chain rule through mean and variance: dx = w*invstd*(dy - mean(dy) - xhat*mean(dy*xhat)). Comes after params. */
static void batchnorm_dx(const ls_oracle_pass *pass) {
    for (size_t i = 0; i < pass->layer->in.channels; i++) {
        channel c = channel_of(pass, i);
        double n = (double)(c.count * c.plane);
        const ls_oracle_noise *noise = pass->noise;
        double inverse = row(pass, INVERSE)[i];
        double factor = ls_oracle_rounded_double(noise, inverse * pass->weight[i]);
        double mean = ls_oracle_rounded_double(noise, row(pass, SUM)[i] / n);
        double projection = ls_oracle_rounded_double(noise, row(pass, SUM_XHAT)[i] / n);
        double slope = ls_oracle_rounded_double(noise, projection * inverse);
        for (size_t block = 0; block < c.blocks; block++) {
            for (size_t p = 0; p < c.plane; p++) {
                for (size_t lane = 0; lane < used_in(&c, block); lane++) {
                    size_t at = value_at(&c, block, p) + lane;
                    double d = ls_oracle_rounded_double(noise, deviation(pass, &c, at));
                    double part = ls_oracle_rounded_double(noise, d * slope);
                    double centred = ls_oracle_rounded_double(noise, pass->dy[at] - mean);
                    double rest = ls_oracle_rounded_double(noise, centred - part);
                    pass->dx[at] += ls_oracle_rounded(noise, factor * rest);
                }
            }
        }
    }
}

void ls_oracle_batchnorm_statistics(const ls_oracle_pass *pass, double *mean, double *variance, double *mean_error,
                                    double *variance_error) {
    size_t channels = pass->layer->in.channels;
    double n = (double)(pass->count * pass->layer->in.height * pass->layer->in.width);
    for (size_t i = 0; i < channels; i++) {
        mean[i] = row(pass, MEAN)[i];
        mean_error[i] = row(pass, MEAN_ERROR)[i];
        variance[i] = row(pass, VARIANCE)[i] * n / (n - 1);
        variance_error[i] = row(pass, VARIANCE_ERROR)[i] * n / (n - 1);
    }
}

const ls_oracle_kind ls_oracle_batchnorm = {
    .whole = true, .forward = batchnorm_forward, .params = batchnorm_params, .dx = batchnorm_dx};
