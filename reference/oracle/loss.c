/* The losses: their terms and gradients over a block, and what a sum of terms makes. */
#include <math.h>
#include <string.h>

#include "reference/oracle/block.h"

enum { LANES = LS_ORACLE_LANES };

/* One lane against the distribution q: (1 - smoothing) on the label, smoothing spread evenly over all classes. Returns
 * -sum_c q_c*log(p_c), p the softmax; its gradient is p - q. */
static double cross_entropy(const ls_oracle_loss *loss, size_t classes, const double *z, size_t label, double *dz) {
    double top = z[0];
    for (size_t c = 1; c < classes; c++) {
        top = fmax(top, z[c * LANES]);
    }
    double sum = 0;
    for (size_t c = 0; c < classes; c++) {
        sum += exp(z[c * LANES] - top);
    }
    double shift = top + log(sum);
    double even = loss->label_smoothing / (double)classes;
    double value = 0;
    for (size_t c = 0; c < classes; c++) {
        double q = even + (c == label ? 1 - loss->label_smoothing : 0);
        double log_p = z[c * LANES] - shift;
        if (q > 0) { /* the logarithm may be infinite where nothing is expected */
            value -= q * log_p;
        }
        dz[c * LANES] = exp(log_p) - q;
    }
    return value;
}

static double squared_error(size_t outputs, const double *y, const double *target, size_t label, double *dy) {
    double value = 0;
    for (size_t c = 0; c < outputs; c++) {
        double wanted = target != NULL ? target[c] : c == label ? 1 : 0;
        double difference = y[c * LANES] - wanted;
        value += difference * difference;
        dy[c * LANES] = 2 * difference;
    }
    return value;
}

double ls_oracle_terms(const ls_oracle_input *input, size_t outputs, size_t first, size_t used, const double *y,
                       double *dy) {
    memset(dy, 0, outputs * LANES * sizeof *dy);
    double sum = 0;
    for (size_t lane = 0; lane < used; lane++) {
        size_t sample = first + lane;
        size_t label = input->labels != NULL ? (size_t)input->labels[sample] : outputs;
        const double *target = input->targets != NULL ? input->targets + sample * outputs : NULL;
        sum += input->loss.kind == LS_ORACLE_CROSS_ENTROPY
                   ? cross_entropy(&input->loss, outputs, y + lane, label, dy + lane)
                   : squared_error(outputs, y + lane, target, label, dy + lane);
        for (size_t c = 0; c < outputs; c++) {
            dy[c * LANES + lane] /= input->denominator;
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
