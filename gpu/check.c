/* The line that a failed CUDA or NCCL call prints. */
#include "gpu/gpu.h"

ls_rc(ls_cuda_check)(cudaError_t status, const char *call, const char *file, int line) {
    if (status == cudaSuccess) {
        return LS_OK;
    }
    return ls_fail(LS_DEVICE_FAILED, "%s:%d: %s failed: %s (%s)", file, line, call, cudaGetErrorName(status),
                   cudaGetErrorString(status));
}

ls_rc(ls_nccl_check)(ncclResult_t status, const char *call, const char *file, int line) {
    if (status == ncclSuccess) {
        return LS_OK;
    }
    return ls_fail(LS_DEVICE_FAILED, "%s:%d: %s failed: NCCL error %d (%s)", file, line, call, (int)status,
                   ncclGetErrorString(status));
}
