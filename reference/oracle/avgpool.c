/* Average pooling. */
#include <float.h>
#include <math.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

/* The input under position k of the window of output (channel, r, c). */
static size_t window_input(const ls_layer *layer, size_t output, size_t k) {
    size_t c = output % layer->out.width;
    size_t r = output / layer->out.width % layer->out.height;
    size_t channel = output / layer->out.width / layer->out.height;
    size_t row = r * layer->stride + k / layer->kernel;
    size_t column = c * layer->stride + k % layer->kernel;
    return (channel * layer->in.height + row) * layer->in.width + column;
}

/* The mean of k values in any order: k-1 additions and a division, so each value passes at most k roundings on either side,
 * and with |x' - x| <= e
 *   |y' - y| <= mean(e) + gamma_k*mean(|x| + e). */
static void avgpool_forward(const ls_oracle_pass *pass) {
    const ls_layer *layer = pass->layer;
    size_t count = layer->kernel * layer->kernel;
    double roundings = (double)count * (pass->unit_roundoff + DBL_EPSILON / 2);
    double gamma = roundings / (1 - roundings);
    for (size_t output = 0; output < ls_shape_features(layer->out); output++) {
        double sums[LANES] = {0};
        double bounds[LANES] = {0};
        for (size_t k = 0; k < count; k++) {
            size_t at = window_input(layer, output, k) * LANES;
            for (size_t lane = 0; lane < LANES; lane++) {
                sums[lane] = ls_oracle_rounded(pass->noise, sums[lane] + pass->x[at + lane]);
                if (pass->x_error != NULL) {
                    double e = pass->x_error[at + lane];
                    bounds[lane] += e + gamma * (fabs(pass->x[at + lane]) + e);
                }
            }
        }
        for (size_t lane = 0; lane < LANES; lane++) {
            pass->y[output * LANES + lane] = ls_oracle_rounded(pass->noise, sums[lane] / (double)count);
            if (pass->y_error != NULL) {
                pass->y_error[output * LANES + lane] = bounds[lane] / (double)count;
            }
        }
    }
}

static void avgpool_dx(const ls_oracle_pass *pass) {
    const ls_layer *layer = pass->layer;
    size_t count = layer->kernel * layer->kernel;
    for (size_t output = 0; output < ls_shape_features(layer->out); output++) {
        for (size_t k = 0; k < count; k++) {
            size_t at = window_input(layer, output, k) * LANES;
            for (size_t lane = 0; lane < LANES; lane++) {
                double part = ls_oracle_rounded(pass->noise, pass->dy[output * LANES + lane] / (double)count);
                pass->dx[at + lane] = ls_oracle_rounded(pass->noise, pass->dx[at + lane] + part);
            }
        }
    }
}

const ls_oracle_kind ls_oracle_avgpool = {.forward = avgpool_forward, .dx = avgpool_dx};
