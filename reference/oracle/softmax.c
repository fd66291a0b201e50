/* Flatten and log-softmax. */
#include <math.h>
#include <string.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

/* log(sum(exp(x))) of one lane, shifted by the maximum so that nothing overflows. */
static double log_sum_exp(const double *x, size_t classes, size_t lane) {
    double top = x[lane];
    for (size_t c = 1; c < classes; c++) {
        top = fmax(top, x[c * LANES + lane]);
    }
    double sum = 0;
    for (size_t c = 0; c < classes; c++) {
        sum += exp(x[c * LANES + lane] - top);
    }
    return top + log(sum);
}

/* y = x - log(sum(exp(x))). Nothing decides by comparison after it, so it carries no bound. */
static void log_softmax_forward(const ls_oracle_pass *pass) {
    size_t classes = ls_shape_features(pass->layer->in);
    for (size_t lane = 0; lane < LANES; lane++) {
        double shift = log_sum_exp(pass->x, classes, lane);
        for (size_t c = 0; c < classes; c++) {
            pass->y[c * LANES + lane] = pass->x[c * LANES + lane] - shift;
            if (pass->y_error != NULL) {
                pass->y_error[c * LANES + lane] = INFINITY;
            }
        }
    }
}

/* dx = dy - softmax(x)*sum(dy). */
static void log_softmax_dx(const ls_oracle_pass *pass) {
    size_t classes = ls_shape_features(pass->layer->in);
    for (size_t lane = 0; lane < LANES; lane++) {
        double total = 0;
        for (size_t c = 0; c < classes; c++) {
            total += pass->dy[c * LANES + lane];
        }
        for (size_t c = 0; c < classes; c++) {
            size_t at = c * LANES + lane;
            pass->dx[at] += pass->dy[at] - exp(pass->y[at]) * total;
        }
    }
}

static void flatten_forward(const ls_oracle_pass *pass) {
    size_t bytes = ls_shape_features(pass->layer->in) * LANES * sizeof(double);
    memcpy(pass->y, pass->x, bytes);
    if (pass->y_error != NULL) {
        memcpy(pass->y_error, pass->x_error, bytes);
    }
}

static void flatten_dx(const ls_oracle_pass *pass) {
    memcpy(pass->dx, pass->dy, ls_shape_features(pass->layer->in) * LANES * sizeof(double));
}

const ls_oracle_kind ls_oracle_flatten = {.forward = flatten_forward, .dx = flatten_dx};
const ls_oracle_kind ls_oracle_log_softmax = {.forward = log_softmax_forward, .dx = log_softmax_dx};
