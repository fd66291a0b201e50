#include "bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

ls_summary ls_stats_summarize(double *samples, size_t count) {
    qsort(samples, count, sizeof samples[0], compare);
    ls_summary out = {.minimum = samples[0], .maximum = samples[count - 1]};
    out.median = count % 2 == 1 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
    /* below: P(Binomial(count, 1/2) < k), by summing probabilities built in logarithms so that no count underflows. */
    double log_half = -(double)count * log(2.0);
    double below = 0;
    size_t k = 0;
    while (2 * (k + 1) <= count) {
        double term =
            exp(log_half + lgamma((double)count + 1) - lgamma((double)k + 1) - lgamma((double)(count - k) + 1));
        if (k > 0 && 1 - 2 * (below + term) < LS_STATS_CONFIDENCE) {
            break;
        }
        below += term;
        k++;
    }
    size_t from = k > 0 ? k - 1 : 0;
    out.low = samples[from];
    out.high = samples[count - 1 - from];
    out.confidence = count > 1 ? 1 - 2 * below : 0;
    return out;
}

ls_rc ls_stats_of_rounds(const double *samples, size_t count, size_t rounds, double *medians, ls_summary *out) {
    size_t each = count / rounds;
    double *sorted = ls_calloc(count, sizeof samples[0], "the samples of rounds");
    if (sorted == NULL) {
        return LS_DEVICE_FAILED;
    }
    memcpy(sorted, samples, count * sizeof samples[0]);
    for (size_t round = 0; round < rounds; round++) {
        medians[round] = ls_stats_summarize(sorted + round * each, each).median;
    }
    memcpy(sorted, medians, rounds * sizeof medians[0]); /* rounds <= count */
    *out = ls_stats_summarize(sorted, rounds);
    free(sorted);
    return LS_OK;
}
