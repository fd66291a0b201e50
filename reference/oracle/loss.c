/* The losses: their terms and gradients over a block, and what a sum of terms makes. */
#include <math.h>
#include <string.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

/* What the roundings of all samples have in common, for ls_oracle_rounded_alike: the constants that a device rounds once, and
 * of a saturated softmax, which is 1 less than a rounding's worth, the probability itself: it is rounded the same way in
 * every sample. */
enum { PROBABILITY, SMOOTHING, SCALE };

/* One lane against the distribution q: (1 - smoothing) on the label, smoothing spread evenly over all classes. Returns
 * -sum_c q_c*log(p_c), p the softmax; its gradient is p - q. */
static double cross_entropy(const ls_oracle_loss *loss, size_t classes, const double *z, size_t label, double *dz,
                            const ls_oracle_noise *noise) {
    double top = z[0];
    for (size_t c = 1; c < classes; c++) {
        top = fmax(top, z[c * LANES]);
    }
    double sum = 0;
    for (size_t c = 0; c < classes; c++) {
        dz[c * LANES] = ls_oracle_rounded_function(noise, exp(ls_oracle_rounded(noise, z[c * LANES] - top)));
        sum = ls_oracle_rounded(noise, sum + dz[c * LANES]);
    }
    double log_sum = ls_oracle_rounded_function(noise, log(sum));
    double even = loss->label_smoothing / (double)classes;
    double value = 0;
    for (size_t c = 0; c < classes; c++) {
        double q = even + (c == label ? 1 - loss->label_smoothing : 0);
        q = ls_oracle_rounded_alike(noise, SMOOTHING, loss->label_smoothing > 0 ? 1 : 0, q);
        if (q > 0) { /* the logarithm may be infinite where nothing is expected */
            double log_p = ls_oracle_rounded(noise, ls_oracle_rounded(noise, z[c * LANES] - top) - log_sum);
            value = ls_oracle_rounded(noise, value - q * log_p);
        }
        double p = ls_oracle_rounded(noise, dz[c * LANES] / sum);
        dz[c * LANES] = ls_oracle_rounded(noise, ls_oracle_rounded_alike(noise, PROBABILITY, 2, p) - q);
    }
    return value;
}

/* The factor before a difference is one constant for all, of an rmse the product of two. */
static double squared_error(size_t outputs, const double *y, const double *target, size_t label, double *dy,
                            const ls_oracle_noise *noise) {
    double value = 0;
    for (size_t c = 0; c < outputs; c++) {
        double wanted = target != NULL ? target[c] : c == label ? 1 : 0;
        double difference = ls_oracle_rounded(noise, y[c * LANES] - wanted);
        double square = ls_oracle_rounded(noise, difference * difference);
        value = ls_oracle_rounded(noise, value + square);
        dy[c * LANES] = ls_oracle_rounded(noise, ls_oracle_rounded_alike(noise, SCALE, 2, 2 * difference));
    }
    return value;
}

double ls_oracle_terms(const ls_oracle_input *input, size_t outputs, size_t first, size_t used, const double *y,
                       double *dy, const ls_oracle_noise *noise) {
    memset(dy, 0, outputs * LANES * sizeof *dy);
    double sum = 0;
    for (size_t lane = 0; lane < used; lane++) {
        size_t sample = first + lane;
        size_t label = input->labels != NULL ? (size_t)input->labels[sample] : outputs;
        const double *target = input->targets != NULL ? input->targets + sample * outputs : NULL;
        sum += input->loss.kind == LS_ORACLE_CROSS_ENTROPY
                   ? cross_entropy(&input->loss, outputs, y + lane, label, dy + lane, noise)
                   : squared_error(outputs, y + lane, target, label, dy + lane, noise);
        for (size_t c = 0; c < outputs; c++) {
            dy[c * LANES + lane] = ls_oracle_rounded(noise, dy[c * LANES + lane] / input->denominator);
        }
    }
    return sum;
}

static double divisor(const ls_oracle_loss *loss, double samples, size_t outputs) {
    if (loss->sum) {
        return 1;
    }
    return loss->kind == LS_ORACLE_CROSS_ENTROPY ? samples : samples * (double)outputs;
}

double ls_oracle_loss_value(const ls_oracle_loss *loss, double sum, double samples, size_t outputs) {
    double mean = sum / divisor(loss, samples, outputs);
    return loss->kind == LS_ORACLE_RMSE ? sqrt(mean) : mean;
}

double ls_oracle_loss_slope(const ls_oracle_loss *loss, double sum, double samples, size_t outputs) {
    double slope = 1 / divisor(loss, samples, outputs);
    return loss->kind == LS_ORACLE_RMSE ? slope / (2 * ls_oracle_loss_value(loss, sum, samples, outputs)) : slope;
}
