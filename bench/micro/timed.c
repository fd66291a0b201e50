#include "bench/micro/timed.h"

#include "bench/micro/job.h"
#include "bench/micro/peak.h"
#include "gpu/base/clock.h"

/* Launches between two waits: a step enqueues about as many. */
enum { ROW = 32 };

static void report(ls_gbench_state *state, const ls_micro_work *work, double memory_peak, double fma_peak,
                   double seconds) {
    double by_memory = memory_peak > 0 ? work->bytes / memory_peak : 0;
    double by_arithmetic = fma_peak > 0 ? work->operations / fma_peak : 0;
    if (work->bytes > 0) {
        ls_gbench_bytes(state, work->bytes);
    }
    if (work->operations > 0) {
        ls_gbench_counter(state, "flops", LS_GBENCH_RATE, work->operations);
    }
    if (by_memory + by_arithmetic > 0 && seconds > 0) {
        ls_gbench_counter(state, "roofline", LS_GBENCH_VALUE,
                          (by_memory > by_arithmetic ? by_memory : by_arithmetic) / seconds);
    }
}

ls_rc ls_micro_timed(ls_gbench_state *state, cudaStream_t stream, const ls_micro_work *work,
                     ls_rc (*launch)(void *self), void *self) {
    double set = work->working_set > 0 ? work->working_set : work->bytes;
    double memory_peak = work->bytes > 0 ? ls_micro_memory_peak((size_t)set) : 0;
    /* the loop runs on this processor: it says nothing about devices with cores of their own */
    double fma_peak = work->operations > 0 && ls_platform_shared_cores() > 0 ? ls_micro_fma_peak(work->dtype) : 0;
    LS_TRY(launch(self)); /* pages and caches */
    LS_CUDA(cudaStreamSynchronize(stream));
    uint64_t most = ls_gbench_iterations(state), done = 0;
    uint64_t row = most < ROW ? most : ROW;
    double begin = ls_now_seconds();
    while (ls_gbench_next(state, row)) {
        for (uint64_t i = 0; i < row; i++) {
            LS_TRY(launch(self));
        }
        LS_CUDA(cudaStreamSynchronize(stream));
        done += row;
    }
    double seconds = (ls_now_seconds() - begin) / (double)(done > 0 ? done : 1);
    report(state, work, memory_peak, fma_peak, seconds);
    return LS_OK;
}
