/* The stand-in for the CUDA runtime, see standin.h: device memory is host memory, and everything has finished when a call
 * returns. The shared kernels are there in serial mode, and run at their launch. */
#include <string.h>

#include "gpu/gpu.h"
#include "gpu/vgpu/internal.h"
#include "tests/cuda/standin.h"

struct standin standin;

ls_rc(ls_cuda_check)(cudaError_t status, const char *call, const char *file, int line) {
    return status == cudaSuccess ? LS_OK : ls_fail(LS_DEVICE_FAILED, "%s:%d: %s: %d", file, line, call, (int)status);
}

cudaError_t(cudaMalloc)(void **memory, size_t bytes) {
    standin.allocations++;
    *memory = malloc(bytes);
    return *memory == NULL ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    standin.frees++;
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    (void)kind;
    standin.waits++;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    (void)stream;
    memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    standin.waits++;
    return cudaSuccess;
}

/* Events: all that is asked of them is how long the last product took. */

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    standin.allocations++;
    *event = malloc(1);
    return *event == NULL ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    standin.frees++;
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)stream;
    return event != NULL ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    standin.waits++;
    return event != NULL ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    *milliseconds = standin.milliseconds;
    return begin != NULL && end != NULL ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

/* Kernels. */

unsigned char vgpu_wants_access;

void vgpu_declare_access(const vgpu_access *list, size_t count) {
    (void)list;
    (void)count;
}

cudaError_t vgpu_submit(cudaStream_t stream, const char *name, vgpu_operation run, const void *payload, size_t bytes) {
    (void)stream;
    (void)name;
    _Alignas(16) char copy[VGPU_PAYLOAD_BYTES];
    memcpy(copy, payload, bytes);
    return run(copy);
}
