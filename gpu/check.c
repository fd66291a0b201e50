/* The line that a failed CUDA or NCCL call prints. */
#include <stdio.h>
#include <string.h>

#include "gpu/gpu.h"

enum { GIB_SHIFT = 30, DETAIL_SIZE = 384 };

static double gib(size_t bytes) {
    return (double)bytes / (double)((size_t)1 << GIB_SHIFT);
}

static void explain_memory(const char *call, char *text, size_t size) {
    size_t available = 0, total = 0;
    double asked = gib(ls_error_asked_bytes());
    if (strncmp(call, "cudaMallocHost", strlen("cudaMallocHost")) == 0) {
        (void)snprintf(text, size, "; asked for %.3g GiB of pinned host memory: use a smaller --batch", asked);
    } else if (strncmp(call, "cudaMalloc", strlen("cudaMalloc")) == 0 &&
               cudaMemGetInfo(&available, &total) == cudaSuccess) {
        (void)snprintf(text, size,
                       "; asked for %.3g GiB, %.3g of the device's %.3g GiB are free: use a smaller --batch, more "
                       "--devices, or end what else runs there",
                       asked, gib(available), gib(total));
    }
}

static void explain_architecture(char *text, size_t size) {
    int device = 0;
    struct cudaDeviceProp properties;
    if (cudaGetDevice(&device) == cudaSuccess && cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
        (void)snprintf(text, size,
                       "; this program holds no kernels for %.64s, compute capability %d.%d: build with "
                       "-DLOCKSTEP_CUDA_ARCHITECTURES=%d%d",
                       properties.name, properties.major, properties.minor, properties.major, properties.minor);
    }
}

/* What to do about an error that has one usual cause. */
static void explain(cudaError_t status, const char *call, char *text, size_t size) {
    text[0] = '\0';
    if (status == cudaErrorMemoryAllocation) {
        explain_memory(call, text, size);
    } else if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorUnsupportedPtxVersion) {
        explain_architecture(text, size);
    }
}

ls_rc(ls_cuda_check)(cudaError_t status, const char *call, const char *file, int line) {
    if (status == cudaSuccess) {
        return LS_OK;
    }
    char detail[DETAIL_SIZE];
    explain(status, call, detail, sizeof detail);
    return ls_fail(LS_DEVICE_FAILED, "%s:%d: %s failed: %s (%s)%s", file, line, call, cudaGetErrorName(status),
                   cudaGetErrorString(status), detail);
}

ls_rc(ls_nccl_check)(ncclResult_t status, const char *call, const char *file, int line) {
    if (status == ncclSuccess) {
        return LS_OK;
    }
    return ls_fail(LS_DEVICE_FAILED, "%s:%d: %s failed: NCCL error %d (%s)", file, line, call, (int)status,
                   ncclGetErrorString(status));
}
