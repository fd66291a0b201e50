/* Pinned host memory: which ranges are known to the devices, so that copies from them read late. */
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/graph.h"
#include "gpu/vgpu/host_guard.h"

typedef struct pinned_range {
    uintptr_t base;
    size_t size;
    int device;
    bool allocated; /* by cudaHostAlloc, else registered by the caller */
} pinned_range;

/* Sorted by base, without overlaps. */
static struct {
    pthread_rwlock_t lock;
    pinned_range *list;
    size_t count;
    size_t capacity;
} pinned = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* Index of the first range that ends beyond address; called with the lock held. */
static size_t first_beyond(uintptr_t address) {
    size_t low = 0;
    size_t high = pinned.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pinned.list[middle].base + pinned.list[middle].size <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool vgpu_host_pinned(const void *pointer, size_t *remaining, int *device) {
    uintptr_t address = (uintptr_t)pointer;
    pthread_rwlock_rdlock(&pinned.lock);
    size_t i = first_beyond(address);
    bool found = i < pinned.count && pinned.list[i].base <= address;
    if (found && remaining != NULL) {
        *remaining = pinned.list[i].base + pinned.list[i].size - address;
    }
    if (found && device != NULL) {
        *device = pinned.list[i].device;
    }
    pthread_rwlock_unlock(&pinned.lock);
    return found;
}

static cudaError_t add_range(void *pointer, size_t size, bool allocated) {
    pinned_range range = {(uintptr_t)pointer, size, vgpu_current_device(), allocated};
    cudaError_t status = cudaSuccess;
    pthread_rwlock_wrlock(&pinned.lock);
    size_t i = first_beyond(range.base);
    bool ends_in = i < pinned.count && pinned.list[i].base - range.base < size;
    bool starts_in = i < pinned.count && pinned.list[i].base < range.base;
    if (ends_in || starts_in) {
        status = cudaErrorHostMemoryAlreadyRegistered;
    } else if (pinned.count == pinned.capacity) {
        size_t capacity = pinned.capacity == 0 ? 64 : 2 * pinned.capacity;
        pinned_range *list = realloc(pinned.list, capacity * sizeof *list);
        if (list == NULL) {
            status = cudaErrorMemoryAllocation;
        } else {
            pinned.list = list;
            pinned.capacity = capacity;
        }
    }
    if (status == cudaSuccess) {
        memmove(&pinned.list[i + 1], &pinned.list[i], (pinned.count - i) * sizeof range);
        pinned.list[i] = range;
        pinned.count++;
    }
    pthread_rwlock_unlock(&pinned.lock);
    return status;
}

static bool remove_range(void *pointer, bool allocated) {
    pthread_rwlock_wrlock(&pinned.lock);
    size_t i = first_beyond((uintptr_t)pointer);
    bool found = i < pinned.count && pinned.list[i].base == (uintptr_t)pointer && pinned.list[i].allocated == allocated;
    if (found) {
        memmove(&pinned.list[i], &pinned.list[i + 1], (pinned.count - i - 1) * sizeof *pinned.list);
        pinned.count--;
    }
    pthread_rwlock_unlock(&pinned.lock);
    return found;
}

/* Pinned memory is known to every device, so work of any of them may use it until here. */
static void wait_for_all_devices(void) {
    for (int device = 0; device < vgpu_get_settings()->devices; device++) {
        vgpu_device_wait(device);
    }
}

cudaError_t cudaMallocHost(void **ptr, size_t size) {
    return cudaHostAlloc(ptr, size, cudaHostAllocDefault);
}

static void *allocate(size_t size) {
    enum { PAGE = 4096 };
    void *memory = NULL;
    if (vgpu_mode.sched == VGPU_CHECK) {
        return vgpu_host_guard_allocate(size);
    }
    return posix_memalign(&memory, PAGE, size) == 0 ? memory : NULL;
}

static void release(void *memory) {
    if (!vgpu_host_guard_free(memory)) {
        free(memory);
    }
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags) {
    VGPU_ENTER_UNSAFE();
    unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (pHost == NULL || (flags & ~known) != 0) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    *pHost = NULL;
    if (size == 0) {
        return cudaSuccess;
    }
    void *memory = allocate(size);
    if (memory == NULL) {
        return vgpu_leave(cudaErrorMemoryAllocation);
    }
    cudaError_t status = add_range(memory, size, true);
    if (status != cudaSuccess) {
        release(memory);
        return vgpu_leave(status);
    }
    *pHost = memory;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *ptr) {
    VGPU_ENTER_UNSAFE();
    if (ptr == NULL) {
        return cudaSuccess;
    }
    wait_for_all_devices();
    size_t size = 0;
    cudaError_t status = vgpu_host_pinned(ptr, &size, NULL) ? vgpu_check_memory_ends(ptr, size) : cudaSuccess;
    if (!remove_range(ptr, true)) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    release(ptr);
    return vgpu_leave(status);
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags) {
    VGPU_ENTER_UNSAFE();
    unsigned known = cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterReadOnly;
    if (ptr == NULL || size == 0 || (flags & ~known) != 0) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    return vgpu_leave(add_range(ptr, size, false));
}

cudaError_t cudaHostUnregister(void *ptr) {
    VGPU_ENTER_UNSAFE();
    if (ptr == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    wait_for_all_devices();
    size_t size = 0;
    if (vgpu_host_pinned(ptr, &size, NULL)) {
        (void)vgpu_check_memory_ends(ptr, size); /* all has been waited for */
    }
    return vgpu_leave(remove_range(ptr, false) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
