/* Handles of streams and events: generation in the high half, then the object's index, then the pool's tag. */
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/runtime.h"

static vgpu_slot *slot_at(vgpu_pool *pool, uint32_t index) {
    if (index / VGPU_CHUNK_OBJECTS >= VGPU_MAX_CHUNKS) {
        return NULL;
    }
    char *chunk = atomic_load_explicit(&pool->chunks[index / VGPU_CHUNK_OBJECTS], memory_order_acquire);
    if (chunk == NULL) {
        return NULL;
    }
    return (vgpu_slot *)(void *)(chunk + (index % VGPU_CHUNK_OBJECTS) * pool->object_size);
}

/* Adds a chunk of fresh objects to the free list; called with the lock held. */
static bool grow(vgpu_pool *pool) {
    uint32_t chunk_index = pool->count / VGPU_CHUNK_OBJECTS;
    if (chunk_index >= VGPU_MAX_CHUNKS) {
        return false;
    }
    size_t bytes = pool->object_size * VGPU_CHUNK_OBJECTS;
    char *chunk = aligned_alloc(64, bytes);
    if (chunk == NULL) {
        return false;
    }
    memset(chunk, 0, bytes);
    for (uint32_t i = VGPU_CHUNK_OBJECTS; i-- > 0;) {
        vgpu_slot *slot = (vgpu_slot *)(void *)(chunk + i * pool->object_size);
        slot->index = pool->count + i;
        pool->prepare(slot);
        slot->next_free = pool->free;
        pool->free = slot;
    }
    pool->count += VGPU_CHUNK_OBJECTS;
    atomic_store_explicit(&pool->chunks[chunk_index], chunk, memory_order_release);
    return true;
}

void *vgpu_pool_take(vgpu_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    vgpu_slot *slot = NULL;
    if (pool->free != NULL || grow(pool)) {
        slot = pool->free;
        pool->free = slot->next_free;
    }
    pthread_mutex_unlock(&pool->lock);
    return slot;
}

uintptr_t vgpu_pool_publish(vgpu_pool *pool, vgpu_slot *slot) {
    slot->generation++;
    uintptr_t handle = ((uintptr_t)slot->generation << 32) | ((uintptr_t)slot->index << 8) | pool->tag;
    atomic_store(&slot->handle, handle);
    return handle;
}

void *vgpu_pool_find(vgpu_pool *pool, uintptr_t handle) {
    if ((handle & 0xff) != pool->tag) {
        return NULL;
    }
    vgpu_slot *slot = slot_at(pool, (uint32_t)(handle >> 8) & 0xffffff);
    return slot != NULL && atomic_load_explicit(&slot->handle, memory_order_acquire) == handle ? slot : NULL;
}

bool vgpu_pool_retire(vgpu_slot *slot, uintptr_t handle) {
    return atomic_compare_exchange_strong(&slot->handle, &handle, 0);
}

void vgpu_pool_release(vgpu_pool *pool, vgpu_slot *slot) {
    pthread_mutex_lock(&pool->lock);
    slot->next_free = pool->free;
    pool->free = slot;
    pthread_mutex_unlock(&pool->lock);
}

void vgpu_pool_each(vgpu_pool *pool, void (*visit)(void *object, uintptr_t handle, void *context), void *context) {
    pthread_mutex_lock(&pool->lock);
    uint32_t count = pool->count;
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < count; i++) {
        vgpu_slot *slot = slot_at(pool, i);
        uintptr_t handle = slot != NULL ? atomic_load(&slot->handle) : 0;
        if (handle != 0) {
            visit(slot, handle, context);
        }
    }
}
