/* Statistics of timings: the median and an interval that assumes no distribution. */
#ifndef LS_BENCH_STATS_H
#define LS_BENCH_STATS_H

#include <stddef.h>

#include "gpu/base/error.h"

/* The coverage that an interval should have; fewer than LS_STATS_LEAST samples cannot give it. */
#define LS_STATS_CONFIDENCE 0.95
enum { LS_STATS_LEAST = 6 };

typedef struct ls_summary {
    double median;
    double low, high; /* order statistics around the median */
    /* Coverage of low..high: the smallest symmetric interval of at least LS_STATS_CONFIDENCE, or what the extremes give when
     * there are fewer than LS_STATS_LEAST samples; 0 for a single sample. */
    double confidence;
    double minimum, maximum;
} ls_summary;

/* Summary of count > 0 samples, which are sorted in place. Interval: the k-th smallest and k-th largest sample cover the
 * median with probability 1 - 2*P(Binomial(count, 1/2) < k) (Hoefler and Belli, rule 5; Le Boudec, theorem 2.1). */
ls_summary ls_stats_summarize(double *samples, size_t count);

/* The same of samples that come in rounds, of which those of one round resemble each other (steps of one process): a round
 * counts once, by its median. samples stay as they are: rounds > 0 groups one behind the other, each of count / rounds > 0
 * samples. medians gets the median of each round, in their order; out is the summary of these. LS_DEVICE_FAILED when memory is
 * short. */
ls_rc ls_stats_of_rounds(const double *samples, size_t count, size_t rounds, double *medians, ls_summary *out);

#endif
