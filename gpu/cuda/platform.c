/* The cuda platform: real GPUs. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"

const char *ls_platform_name(void) {
    return "cuda";
}

size_t ls_platform_shared_cores(void) {
    return 0; /* every device computes on its own hardware */
}

ls_rc ls_platform_device_count(size_t *count) {
    *count = 0;
    int found = 0; /* stays unset when there is no driver */
    cudaError_t status = cudaGetDeviceCount(&found);
    if (status != cudaSuccess) {
        return ls_fail(LS_DEVICE_FAILED,
                       "no usable GPU: cudaGetDeviceCount: %s (CUDA error %d); this program was built for real GPUs: "
                       "check nvidia-smi and CUDA_VISIBLE_DEVICES, or build for virtual ones: cmake --preset vgpu",
                       cudaGetErrorString(status), (int)status);
    }
    if (found <= 0) {
        return ls_fail(LS_DEVICE_FAILED,
                       "no GPU: cudaGetDeviceCount found %d devices, expected at least 1; check nvidia-smi and "
                       "CUDA_VISIBLE_DEVICES, or build for virtual ones: cmake --preset vgpu",
                       found);
    }
    *count = (size_t)found;
    return LS_OK;
}

bool ls_platform_wants_poison(void) {
    const char *asked = getenv("LOCKSTEP_POISON");
    return asked != NULL && strcmp(asked, "1") == 0;
}

ls_rc ls_platform_host_access(const void *pointer, size_t bytes, int write) {
    (void)pointer;
    (void)bytes;
    (void)write;
    return LS_OK;
}

/* "8 x NVIDIA H200, driver for CUDA 13.0, runtime 13.0"; "2 GPUs of different kinds, first ..." when they differ. */
ls_rc ls_platform_describe(char *text, size_t size) {
    size_t count = 0;
    LS_TRY(ls_platform_device_count(&count));
    struct cudaDeviceProp first;
    bool same = true;
    LS_CUDA(cudaGetDeviceProperties(&first, 0));
    for (size_t device = 1; device < count; device++) {
        struct cudaDeviceProp other;
        LS_CUDA(cudaGetDeviceProperties(&other, (int)device));
        same = same && strcmp(first.name, other.name) == 0;
    }
    int driver = 0; /* major*1000 + minor*10 */
    int runtime = 0;
    LS_CUDA(cudaDriverGetVersion(&driver));
    LS_CUDA(cudaRuntimeGetVersion(&runtime));
    (void)snprintf(text, size, "%zu %s %s, driver for CUDA %d.%d, runtime %d.%d", count,
                   same ? "x" : "GPUs of different kinds, the first", first.name, driver / 1000, driver % 1000 / 10,
                   runtime / 1000, runtime % 1000 / 10);
    return LS_OK;
}
