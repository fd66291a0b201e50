/* The calls on streams. */
#include "gpu/vgpu/graph.h"

enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    VGPU_ENTER();
    if (leastPriority != NULL) {
        *leastPriority = LEAST_PRIORITY;
    }
    if (greatestPriority != NULL) {
        *greatestPriority = GREATEST_PRIORITY;
    }
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *pStream) {
    return cudaStreamCreateWithPriority(pStream, cudaStreamDefault, LEAST_PRIORITY);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags) {
    return cudaStreamCreateWithPriority(pStream, flags, LEAST_PRIORITY);
}

/* Priorities are remembered, clamped as CUDA does, and have no further effect. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority) {
    VGPU_ENTER();
    if (pStream == NULL || (flags & ~(unsigned)cudaStreamNonBlocking) != 0) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    vgpu_stream *stream = vgpu_pool_take(&vgpu_streams);
    if (stream == NULL) {
        return vgpu_leave(cudaErrorMemoryAllocation);
    }
    int number = vgpu_current_device();
    vgpu_device *device = vgpu_device_get(number);
    stream->device = number;
    stream->flags = flags;
    stream->priority = priority > LEAST_PRIORITY      ? LEAST_PRIORITY
                       : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY
                                                      : priority;
    stream->started = false;
    stream->legacy_awaited = 0;
    atomic_store(&stream->closing, false);
    pthread_mutex_lock(&device->streams_lock);
    stream->next = device->streams;
    device->streams = stream;
    pthread_mutex_unlock(&device->streams_lock);
    vgpu_check_stream_created(stream);
    *pStream = (cudaStream_t)vgpu_pool_publish(&vgpu_streams, &stream->slot);
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int *priority) {
    VGPU_ENTER();
    vgpu_stream *stream = vgpu_stream_find(hStream);
    if (stream == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    if (priority == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    *priority = stream->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int *flags) {
    VGPU_ENTER();
    vgpu_stream *stream = vgpu_stream_find(hStream);
    if (stream == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    if (flags == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    *flags = stream->flags;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    VGPU_ENTER();
    vgpu_stream *stream = handle == NULL || handle == cudaStreamLegacy ? NULL : vgpu_stream_find(handle);
    if (stream == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    if (vgpu_stream_captures(handle)) {
        return vgpu_leave(vgpu_capture_asked_stream(stream));
    }
    return vgpu_leave(vgpu_stream_close(stream, handle) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* The position that stands for all work queued so far: the default stream's includes its device's blocking streams. */
static cudaError_t current_position(cudaStream_t handle, vgpu_stream **stream, uint64_t *position, vgpu_clock *clock) {
    *clock = (vgpu_clock){0};
    *stream = vgpu_stream_find(handle);
    if (*stream == NULL) {
        return cudaErrorInvalidResourceHandle;
    }
    cudaError_t refused = vgpu_capture_asked_stream(*stream);
    if (refused != cudaSuccess) {
        return refused;
    }
    vgpu_request nothing = {.name = "synchronize", .record = clock};
    return vgpu_stream_queue(*stream, handle, &nothing, position);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    VGPU_ENTER();
    vgpu_stream *stream = NULL;
    uint64_t position = 0;
    vgpu_clock clock;
    cudaError_t status = current_position(handle, &stream, &position, &clock);
    if (status == cudaSuccess) {
        vgpu_stream_wait(stream, position);
        vgpu_check_joined(&clock);
        status = vgpu_device_error(stream->device);
    }
    vgpu_clock_free(&clock);
    return vgpu_leave(status);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    VGPU_ENTER();
    vgpu_stream *stream = NULL;
    uint64_t position = 0;
    vgpu_clock clock;
    cudaError_t status = current_position(handle, &stream, &position, &clock);
    if (status == cudaSuccess) {
        bool ready = vgpu_stream_reached(stream, position);
        if (ready) {
            vgpu_check_joined(&clock);
        } else if (vgpu_mode.sched == VGPU_FUZZ) {
            vgpu_fuzz_asked();
        }
        status = vgpu_device_error(stream->device);
        status = status == cudaSuccess && !ready ? cudaErrorNotReady : status;
    }
    vgpu_clock_free(&clock);
    return vgpu_leave(status);
}

typedef struct host_call {
    cudaHostFn_t function;
    void *data;
} host_call;

static cudaError_t run_host_call(void *payload) {
    host_call *call = payload;
    call->function(call->data);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn, void *userData) {
    VGPU_ENTER();
    if (fn == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    vgpu_stream *stream = vgpu_stream_find(handle);
    if (stream == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    cudaError_t status = vgpu_device_error(stream->device);
    if (status == cudaSuccess) {
        host_call call = {fn, userData};
        vgpu_request request = {.name = "host function",
                                .run = run_host_call,
                                .payload = &call,
                                .bytes = sizeof call,
                                .kind = VGPU_HOST_FUNCTION};
        status = vgpu_stream_queue(stream, handle, &request, NULL);
    }
    return vgpu_leave(status);
}
