/* Error codes, their names and texts, and the last error of a thread. */
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

typedef struct error_text {
    cudaError_t error;
    const char *name;
    const char *text;
} error_text;

#define ERROR(code, text) \
    { code, #code, text }

/* CUDA's own texts for the codes that virtual devices return or that callers are likely to meet. */
static const error_text texts[] = {
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorCudartUnloading, "driver shutting down"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    ERROR(cudaErrorInvalidHostPointer, "invalid host pointer"),
    ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(cudaErrorStubLibrary, "CUDA driver is a stub library"),
    ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorStartupFailure, "startup failure in cuda runtime"),
    ERROR(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
    ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ERROR(cudaErrorUnsupportedLimit, "limit is not supported on this architecture"),
    ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    ERROR(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    ERROR(cudaErrorSetOnActiveProcess, "cannot set while device is active in this process"),
    ERROR(cudaErrorContextIsDestroyed, "context is destroyed"),
    ERROR(cudaErrorAssert, "device-side assert triggered"),
    ERROR(cudaErrorTooManyPeers, "peer mapping resources exhausted"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorHardwareStackError, "hardware stack error"),
    ERROR(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    ERROR(cudaErrorInvalidAddressSpace, "operation not supported on global/shared address space"),
    ERROR(cudaErrorInvalidPc, "invalid program counter"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    ERROR(cudaErrorNotPermitted, "operation not permitted"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR(cudaErrorTimeout, "wait operation timed out"),
    ERROR(cudaErrorUnknown, "unknown error"),
};

static const error_text *find_text(cudaError_t error) {
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].error == error) {
            return &texts[i];
        }
    }
    return NULL;
}

const char *cudaGetErrorName(cudaError_t error) {
    const error_text *found = find_text(error);
    return found != NULL ? found->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    const error_text *found = find_text(error);
    return found != NULL ? found->text : "unrecognized error code";
}
