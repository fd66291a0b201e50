/* The bookkeeping of one address range: which parts are allocated. Kept outside the range itself, so that a stray write of
 * a kernel cannot break it. Not thread-safe. */
#ifndef LS_GPU_VGPU_ARENA_H
#define LS_GPU_VGPU_ARENA_H

#include <stdbool.h>
#include <stddef.h>

enum { VGPU_ALIGNMENT = 256 };

typedef struct vgpu_block {
    size_t offset;
    size_t size;      /* a multiple of VGPU_ALIGNMENT */
    size_t requested; /* 0: free */
    size_t lead;      /* the allocation begins so many bytes into the block */
    bool mapped;      /* made by ncclMemAlloc, not by cudaMalloc */
} vgpu_block;

/* Blocks in order of offset that cover the whole range; neighbours are never both free. */
typedef struct vgpu_blocks {
    vgpu_block *list;
    size_t count;
    size_t capacity;
    size_t free_bytes;
} vgpu_blocks;

/* One free block of size bytes (a multiple of VGPU_ALIGNMENT); false when host memory is out. */
bool vgpu_blocks_open(vgpu_blocks *blocks, size_t size);
void vgpu_blocks_close(vgpu_blocks *blocks);
/* First fit. size > 0. false when nothing fits. */
bool vgpu_blocks_allocate(vgpu_blocks *blocks, size_t size, size_t *offset);
/* Says where in its block, which starts at offset, an allocation of requested bytes lies, and how it was made. */
void vgpu_blocks_place(vgpu_blocks *blocks, size_t offset, size_t lead, size_t requested, bool mapped);
/* Frees the block whose allocation starts at offset, and tells its size; false when no live allocation starts there. */
bool vgpu_blocks_free(vgpu_blocks *blocks, size_t offset, size_t *size);
/* The free block that holds offset (what hole punching may drop). */
vgpu_block vgpu_blocks_find(const vgpu_blocks *blocks, size_t offset);

#endif
