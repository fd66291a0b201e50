/* Convolution and linear layers: plain loops over weights, with the samples of a block innermost. */
#include <float.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

static void fill(double *out, size_t count, double value) {
    for (size_t i = 0; i < count * LANES; i++) {
        out[i] = value;
    }
}

/* What the sums of a block's samples add to a gradient, or to the squares of such sums. */
static double sum_lanes(const ls_oracle_pass *pass, const double *sums) {
    double total = 0;
    for (size_t lane = 0; lane < LANES; lane++) {
        total += pass->sample_squares ? sums[lane] * sums[lane] : sums[lane];
    }
    return total;
}

/* One kernel tap over one channel pair: output position (r, c) meets input (r*stride + row - padding, c*stride + column -
 * padding). The ranges keep the input inside the image: padding is zeros and adds nothing. */
typedef struct tap {
    size_t stride, in_width, out_width;
    size_t row_first, row_end, column_first, column_end; /* output positions */
    size_t row, column; /* of the input for output (0, 0), before subtracting padding */
    size_t padding;
} tap;

static size_t first_inside(size_t offset, size_t stride, size_t padding) {
    return offset >= padding ? 0 : (padding - offset + stride - 1) / stride;
}

static size_t end_inside(size_t offset, size_t stride, size_t padding, size_t in, size_t out) {
    if (in + padding <= offset) {
        return 0;
    }
    size_t end = (in + padding - offset - 1) / stride + 1;
    return end < out ? end : out;
}

static tap make_tap(const ls_layer *layer, size_t row, size_t column) {
    size_t stride = layer->stride;
    size_t padding = layer->padding;
    return (tap){.stride = stride,
                 .in_width = layer->in.width,
                 .out_width = layer->out.width,
                 .row_first = first_inside(row, stride, padding),
                 .row_end = end_inside(row, stride, padding, layer->in.height, layer->out.height),
                 .column_first = first_inside(column, stride, padding),
                 .column_end = end_inside(column, stride, padding, layer->in.width, layer->out.width),
                 .row = row,
                 .column = column,
                 .padding = padding};
}

static size_t tap_input(const tap *t, size_t r, size_t c) {
    return ((r * t->stride + t->row - t->padding) * t->in_width + c * t->stride + t->column - t->padding) * LANES;
}

/* One accumulator of the device's type. */
static double one_more(const ls_oracle_pass *pass, double sum, double a, double b) {
    return pass->unit_roundoff > DBL_EPSILON ? (double)((float)sum + (float)a * (float)b) : sum + a * b;
}

/* to += w*from, of so many values in steps. */
static void add_products(const ls_oracle_pass *pass, double w, const double *from, size_t from_step, double *to,
                         size_t to_step, size_t count) {
    for (size_t c = 0; c < count && pass->one_by_one; c++) {
        for (size_t lane = 0; lane < LANES; lane++) {
            to[c * to_step + lane] = one_more(pass, to[c * to_step + lane], w, from[c * from_step + lane]);
        }
    }
    for (size_t c = 0; c < count && !pass->one_by_one; c++) {
        for (size_t lane = 0; lane < LANES; lane++) {
            to[lane] += w * from[lane];
        }
        to += to_step;
        from += from_step;
    }
}

static void tap_forward(const ls_oracle_pass *pass, const tap *t, double w, const double *x, double *y) {
    for (size_t r = t->row_first; r < t->row_end && t->column_first < t->column_end; r++) {
        add_products(pass, w, x + tap_input(t, r, t->column_first), t->stride * LANES,
                     y + (r * t->out_width + t->column_first) * LANES, LANES, t->column_end - t->column_first);
    }
}

static void tap_dx(const ls_oracle_pass *pass, const tap *t, double w, const double *dy, double *dx) {
    for (size_t r = t->row_first; r < t->row_end && t->column_first < t->column_end; r++) {
        add_products(pass, w, dy + (r * t->out_width + t->column_first) * LANES, LANES,
                     dx + tap_input(t, r, t->column_first), t->stride * LANES, t->column_end - t->column_first);
    }
}

static void tap_one_by_one(const ls_oracle_pass *pass, const tap *t, const double *x, const double *dy, double *sum) {
    for (size_t lane = 0; lane < pass->used; lane++) {
        for (size_t r = t->row_first; r < t->row_end; r++) {
            const double *a = dy + (r * t->out_width + t->column_first) * LANES + lane;
            const double *b = x + tap_input(t, r, t->column_first) + lane;
            for (size_t c = t->column_first; c < t->column_end; c++) {
                *sum = one_more(pass, *sum, *a, *b);
                a += LANES;
                b += t->stride * LANES;
            }
        }
    }
}

static void bias_one_by_one(const ls_oracle_pass *pass, size_t positions, const double *dy, double *sum) {
    for (size_t lane = 0; lane < pass->used; lane++) {
        for (size_t p = 0; p < positions; p++) {
            *sum = one_more(pass, *sum, dy[p * LANES + lane], 1);
        }
    }
}

static void tap_dw(const tap *t, const double *x, const double *dy, double *sums) {
    for (size_t r = t->row_first; r < t->row_end; r++) {
        const double *a = dy + (r * t->out_width + t->column_first) * LANES;
        const double *b = x + tap_input(t, r, t->column_first);
        for (size_t c = t->column_first; c < t->column_end; c++) {
            for (size_t lane = 0; lane < LANES; lane++) {
                sums[lane] += a[lane] * b[lane];
            }
            a += LANES;
            b += t->stride * LANES;
        }
    }
}

static void conv_forward(const ls_oracle_pass *pass) {
    const ls_layer *layer = pass->layer;
    size_t in_plane = layer->in.height * layer->in.width;
    size_t out_plane = layer->out.height * layer->out.width;
    const double *w = pass->weight;
    for (size_t o = 0; o < layer->out.channels; o++) {
        double *y = pass->y + o * out_plane * LANES;
        fill(y, out_plane, pass->bias != NULL ? pass->bias[o] : 0);
        for (size_t i = 0; i < layer->in.channels; i++) {
            for (size_t k = 0; k < layer->kernel * layer->kernel; k++) {
                tap t = make_tap(layer, k / layer->kernel, k % layer->kernel);
                tap_forward(pass, &t, *w++, pass->x + i * in_plane * LANES, y);
            }
        }
    }
}

static void conv_dx(const ls_oracle_pass *pass) {
    const ls_layer *layer = pass->layer;
    size_t in_plane = layer->in.height * layer->in.width;
    size_t out_plane = layer->out.height * layer->out.width;
    const double *w = pass->weight;
    for (size_t o = 0; o < layer->out.channels; o++) {
        for (size_t i = 0; i < layer->in.channels; i++) {
            for (size_t k = 0; k < layer->kernel * layer->kernel; k++) {
                tap t = make_tap(layer, k / layer->kernel, k % layer->kernel);
                tap_dx(pass, &t, *w++, pass->dy + o * out_plane * LANES, pass->dx + i * in_plane * LANES);
            }
        }
    }
}

static void conv_params(const ls_oracle_pass *pass) {
    const ls_layer *layer = pass->layer;
    size_t in_plane = layer->in.height * layer->in.width;
    size_t out_plane = layer->out.height * layer->out.width;
    double *dw = pass->dweight;
    for (size_t o = 0; o < layer->out.channels; o++) {
        const double *dy = pass->dy + o * out_plane * LANES;
        for (size_t i = 0; i < layer->in.channels; i++) {
            for (size_t k = 0; k < layer->kernel * layer->kernel; k++) {
                tap t = make_tap(layer, k / layer->kernel, k % layer->kernel);
                const double *x = pass->x + i * in_plane * LANES;
                if (pass->one_by_one) {
                    tap_one_by_one(pass, &t, x, dy, dw++);
                    continue;
                }
                double sums[LANES] = {0};
                tap_dw(&t, x, dy, sums);
                *dw++ += sum_lanes(pass, sums);
            }
        }
        if (pass->dbias != NULL && pass->one_by_one) {
            bias_one_by_one(pass, out_plane, dy, pass->dbias + o);
        } else if (pass->dbias != NULL) {
            double sums[LANES] = {0};
            for (size_t p = 0; p < out_plane; p++) {
                for (size_t lane = 0; lane < LANES; lane++) {
                    sums[lane] += dy[p * LANES + lane];
                }
            }
            pass->dbias[o] += sum_lanes(pass, sums);
        }
    }
}

static void linear_forward(const ls_oracle_pass *pass) {
    size_t in = ls_shape_features(pass->layer->in);
    size_t out = ls_shape_features(pass->layer->out);
    for (size_t o = 0; o < out; o++) {
        double sums[LANES] = {0};
        for (size_t i = 0; i < in; i++) {
            add_products(pass, pass->weight[o * in + i], pass->x + i * LANES, LANES, sums, LANES, 1);
        }
        for (size_t lane = 0; lane < LANES; lane++) {
            pass->y[o * LANES + lane] = sums[lane] + (pass->bias != NULL ? pass->bias[o] : 0);
        }
    }
}

static void linear_dx(const ls_oracle_pass *pass) {
    size_t in = ls_shape_features(pass->layer->in);
    size_t out = ls_shape_features(pass->layer->out);
    for (size_t o = 0; o < out; o++) {
        for (size_t i = 0; i < in; i++) {
            add_products(pass, pass->weight[o * in + i], pass->dy + o * LANES, LANES, pass->dx + i * LANES, LANES, 1);
        }
    }
}

static void linear_one_by_one(const ls_oracle_pass *pass, size_t in, size_t out) {
    for (size_t o = 0; o < out; o++) {
        const double *dy = pass->dy + o * LANES;
        for (size_t i = 0; i < in; i++) {
            for (size_t lane = 0; lane < pass->used; lane++) {
                double *sum = pass->dweight + o * in + i;
                *sum = one_more(pass, *sum, dy[lane], pass->x[i * LANES + lane]);
            }
        }
        if (pass->dbias != NULL) {
            bias_one_by_one(pass, 1, dy, pass->dbias + o);
        }
    }
}

static void linear_params(const ls_oracle_pass *pass) {
    size_t in = ls_shape_features(pass->layer->in);
    size_t out = ls_shape_features(pass->layer->out);
    if (pass->one_by_one) {
        linear_one_by_one(pass, in, out);
        return;
    }
    for (size_t o = 0; o < out; o++) {
        const double *dy = pass->dy + o * LANES;
        for (size_t i = 0; i < in; i++) {
            double products[LANES];
            for (size_t lane = 0; lane < LANES; lane++) {
                products[lane] = dy[lane] * pass->x[i * LANES + lane];
            }
            pass->dweight[o * in + i] += sum_lanes(pass, products);
        }
        if (pass->dbias != NULL) {
            pass->dbias[o] += sum_lanes(pass, dy);
        }
    }
}

const ls_oracle_kind ls_oracle_conv = {.affine = true, .forward = conv_forward, .params = conv_params, .dx = conv_dx};
const ls_oracle_kind ls_oracle_linear = {
    .affine = true, .forward = linear_forward, .params = linear_params, .dx = linear_dx};
