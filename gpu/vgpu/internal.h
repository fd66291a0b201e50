/* What the parts of vgpu share: the runtime (memory, streams, events) serves NCCL, the kernel launcher and the layer math
 * through these few calls. Nothing outside gpu/vgpu includes this. */
#ifndef LS_GPU_VGPU_INTERNAL_H
#define LS_GPU_VGPU_INTERNAL_H

#include <cuda_runtime.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include "gpu/vgpu/access.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operation of a stream: runs on the stream's thread, in order. payload is the runtime's own copy. A status other than
 * cudaSuccess becomes the device's sticky error. */
typedef cudaError_t (*vgpu_operation)(void *payload);

/* Queues an operation (payload copied, at most VGPU_PAYLOAD_BYTES). name (a string literal) appears in diagnostics.
 * stream 0 is the legacy default stream of the current device. As with a kernel launch, the stream must belong to the
 * current device, else cudaErrorInvalidResourceHandle. Not from inside an operation: cudaErrorNotPermitted. */
enum { VGPU_PAYLOAD_BYTES = 256 };
cudaError_t vgpu_submit(cudaStream_t stream, const char *name, vgpu_operation run, const void *payload, size_t bytes);

/* The device that a stream belongs to (the current device for stream 0); -1 for an invalid handle. */
int vgpu_stream_device(cudaStream_t stream);

/* Device memory is one sparse memfd mapping for each device of this process. */
typedef struct vgpu_arena {
    int fd;      /* memfd, close-on-exec, to be handed to peers by SCM_RIGHTS; owned by the runtime */
    char *base;  /* its mapping in this process */
    size_t size; /* bytes mapped */
} vgpu_arena;

/* The arena of a device, made at first use. */
cudaError_t vgpu_device_arena(int device, vgpu_arena *out);

/* The device whose arena holds pointer, and its live allocation's remaining bytes from pointer on; -1 and 0 for memory that
 * is not a live device allocation. */
int vgpu_pointer_device(const void *pointer, size_t *remaining);

/* cudaMalloc and cudaFree of the memory that ncclMemAlloc gives. On GPUs it is mapped by cuMemMap, so that neither pair frees what the
 * other allocated: cudaErrorInvalidValue. */
cudaError_t vgpu_malloc_mapped(void **pointer, size_t size);
cudaError_t vgpu_free_mapped(void *pointer);

/* The device's sticky error: once it is set, the operations queued on the device are dropped without being run. */
cudaError_t vgpu_device_error(int device);

#ifndef __cplusplus
/* Waiting across threads and processes on a 32-bit word in shared memory: spins about 50 times, yields, then sleeps on a
 * futex. Returns 0 when *word != expected, -1 when deadline_ns (CLOCK_MONOTONIC; 0: never) has passed. */
int vgpu_wait_while(_Atomic unsigned *word, unsigned expected, unsigned long long deadline_ns);
/* Wakes every waiter of word, in any process; called after changing it. */
void vgpu_wake_all(_Atomic unsigned *word);
#endif

unsigned long long vgpu_now_ns(void);
/* Lets another thread run; false, without doing so, when the caller had better sleep. */
bool vgpu_yield(void);
/* Moves the calling thread to a core that it may use and that is not among the taken ones, if there is one. */
void vgpu_leave_cores(const cpu_set_t *taken);

#ifdef __cplusplus
}
#endif
#endif
