/* Which of several candidates is the fastest, by the device's own clock. */
#include "gpu/cuda/math.h"

/* The least of these many runs counts: what else goes on can only make one longer. */
enum { RUNS = 3 };

typedef struct stopwatch {
    cudaEvent_t begin, end;
} stopwatch;

/* *taken: false when the candidate does not run. */
static ls_rc time_candidate(ls_math *math, const stopwatch *watch, int (*run)(void *context, size_t candidate),
                            void *context, size_t candidate, float *milliseconds, bool *taken) {
    *taken = run(context, candidate) == 0; /* the first run loads the kernel */
    for (int i = 0; i < RUNS && *taken; i++) {
        LS_CUDA(cudaEventRecord(watch->begin, math->stream));
        *taken = run(context, candidate) == 0;
        LS_CUDA(cudaEventRecord(watch->end, math->stream));
        LS_CUDA(cudaEventSynchronize(watch->end));
        float this_run = 0;
        LS_CUDA(cudaEventElapsedTime(&this_run, watch->begin, watch->end));
        *milliseconds = i == 0 || this_run < *milliseconds ? this_run : *milliseconds;
    }
    return LS_OK;
}

static ls_rc time_all(ls_math *math, const stopwatch *watch, size_t count, int (*run)(void *context, size_t candidate),
                      void *context, size_t *best, bool *found) {
    float least = 0;
    for (size_t i = 0; i < count; i++) {
        float milliseconds = 0;
        bool taken = false;
        LS_TRY(time_candidate(math, watch, run, context, i, &milliseconds, &taken));
        if (taken && (!*found || milliseconds < least)) {
            *found = true;
            *best = i;
            least = milliseconds;
        }
    }
    return LS_OK;
}

ls_rc ls_math_fastest(ls_math *math, size_t count, int (*run)(void *context, size_t candidate), void *context,
                      size_t *best, bool *found) {
    stopwatch watch = {NULL, NULL};
    *found = false;
    LS_CUDA(cudaEventCreate(&watch.begin));
    ls_rc rc = ls_cuda_check(cudaEventCreate(&watch.end), "cudaEventCreate", __FILE__, __LINE__);
    if (rc == LS_OK) {
        rc = time_all(math, &watch, count, run, context, best, found);
        (void)ls_cuda_check(cudaEventDestroy(watch.end), "cudaEventDestroy", __FILE__, __LINE__);
    }
    (void)ls_cuda_check(cudaEventDestroy(watch.begin), "cudaEventDestroy", __FILE__, __LINE__);
    return rc;
}
