/* Listening to NVTX's ranges, as a profiler does on real GPUs. For tests. */
#ifndef LS_GPU_VGPU_RANGES_H
#define LS_GPU_VGPU_RANGES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct vgpu_range_event {
    const char *domain;
    const char *name; /* of a range that begins; NULL: one ends */
    bool numbered;
    uint64_t number;
    int depth; /* 0: the outermost of the thread; negative: an end without a beginning */
} vgpu_range_event;

/* Called on the thread whose range begins or ends, before the call returns. */
typedef void (*vgpu_range_listener)(const vgpu_range_event *event);

/* From now on; NULL: nobody. No range may be open in any thread. */
void vgpu_ranges_listen(vgpu_range_listener listener);

#endif
