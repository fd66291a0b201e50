/* How a call begins and ends, and the last error of a thread. */
#include "gpu/vgpu/runtime.h"

static _Thread_local cudaError_t last_error = cudaSuccess;

cudaError_t vgpu_enter(void) {
    if (vgpu_on_stream_thread()) {
        return cudaErrorNotPermitted;
    }
    const vgpu_settings *settings = vgpu_get_settings();
    return settings->status != cudaSuccess ? settings->status : vgpu_device_error(vgpu_current_device());
}

cudaError_t vgpu_leave(cudaError_t status) {
    if (status != cudaSuccess) {
        last_error = status;
    }
    return status;
}

cudaError_t cudaPeekAtLastError(void) {
    cudaError_t sticky = vgpu_device_error(vgpu_current_device());
    return sticky != cudaSuccess ? sticky : last_error;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t status = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return status;
}
