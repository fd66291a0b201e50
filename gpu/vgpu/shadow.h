/* Who used which bytes last: for every range of memory the last write, and the reads since. Not thread-safe. */
#ifndef LS_GPU_VGPU_SHADOW_H
#define LS_GPU_VGPU_SHADOW_H

#include "gpu/vgpu/modes.h"

/* An operation as reports name it and as clocks know it. */
typedef struct vgpu_use {
    const char *name;
    struct vgpu_place place;
    int device;
    unsigned stream; /* its number; 0: the default stream */
    size_t timeline;
    uint64_t number; /* on the timeline */
} vgpu_use;

/* Two uses of the same bytes, one of them at least a write, that nothing orders. */
typedef struct vgpu_conflict {
    vgpu_use before; /* queued before the other */
    bool before_writes;
    uintptr_t from, to;
} vgpu_conflict;

/* Whether a use has happened before the one at hand. */
typedef bool (*vgpu_ordered)(const vgpu_use *before, void *context);

/* Looks for a use of the range that conflicts with use and is not ordered before it. */
bool vgpu_shadow_conflict(const vgpu_access *access, vgpu_ordered ordered, void *context, vgpu_conflict *out);
/* Remembers the use; false when host memory is out. */
bool vgpu_shadow_record(const vgpu_access *access, const vgpu_use *use);
/* Forgets all uses of the range. */
bool vgpu_shadow_clear(const void *pointer, size_t bytes);

#endif
