/* What one core can do at most, by plain loops: the roofs over every kernel. */
#ifndef LS_BENCH_MICRO_PEAK_H
#define LS_BENCH_MICRO_PEAK_H

#include <stddef.h>

#include "gpu/gpu.h"

/* Runs `rounds` rounds of fused multiply-adds on values in registers, with the widest vectors that this processor has, and
 * returns their number of floating-point operations (a multiply-add is two). */
double ls_micro_fma_run(ls_dtype dtype, size_t rounds);
/* "AVX2", "AVX-512" or "baseline": what it runs with. */
const char *ls_micro_fma_name(void);

/* values[i] *= factor, in place. */
void ls_micro_memory_run(float *values, size_t count, float factor);

/* Peak of this thread, operations a second: the best of several short runs. */
double ls_micro_fma_peak(ls_dtype dtype);

/* Bandwidth over a working set of `bytes`: bytes a second, reads and writes counted alike; the better of copying one half to
 * the other and of reading and writing the whole in place. On a platform whose devices have their own memory: of copying on
 * the current device. 0 when it cannot be measured. */
double ls_micro_memory_peak(size_t bytes);

#endif
