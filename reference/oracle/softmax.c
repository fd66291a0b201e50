/* Flatten and log-softmax. */
#include <math.h>
#include <string.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

/* y = (x - top) - log(sum(exp(x - top))), top the maximum, so that nothing overflows. Nothing decides by comparison after it,
 * so it carries no bound. */
static void log_softmax_forward(const ls_oracle_pass *pass) {
    size_t classes = ls_shape_features(pass->layer->in);
    for (size_t lane = 0; lane < LANES; lane++) {
        double top = pass->x[lane];
        for (size_t c = 1; c < classes; c++) {
            top = fmax(top, pass->x[c * LANES + lane]);
        }
        double sum = 0;
        for (size_t c = 0; c < classes; c++) {
            double shifted = ls_oracle_rounded(pass->noise, pass->x[c * LANES + lane] - top);
            sum = ls_oracle_rounded(pass->noise, sum + ls_oracle_rounded_function(pass->noise, exp(shifted)));
        }
        double log_sum = ls_oracle_rounded_function(pass->noise, log(sum));
        for (size_t c = 0; c < classes; c++) {
            double shifted = ls_oracle_rounded(pass->noise, pass->x[c * LANES + lane] - top);
            pass->y[c * LANES + lane] = ls_oracle_rounded(pass->noise, shifted - log_sum);
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
            total = ls_oracle_rounded(pass->noise, total + pass->dy[c * LANES + lane]);
        }
        for (size_t c = 0; c < classes; c++) {
            size_t at = c * LANES + lane;
            double p = ls_oracle_rounded_function(pass->noise, exp(pass->y[at]));
            double shared = ls_oracle_rounded(pass->noise, p * total);
            pass->dx[at] += ls_oracle_rounded(pass->noise, pass->dy[at] - shared);
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
