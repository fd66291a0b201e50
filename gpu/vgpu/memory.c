/* Device memory: one sparse memfd mapping for each device, made at first use. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/arena.h"
#include "gpu/vgpu/graph.h"
#include "gpu/vgpu/guard.h"

typedef struct device_memory {
    pthread_mutex_t lock;
    vgpu_arena arena;
    vgpu_blocks blocks;
    _Atomic uintptr_t base; /* arena.base once usable, else 0; read without the lock */
} device_memory;

static device_memory memories[VGPU_MAX_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void prepare_memories(void) {
    for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
        pthread_mutex_init(&memories[i].lock, NULL);
        memories[i].arena.fd = -1;
    }
}

static device_memory *memory_of(int device) {
    pthread_once(&once, prepare_memories);
    return &memories[device];
}

static cudaError_t map_arena(device_memory *memory, int device) {
    size_t size = vgpu_get_settings()->memory;
    char name[32];
    snprintf(name, sizeof name, "lockstep-vgpu%d", device);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) {
        return cudaErrorMemoryAllocation;
    }
    char *base = MAP_FAILED;
    if (ftruncate(fd, (off_t)size) == 0) {
        base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
    if (base == MAP_FAILED || !vgpu_guard_map(base, size) || !vgpu_blocks_open(&memory->blocks, size)) {
        if (base != MAP_FAILED) {
            munmap(base, size);
        }
        close(fd);
        return cudaErrorMemoryAllocation;
    }
    memory->arena = (vgpu_arena){fd, base, size};
    atomic_store(&memory->base, (uintptr_t)base);
    return cudaSuccess;
}

/* The device's memory with its lock held and its arena mapped. */
static cudaError_t lock_memory(int device, device_memory **out) {
    device_memory *memory = memory_of(device);
    pthread_mutex_lock(&memory->lock);
    cudaError_t status = memory->arena.base != NULL ? cudaSuccess : map_arena(memory, device);
    if (status != cudaSuccess) {
        pthread_mutex_unlock(&memory->lock);
        return status;
    }
    *out = memory;
    return cudaSuccess;
}

cudaError_t vgpu_device_arena(int device, vgpu_arena *out) {
    if (vgpu_device_get(device) == NULL) {
        return cudaErrorInvalidDevice;
    }
    device_memory *memory = NULL;
    cudaError_t status = lock_memory(device, &memory);
    if (status == cudaSuccess) {
        *out = memory->arena;
        pthread_mutex_unlock(&memory->lock);
    }
    return status;
}

int vgpu_address_device(const void *pointer) {
    const vgpu_settings *settings = vgpu_get_settings();
    for (int device = 0; device < settings->devices; device++) {
        uintptr_t base = atomic_load_explicit(&memory_of(device)->base, memory_order_acquire);
        if (base != 0 && (uintptr_t)pointer - base < settings->memory) {
            return device;
        }
    }
    return -1;
}

int vgpu_pointer_device(const void *pointer, size_t *remaining) {
    size_t left = 0;
    int device = vgpu_address_device(pointer);
    if (device >= 0) {
        device_memory *memory = memory_of(device);
        size_t offset = (uintptr_t)pointer - atomic_load(&memory->base);
        pthread_mutex_lock(&memory->lock);
        vgpu_block block = vgpu_blocks_find(&memory->blocks, offset);
        pthread_mutex_unlock(&memory->lock);
        size_t into = offset - block.offset;
        left = into >= block.lead && block.requested > into - block.lead ? block.requested - (into - block.lead) : 0;
    }
    if (remaining != NULL) {
        *remaining = left;
    }
    return left > 0 ? device : -1;
}

int vgpu_allocation(const void **pointer, size_t *size) {
    int device = vgpu_address_device(*pointer);
    if (device >= 0) {
        device_memory *memory = memory_of(device);
        uintptr_t base = atomic_load(&memory->base);
        pthread_mutex_lock(&memory->lock);
        vgpu_block block = vgpu_blocks_find(&memory->blocks, (uintptr_t)*pointer - base);
        pthread_mutex_unlock(&memory->lock);
        *pointer = (const void *)(base + block.offset + block.lead);
        *size = block.requested;
    }
    return device;
}

/* Takes a block and opens it; called with the lock held. */
static void *take(device_memory *memory, size_t size, bool mapped) {
    size_t offset = 0;
    size_t lead = 0;
    size_t whole = vgpu_guard_whole(size, &lead);
    if (!vgpu_blocks_allocate(&memory->blocks, whole, &offset)) {
        return NULL;
    }
    char *block = memory->arena.base + offset;
    if (!vgpu_guard_begin(block, size)) {
        vgpu_blocks_free(&memory->blocks, offset, &whole);
        return NULL;
    }
    vgpu_blocks_place(&memory->blocks, offset, lead, size, mapped);
    return block + lead;
}

static cudaError_t allocate(void **devPtr, size_t size, bool mapped) {
    VGPU_ENTER_UNSAFE();
    if (devPtr == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    *devPtr = NULL;
    if (size == 0) {
        return cudaSuccess;
    }
    device_memory *memory = NULL;
    cudaError_t status = lock_memory(vgpu_current_device(), &memory);
    if (status == cudaSuccess) {
        *devPtr = take(memory, size, mapped);
        pthread_mutex_unlock(&memory->lock);
        status = *devPtr == NULL ? cudaErrorMemoryAllocation : vgpu_check_memory_begins(*devPtr, size);
    }
    return vgpu_leave(status);
}

cudaError_t cudaMalloc(void **devPtr, size_t size) {
    return allocate(devPtr, size, false);
}

cudaError_t vgpu_malloc_mapped(void **pointer, size_t size) {
    return allocate(pointer, size, true);
}

/* Gives the whole pages of a freed range back to the system; called with the lock held. */
static void punch(device_memory *memory, size_t offset, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    vgpu_block hole = vgpu_blocks_find(&memory->blocks, offset);
    /* A page at the edge goes when its other part is free too. */
    size_t from = offset / page * page;
    size_t to = (offset + size + page - 1) / page * page;
    from = from < hole.offset ? (hole.offset + page - 1) / page * page : from;
    to = to > hole.offset + hole.size ? (hole.offset + hole.size) / page * page : to;
    if (to > from &&
        fallocate(memory->arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) != 0) {
        ls_notice("cannot give %zu freed bytes of device memory back to the system", to - from);
    }
}

/* Ends an allocation at offset; false when there is none. *finding gets what the modes found. Called with the lock held. */
static bool end_allocation(device_memory *memory, int device, size_t offset, cudaError_t *finding) {
    vgpu_block block = vgpu_blocks_find(&memory->blocks, offset);
    size_t size = 0;
    *finding = cudaSuccess;
    if (!vgpu_blocks_free(&memory->blocks, offset, &size)) {
        return false;
    }
    if (vgpu_mode.guard) {
        *finding = vgpu_guard_end(memory->arena.base + block.offset, block.requested, device);
    } else {
        punch(memory, block.offset, size);
    }
    if (*finding != cudaSuccess) {
        vgpu_device_fail(device, *finding);
    }
    return true;
}

static bool is_mapped(device_memory *memory, size_t offset) {
    pthread_mutex_lock(&memory->lock);
    bool mapped = vgpu_blocks_find(&memory->blocks, offset).mapped;
    pthread_mutex_unlock(&memory->lock);
    return mapped;
}

static cudaError_t release(void *devPtr, bool mapped) {
    VGPU_ENTER_UNSAFE();
    if (devPtr == NULL) {
        return cudaSuccess;
    }
    int device = vgpu_address_device(devPtr);
    if (device < 0) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    vgpu_device_wait(device);
    device_memory *memory = memory_of(device);
    size_t offset = (uintptr_t)devPtr - atomic_load(&memory->base);
    size_t size = 0;
    cudaError_t finding = cudaSuccess;
    if (is_mapped(memory, offset) != mapped) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    if (vgpu_pointer_device(devPtr, &size) == device) {
        finding = vgpu_check_memory_ends(devPtr, size);
    }
    if (finding != cudaSuccess) {
        vgpu_device_fail(device, finding);
    }
    pthread_mutex_lock(&memory->lock);
    bool freed = end_allocation(memory, device, offset, &finding);
    pthread_mutex_unlock(&memory->lock);
    cudaError_t sticky = vgpu_device_error(device);
    return vgpu_leave(!freed ? cudaErrorInvalidValue : sticky);
}

cudaError_t cudaFree(void *devPtr) {
    return release(devPtr, false);
}

cudaError_t vgpu_free_mapped(void *pointer) {
    return release(pointer, true);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    VGPU_ENTER();
    if (free == NULL || total == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    device_memory *memory = NULL;
    cudaError_t status = lock_memory(vgpu_current_device(), &memory);
    if (status == cudaSuccess) {
        *free = memory->blocks.free_bytes;
        *total = memory->arena.size;
        pthread_mutex_unlock(&memory->lock);
    }
    return vgpu_leave(status);
}

void vgpu_memory_protect(int device, int protection) {
    uintptr_t base = atomic_load(&memory_of(device)->base);
    if (base != 0 && mprotect((void *)base, vgpu_get_settings()->memory, protection) != 0) {
        ls_notice("cannot change the protection of device %d's memory", device);
    }
}

void vgpu_memory_reset(int device) {
    device_memory *memory = memory_of(device);
    pthread_mutex_lock(&memory->lock);
    for (size_t i = 0; i < memory->blocks.count;) {
        vgpu_block block = memory->blocks.list[i];
        cudaError_t finding = cudaSuccess;
        if (block.requested != 0 && end_allocation(memory, device, block.offset + block.lead, &finding)) {
            i = 0; /* neighbours have merged */
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&memory->lock);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr) {
    VGPU_ENTER();
    if (attributes == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    struct cudaPointerAttributes found = {.type = cudaMemoryTypeUnregistered, .device = -2, .hostPointer = (void *)ptr};
    int device = vgpu_pointer_device(ptr, NULL);
    int pinned_on = 0;
    if (device >= 0) {
        found = (struct cudaPointerAttributes){
            .type = cudaMemoryTypeDevice, .device = device, .devicePointer = (void *)ptr};
    } else if (vgpu_host_pinned(ptr, NULL, &pinned_on)) {
        found = (struct cudaPointerAttributes){
            .type = cudaMemoryTypeHost, .device = pinned_on, .devicePointer = (void *)ptr, .hostPointer = (void *)ptr};
    }
    *attributes = found;
    return cudaSuccess;
}
