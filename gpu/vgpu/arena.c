/* First-fit allocation with coalescing over one sorted array of blocks. */
#include "gpu/vgpu/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(vgpu_blocks *blocks, size_t count) {
    if (count <= blocks->capacity) {
        return true;
    }
    size_t capacity = blocks->capacity == 0 ? 64 : 2 * blocks->capacity;
    vgpu_block *list = realloc(blocks->list, capacity * sizeof *list);
    if (list == NULL) {
        return false;
    }
    blocks->list = list;
    blocks->capacity = capacity;
    return true;
}

static void remove_at(vgpu_blocks *blocks, size_t i) {
    memmove(&blocks->list[i], &blocks->list[i + 1], (blocks->count - i - 1) * sizeof *blocks->list);
    blocks->count--;
}

bool vgpu_blocks_open(vgpu_blocks *blocks, size_t size) {
    *blocks = (vgpu_blocks){0};
    if (!reserve(blocks, 1)) {
        return false;
    }
    blocks->list[0] = (vgpu_block){.size = size};
    blocks->count = 1;
    blocks->free_bytes = size;
    return true;
}

void vgpu_blocks_close(vgpu_blocks *blocks) {
    free(blocks->list);
    *blocks = (vgpu_blocks){0};
}

/* Index of the block that holds offset. */
static size_t index_of(const vgpu_blocks *blocks, size_t offset) {
    size_t low = 0;
    size_t high = blocks->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (blocks->list[middle].offset <= offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

vgpu_block vgpu_blocks_find(const vgpu_blocks *blocks, size_t offset) {
    return blocks->list[index_of(blocks, offset)];
}

bool vgpu_blocks_allocate(vgpu_blocks *blocks, size_t requested, size_t *offset) {
    if (requested > SIZE_MAX - VGPU_ALIGNMENT || !reserve(blocks, blocks->count + 1)) {
        return false;
    }
    size_t size = (requested + VGPU_ALIGNMENT - 1) / VGPU_ALIGNMENT * VGPU_ALIGNMENT;
    for (size_t i = 0; i < blocks->count; i++) {
        vgpu_block *block = &blocks->list[i];
        if (block->requested != 0 || block->size < size) {
            continue;
        }
        if (block->size > size) {
            memmove(block + 2, block + 1, (blocks->count - i - 1) * sizeof *block);
            block[1] = (vgpu_block){.offset = block->offset + size, .size = block->size - size};
            blocks->count++;
        }
        block->size = size;
        block->requested = requested;
        blocks->free_bytes -= size;
        *offset = block->offset;
        return true;
    }
    return false;
}

void vgpu_blocks_place(vgpu_blocks *blocks, size_t offset, size_t lead, size_t requested, bool mapped) {
    vgpu_block *block = &blocks->list[index_of(blocks, offset)];
    block->lead = lead;
    block->requested = requested;
    block->mapped = mapped;
}

bool vgpu_blocks_free(vgpu_blocks *blocks, size_t offset, size_t *size) {
    size_t i = index_of(blocks, offset);
    if (blocks->list[i].offset + blocks->list[i].lead != offset || blocks->list[i].requested == 0) {
        return false;
    }
    blocks->list[i].lead = 0;
    blocks->list[i].mapped = false;
    *size = blocks->list[i].size;
    blocks->free_bytes += *size;
    blocks->list[i].requested = 0;
    if (i + 1 < blocks->count && blocks->list[i + 1].requested == 0) {
        blocks->list[i].size += blocks->list[i + 1].size;
        remove_at(blocks, i + 1);
    }
    if (i > 0 && blocks->list[i - 1].requested == 0) {
        blocks->list[i - 1].size += blocks->list[i].size;
        remove_at(blocks, i);
    }
    return true;
}
