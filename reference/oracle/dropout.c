/* Dropout: the device's mask is followed, since any mask is right as far as a gradient goes; whether the masks look like
 * what they should be is another check's business. Without a mask to follow everything passes. */
#include <float.h>
#include <math.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

/* 1/(1-p) of a device is one rounded constant. */
static double scale_of(const ls_oracle_pass *pass) {
    double scale = pass->masked ? 1 / (1 - pass->layer->p) : 1;
    return ls_oracle_rounded_alike(pass->noise, pass->layer_index, 1, scale);
}

/* y = x/(1-p) where kept. The device rounds 1/(1-p) and the product, the oracle likewise: with r the sum of two roundings on
 * both sides, |y' - y| <= (e + 2r*(|x| + e))/(1-p), where 2 covers the terms of second order. */
static void dropout_forward(const ls_oracle_pass *pass) {
    double scale = scale_of(pass);
    double roundings = 2 * (pass->unit_roundoff + DBL_EPSILON / 2);
    for (size_t f = 0; f < ls_shape_features(pass->layer->in); f++) {
        for (size_t lane = 0; lane < LANES; lane++) {
            size_t at = f * LANES + lane;
            uint8_t keep = pass->noise != NULL ? pass->choice[at] : 1;
            if (pass->follow != NULL && lane < pass->used) {
                keep = pass->follow[lane * pass->follow_stride + f];
                pass->report->total++;
                if (keep > 1) {
                    ls_oracle_differs(pass, lane, f, INFINITY, 0); /* no decision at all */
                    keep = 1;
                }
            }
            pass->choice[at] = keep;
            pass->y[at] = keep ? ls_oracle_rounded(pass->noise, pass->x[at] * scale) : 0;
            if (pass->y_error != NULL) {
                double e = pass->x_error[at];
                pass->y_error[at] = keep ? (e + 2 * roundings * (fabs(pass->x[at]) + e)) * scale : 0;
            }
        }
    }
}

static void dropout_dx(const ls_oracle_pass *pass) {
    double scale = scale_of(pass);
    for (size_t at = 0; at < ls_shape_features(pass->layer->in) * LANES; at++) {
        pass->dx[at] += pass->choice[at] ? ls_oracle_rounded(pass->noise, pass->dy[at] * scale) : 0;
    }
}

const ls_oracle_kind ls_oracle_dropout = {.forward = dropout_forward, .dx = dropout_dx};
