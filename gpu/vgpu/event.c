/* Events. A record is a stream and a position in it, so that it costs nothing on the stream unless it is timed. */
#include "gpu/vgpu/graph.h"

typedef struct vgpu_event {
    _Alignas(64) vgpu_slot slot;
    int device;
    unsigned flags;
    pthread_mutex_t lock; /* all below */
    vgpu_stream *stream;  /* of the current record; NULL before the first */
    uint64_t position;
    vgpu_clock clock;       /* of the current record, where clocks are kept */
    vgpu_captured captured; /* the current record, if it is part of a capture: then there is no stream */
    uint64_t record;        /* counts records over the object's whole life, so that a late timestamp of an earlier one
                                   is told apart */
    unsigned long long time_ns; /* when the stream reached the current record */
} vgpu_event;

static void prepare(void *object) {
    vgpu_event *event = object;
    pthread_mutex_init(&event->lock, NULL);
}

static vgpu_pool events = {
    .object_size = sizeof(vgpu_event), .tag = 0xec, .prepare = prepare, .lock = PTHREAD_MUTEX_INITIALIZER};

static vgpu_event *find(cudaEvent_t handle) {
    return vgpu_pool_find(&events, (uintptr_t)handle);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    VGPU_ENTER();
    if (event == NULL || (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    vgpu_event *made = vgpu_pool_take(&events);
    if (made == NULL) {
        return vgpu_leave(cudaErrorMemoryAllocation);
    }
    pthread_mutex_lock(&made->lock);
    made->device = vgpu_current_device();
    made->flags = flags;
    made->stream = NULL;
    made->position = 0;
    vgpu_clock_free(&made->clock);
    vgpu_captured_free(&made->captured);
    pthread_mutex_unlock(&made->lock);
    *event = (cudaEvent_t)vgpu_pool_publish(&events, &made->slot);
    return cudaSuccess;
}

/* Ends the handle. Work that was recorded or waits is not touched: it knows its positions. */
static bool destroy(vgpu_event *event, uintptr_t handle) {
    if (!vgpu_pool_retire(&event->slot, handle)) {
        return false;
    }
    pthread_mutex_lock(&event->lock);
    event->record++;
    pthread_mutex_unlock(&event->lock);
    vgpu_pool_release(&events, &event->slot);
    return true;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    VGPU_ENTER();
    vgpu_event *event = find(handle);
    return vgpu_leave(event != NULL && destroy(event, (uintptr_t)handle) ? cudaSuccess
                                                                         : cudaErrorInvalidResourceHandle);
}

static void reset_visit(void *object, uintptr_t handle, void *device) {
    vgpu_event *event = object;
    if (event->device == *(int *)device) {
        destroy(event, handle); /* false: destroyed meanwhile, which is as good */
    }
}

void vgpu_events_reset(int device) {
    vgpu_pool_each(&events, reset_visit, &device);
}

typedef struct timestamp {
    vgpu_event *event;
    uint64_t record;
} timestamp;

static cudaError_t take_timestamp(void *payload) {
    timestamp *stamp = payload;
    pthread_mutex_lock(&stamp->event->lock);
    if (stamp->event->record == stamp->record) {
        stamp->event->time_ns = vgpu_now_ns();
    }
    pthread_mutex_unlock(&stamp->event->lock);
    return cudaSuccess;
}

/* On a stream that captures an event stands for what has been captured so far, and takes no time. */
static cudaError_t record_captured(vgpu_event *event, vgpu_stream *stream, bool *taken) {
    vgpu_captured captured;
    cudaError_t status = vgpu_capture_record(stream, &captured, taken);
    if (*taken && status == cudaSuccess) {
        pthread_mutex_lock(&event->lock);
        event->record++;
        event->stream = NULL;
        vgpu_captured before = event->captured;
        event->captured = captured;
        captured = before;
        pthread_mutex_unlock(&event->lock);
    }
    vgpu_captured_free(&captured);
    return status;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
    VGPU_ENTER();
    vgpu_event *event = find(handle);
    vgpu_stream *stream = vgpu_stream_find(stream_handle);
    if (event == NULL || stream == NULL || event->device != stream->device) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    bool taken = false;
    cudaError_t status = vgpu_device_error(stream->device);
    status = status == cudaSuccess ? record_captured(event, stream, &taken) : status;
    if (status != cudaSuccess || taken) {
        return vgpu_leave(status);
    }
    pthread_mutex_lock(&event->lock);
    timestamp stamp = {event, event->record + 1};
    event->record++;
    bool timed = !(event->flags & cudaEventDisableTiming);
    pthread_mutex_unlock(&event->lock);
    /* Queued without the event's lock: a full stream blocks until it has run timestamps, which take that lock. */
    uint64_t position = 0;
    vgpu_clock clock = {0};
    vgpu_request request = {.name = "event",
                            .run = timed ? take_timestamp : NULL,
                            .payload = &stamp,
                            .bytes = sizeof stamp,
                            .kind = VGPU_EVENT,
                            .record = &clock};
    status = vgpu_stream_queue(stream, stream_handle, &request, &position);
    pthread_mutex_lock(&event->lock);
    if (status == cudaSuccess && event->record == stamp.record) {
        event->stream = stream;
        event->position = position;
        vgpu_clock before = event->clock;
        event->clock = clock;
        clock = before;
        vgpu_captured_free(&event->captured);
    }
    pthread_mutex_unlock(&event->lock);
    vgpu_clock_free(&clock);
    return vgpu_leave(status);
}

/* The current record; stream NULL when there is none. */
typedef struct record {
    vgpu_stream *stream;
    uint64_t position;
    unsigned long long time_ns;
} record;

static record current_record(vgpu_event *event) {
    pthread_mutex_lock(&event->lock);
    record current = {event->stream, event->position, event->time_ns};
    pthread_mutex_unlock(&event->lock);
    return current;
}

/* The same with a copy of its clock, which the caller frees; empty where no clocks are kept. */
static record current_record_and_clock(vgpu_event *event, vgpu_clock *clock) {
    pthread_mutex_lock(&event->lock);
    record current = {event->stream, event->position, event->time_ns};
    *clock = (vgpu_clock){0};
    if (!vgpu_clock_join(clock, &event->clock)) {
        current.stream = NULL; /* as if never recorded: nothing is then held to be ordered */
    }
    pthread_mutex_unlock(&event->lock);
    return current;
}

/* A wait of, or for, a capture. */
static cudaError_t wait_captured(vgpu_event *event, vgpu_stream *stream, bool *taken) {
    vgpu_captured captured = {0};
    pthread_mutex_lock(&event->lock);
    bool recorded = event->stream != NULL;
    bool copied = event->captured.capture == 0 || vgpu_captured_copy(&captured, &event->captured);
    pthread_mutex_unlock(&event->lock);
    *taken = !copied;
    cudaError_t status = copied ? vgpu_capture_wait(stream, &captured, recorded, taken) : cudaErrorMemoryAllocation;
    vgpu_captured_free(&captured);
    return status;
}

/* Why an event cannot be asked, for the calls that ask or wait on the host. */
static cudaError_t check_asked(vgpu_event *event) {
    pthread_mutex_lock(&event->lock);
    vgpu_captured captured = {.capture = event->captured.capture};
    pthread_mutex_unlock(&event->lock);
    return vgpu_capture_asked_event(&captured);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned int flags) {
    VGPU_ENTER();
    vgpu_event *event = find(handle);
    vgpu_stream *stream = vgpu_stream_find(stream_handle);
    if (event == NULL || stream == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    if (flags != cudaEventWaitDefault) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    bool taken = false;
    cudaError_t status = vgpu_device_error(stream->device);
    status = status == cudaSuccess ? wait_captured(event, stream, &taken) : status;
    if (status != cudaSuccess || taken) {
        return vgpu_leave(status);
    }
    vgpu_clock clock;
    record on = current_record_and_clock(event, &clock);
    if (on.stream != NULL) {
        status = vgpu_stream_queue_wait(stream, stream_handle, on.stream, on.position, &clock);
    }
    vgpu_clock_free(&clock);
    return vgpu_leave(status);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    VGPU_ENTER();
    vgpu_event *event = find(handle);
    if (event == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    cudaError_t refused = check_asked(event);
    if (refused != cudaSuccess) {
        return vgpu_leave(refused);
    }
    vgpu_clock clock;
    record on = current_record_and_clock(event, &clock);
    bool ready = on.stream == NULL || vgpu_stream_reached(on.stream, on.position);
    if (ready) {
        vgpu_check_joined(&clock);
    } else if (vgpu_mode.sched == VGPU_FUZZ) {
        vgpu_fuzz_asked();
    }
    vgpu_clock_free(&clock);
    cudaError_t status = vgpu_device_error(event->device);
    return vgpu_leave(status == cudaSuccess && !ready ? cudaErrorNotReady : status);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    VGPU_ENTER();
    vgpu_event *event = find(handle);
    if (event == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    cudaError_t refused = check_asked(event);
    if (refused != cudaSuccess) {
        return vgpu_leave(refused);
    }
    vgpu_clock clock;
    record on = current_record_and_clock(event, &clock);
    int device = event->device;
    if (on.stream != NULL) {
        vgpu_stream_wait(on.stream, on.position);
        vgpu_check_joined(&clock);
    }
    vgpu_clock_free(&clock);
    return vgpu_leave(vgpu_device_error(device));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start_handle, cudaEvent_t end_handle) {
    VGPU_ENTER();
    vgpu_event *start = find(start_handle);
    vgpu_event *end = find(end_handle);
    if (ms == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    if (start == NULL || end == NULL || start->device != end->device ||
        ((start->flags | end->flags) & cudaEventDisableTiming)) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    cudaError_t refused = check_asked(start);
    refused = refused == cudaSuccess ? check_asked(end) : refused;
    if (refused != cudaSuccess) {
        return vgpu_leave(refused);
    }
    record from = current_record(start);
    record to = current_record(end);
    if (from.stream == NULL || to.stream == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    if (!vgpu_stream_reached(from.stream, from.position) || !vgpu_stream_reached(to.stream, to.position)) {
        return vgpu_leave(cudaErrorNotReady);
    }
    /* Read again: the times were not yet taken when a record was read before it completed. */
    from = current_record(start);
    to = current_record(end);
    *ms = (float)(((double)to.time_ns - (double)from.time_ns) * 1e-6);
    return vgpu_leave(vgpu_device_error(start->device));
}
