/* The cuda platform: real GPUs. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda/versions.h"
#include "gpu/gpu.h"

const char *ls_platform_name(void) {
    return "cuda";
}

size_t ls_platform_shared_cores(void) {
    return 0; /* every device computes on its own hardware */
}

/* What CUDA_VISIBLE_DEVICES does when it is set and no device is left. */
static ls_rc fail_hidden(const char *visible) {
    return ls_fail(
        LS_DEVICE_FAILED,
        "no GPU: cudaGetDeviceCount finds none with CUDA_VISIBLE_DEVICES='%.128s': expected numbers or UUIDs of "
        "GPUs that nvidia-smi -L lists; set it so, unset it, or build for virtual ones: cmake --preset vgpu",
        visible);
}

/* 35 is what the runtime says without any driver, too. */
static ls_rc fail_driver(void) {
    int driver = 0, runtime = 0; /* major*1000 + minor*10; 0: none */
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
        return ls_fail(
            LS_DEVICE_FAILED,
            "no usable GPU: cudaGetDeviceCount finds no NVIDIA driver (CUDA error 35); install it (nvidia-smi "
            "shows it), in a container pass it in (--gpus all), or build for virtual GPUs: cmake --preset vgpu");
    }
    return ls_fail(
        LS_DEVICE_FAILED,
        "no usable GPU: the driver is too old (cudaGetDeviceCount, CUDA error 35): it is for CUDA %d.%d, this "
        "program's runtime is %d.%d; update the driver, or build with CUDA Toolkit %d",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, driver / 1000);
}

ls_rc ls_platform_device_count(size_t *count) {
    *count = 0;
    LS_TRY(ls_versions_check());
    int found = 0; /* stays unset when there is no driver */
    cudaError_t status = cudaGetDeviceCount(&found);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (status == cudaErrorInsufficientDriver) {
        return fail_driver();
    }
    if (status == cudaErrorNoDevice || (status == cudaSuccess && found <= 0)) {
        return visible != NULL
                   ? fail_hidden(visible)
                   : ls_fail(LS_DEVICE_FAILED, "no GPU: cudaGetDeviceCount finds none; check nvidia-smi, or build for "
                                               "virtual ones: cmake --preset vgpu");
    }
    if (status != cudaSuccess) {
        return ls_fail(LS_DEVICE_FAILED,
                       "no usable GPU: cudaGetDeviceCount: %s (CUDA error %d); check nvidia-smi and "
                       "CUDA_VISIBLE_DEVICES, or build for virtual ones: cmake --preset vgpu",
                       cudaGetErrorString(status), (int)status);
    }
    *count = (size_t)found;
    return LS_OK;
}

bool ls_platform_memory_is_host(void) {
    return false;
}

bool ls_platform_has_collectives(char *why, size_t size) {
    (void)why;
    (void)size;
    return true;
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
