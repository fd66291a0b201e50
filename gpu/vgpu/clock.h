/* Vector clocks (Fidge 1988, Mattern 1988). Entry i counts the operations of timeline i; an operation with number n of timeline
 * i has happened before whatever has a clock with entry i at n or more. Streams are the timelines. */
#ifndef LS_GPU_VGPU_CLOCK_H
#define LS_GPU_VGPU_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vgpu_clock {
    uint64_t *at; /* owned; entries from count on are 0 */
    size_t count;
} vgpu_clock;

/* Both are false when host memory is out: then the clock is as before. */
bool vgpu_clock_join(vgpu_clock *into, const vgpu_clock *from); /* the larger of each entry */
bool vgpu_clock_set(vgpu_clock *clock, size_t timeline, uint64_t value);

static inline uint64_t vgpu_clock_get(const vgpu_clock *clock, size_t timeline) {
    return timeline < clock->count ? clock->at[timeline] : 0;
}

/* The clock is then empty and can be used again. */
void vgpu_clock_free(vgpu_clock *clock);

#endif
