/* Memory for registered buffers, and which buffers a communicator has registered. Registering makes nothing faster here: what
 * virtual GPUs bring are NCCL's rules. */
#include <stdlib.h>

#include "gpu/vgpu/nccl_internal.h"

typedef struct registration {
    struct registration *next;
    const struct ncclComm *comm;
    const char *begin;
    size_t size;
} registration;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all; the count may be read without it */
static registration *all;
static _Atomic size_t count;

ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
    cudaError_t status = vgpu_malloc_mapped(ptr, size);
    if (status != cudaSuccess) {
        return nccl_fail(ncclUnhandledCudaError, "ncclMemAlloc of %zu bytes: %s", size, cudaGetErrorString(status));
    }
    return ncclSuccess;
}

/* The rank whose communicator has registered memory of the allocation at pointer; -1: none. */
static int registered_by(const char *pointer) {
    size_t size = 0;
    int rank = -1;
    (void)vgpu_pointer_device(pointer, &size);
    pthread_mutex_lock(&lock);
    for (const registration *r = all; r != NULL && rank < 0; r = r->next) {
        rank = r->begin >= pointer && r->begin < pointer + size ? r->comm->rank : -1;
    }
    pthread_mutex_unlock(&lock);
    return rank;
}

ncclResult_t ncclMemFree(void *ptr) {
    if (ptr == NULL) {
        return ncclSuccess;
    }
    int rank = registered_by(ptr);
    if (rank >= 0) {
        return nccl_fail(ncclInvalidUsage,
                         "ncclMemFree: rank %d has registered this memory: ncclCommDeregister comes first", rank);
    }
    cudaError_t status = vgpu_free_mapped(ptr);
    if (status != cudaSuccess) {
        return nccl_fail(ncclUnhandledCudaError, "ncclMemFree: %s", cudaGetErrorString(status));
    }
    return ncclSuccess;
}

static ncclResult_t check_buffer(const struct ncclComm *comm, const void *buff, size_t size, void *const *handle) {
    size_t remaining = 0;
    if (!nccl_comm_valid(comm)) {
        return nccl_fail(ncclInvalidArgument, "ncclCommRegister: not a live communicator");
    }
    if (buff == NULL || handle == NULL || size == 0) {
        return nccl_fail(ncclInvalidArgument, "ncclCommRegister of rank %d: %s", comm->rank,
                         buff == NULL     ? "buff is NULL"
                         : handle == NULL ? "handle is NULL"
                                          : "size is 0");
    }
    int device = vgpu_pointer_device(buff, &remaining);
    if (device != comm->device || remaining < size) {
        return nccl_fail(ncclInvalidArgument,
                         "ncclCommRegister of rank %d: expected %zu bytes of device %d, found %zu of device %d",
                         comm->rank, size, comm->device, remaining, device);
    }
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle) {
    ncclResult_t result = check_buffer(comm, buff, size, handle);
    if (result != ncclSuccess) {
        return result;
    }
    registration *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return nccl_fail(ncclSystemError, "ncclCommRegister: out of memory");
    }
    *r = (registration){.comm = comm, .begin = buff, .size = size};
    pthread_mutex_lock(&lock);
    r->next = all;
    all = r;
    atomic_fetch_add(&count, 1);
    pthread_mutex_unlock(&lock);
    *handle = r;
    return ncclSuccess;
}

/* Takes the first that comm has registered, or that of a handle, from the list; the caller frees it. NULL: none. */
static registration *take(const struct ncclComm *comm, const void *handle) {
    pthread_mutex_lock(&lock);
    registration **at = &all;
    while (*at != NULL && ((*at)->comm != comm || (handle != NULL && *at != handle))) {
        at = &(*at)->next;
    }
    registration *taken = *at;
    if (taken != NULL) {
        *at = taken->next;
        atomic_fetch_sub(&count, 1);
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    if (!nccl_comm_valid(comm)) {
        return nccl_fail(ncclInvalidArgument, "ncclCommDeregister: not a live communicator");
    }
    if (handle == NULL) { /* what NCCL gives when it has not registered a buffer */
        return ncclSuccess;
    }
    registration *r = take(comm, handle);
    if (r == NULL) {
        return nccl_fail(ncclInvalidUsage, "ncclCommDeregister of rank %d: not a handle of this communicator",
                         comm->rank);
    }
    size_t remaining = 0;
    (void)vgpu_pointer_device(r->begin, &remaining);
    bool freed = remaining < r->size;
    free(r);
    return freed ? nccl_fail(ncclInvalidUsage, "ncclCommDeregister of rank %d: the buffer has been freed before",
                             comm->rank)
                 : ncclSuccess;
}

bool nccl_registered(const struct ncclComm *comm, const void *pointer, size_t bytes) {
    if (atomic_load_explicit(&count, memory_order_relaxed) == 0) {
        return false;
    }
    const char *begin = pointer;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const registration *r = all; r != NULL && !found; r = r->next) {
        found = r->comm == comm && begin >= r->begin && begin + bytes <= r->begin + r->size;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

size_t nccl_register_drop(const struct ncclComm *comm) {
    size_t dropped = 0;
    for (registration *r; (r = take(comm, NULL)) != NULL; dropped++) {
        free(r);
    }
    return dropped;
}
