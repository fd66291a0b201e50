/* The clock by which everything is timed and waited for. */
#ifndef LS_GPU_BASE_CLOCK_H
#define LS_GPU_BASE_CLOCK_H

#include <time.h>

/* Seconds of the monotonic clock, from an arbitrary start. */
static inline double ls_now_seconds(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* fails for clocks that do not exist alone */
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
