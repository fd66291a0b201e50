/* NCCL's error texts. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gpu/vgpu/nccl_internal.h"

static _Thread_local char last_error[NCCL_TEXT_BYTES];

ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return result;
}

const char *nccl_last_error(void) {
    return last_error;
}

const char *ncclGetLastError(ncclComm_t comm) {
    if (comm != NULL && (nccl_comm_valid(comm) || nccl_comm_joining(comm)) &&
        atomic_load(&comm->async_error) != ncclSuccess) {
        pthread_mutex_lock(&comm->lock);
        memcpy(last_error, comm->error_text, sizeof last_error);
        pthread_mutex_unlock(&comm->lock);
    }
    return last_error;
}

const char *ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error";
    case ncclSystemError:
        return "unhandled system error";
    case ncclInternalError:
        return "internal error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}
