#include "gpu/vgpu/clock.h"

#include <stdlib.h>

static bool reserve(vgpu_clock *clock, size_t count) {
    if (count <= clock->count) {
        return true;
    }
    uint64_t *at = realloc(clock->at, count * sizeof *at);
    if (at == NULL) {
        return false;
    }
    for (size_t i = clock->count; i < count; i++) {
        at[i] = 0;
    }
    clock->at = at;
    clock->count = count;
    return true;
}

bool vgpu_clock_join(vgpu_clock *into, const vgpu_clock *from) {
    if (!reserve(into, from->count)) {
        return false;
    }
    for (size_t i = 0; i < from->count; i++) {
        if (from->at[i] > into->at[i]) {
            into->at[i] = from->at[i];
        }
    }
    return true;
}

bool vgpu_clock_set(vgpu_clock *clock, size_t timeline, uint64_t value) {
    if (!reserve(clock, timeline + 1)) {
        return false;
    }
    clock->at[timeline] = value;
    return true;
}

void vgpu_clock_free(vgpu_clock *clock) {
    free(clock->at);
    *clock = (vgpu_clock){0};
}
