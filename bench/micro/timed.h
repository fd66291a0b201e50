/* Benchmarks of work on one stream: how often it is launched between two waits, and what its roofs are. */
#ifndef LS_BENCH_MICRO_TIMED_H
#define LS_BENCH_MICRO_TIMED_H

#include "bench/gbench_shim.h"
#include "gpu/gpu.h"

/* What one launch does at the least. */
typedef struct ls_micro_work {
    double bytes;       /* moved between memory and the core */
    double working_set; /* bytes: whose bandwidth is the roof; 0: bytes */
    double operations;  /* floating-point */
    ls_dtype dtype;
} ls_micro_work;

/* Launches again and again, waiting for the stream now and then as a step does, and reports bytes_per_second, flops and
 * `roofline`: the time that the work takes at the peaks of memory and multiply-adds (bench/micro/peak.h, measured just before),
 * whichever is longer, over the time that it took. */
ls_rc ls_micro_timed(ls_gbench_state *state, cudaStream_t stream, const ls_micro_work *work,
                     ls_rc (*launch)(void *self), void *self);

#endif
