/* What happens while streams capture: the nodes that they make, and what they refuse. The rules are those of the CUDA
 * Programming Guide, "Creating a Graph Using Stream Capture", and of cudaThreadExchangeStreamCaptureMode's description. */
#include "gpu/vgpu/graph.h"

#include <stdlib.h>

/* One of the streams that take part. */
typedef struct lane {
    vgpu_stream *stream;
    vgpu_node_set last; /* what its next operation comes after */
} lane;

typedef struct vgpu_capture {
    struct vgpu_capture *next;
    uint64_t number, thread; /* its own, and that of the thread that began it */
    enum cudaStreamCaptureMode mode;
    bool invalid;
    vgpu_body *body;
    lane *lanes; /* [count]; the first is where it began */
    size_t count, capacity;
} vgpu_capture;

_Atomic unsigned vgpu_captures;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* captures, and what streams have of them */
static vgpu_capture *captures;
static uint64_t begun;
static _Atomic uint64_t threads;
static _Thread_local uint64_t thread_number;
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

static uint64_t this_thread(void) {
    if (thread_number == 0) {
        thread_number = atomic_fetch_add(&threads, 1) + 1;
    }
    return thread_number;
}

/* --- who takes part --------------------------------------------------------------------------------------------------- */

/* The request becomes the last node of its lane; false when memory is out. */
static bool add_node(vgpu_capture *capture, size_t at, const vgpu_request *request) {
    lane *l = &capture->lanes[at];
    vgpu_node_set next = {0};
    uint32_t number = (uint32_t)capture->body->count;
    if (!vgpu_node_set_add(&next, &(vgpu_node_set){&number, 1}) ||
        !vgpu_body_add(capture->body, at, &l->last, request)) {
        vgpu_node_set_free(&next);
        return false;
    }
    l->last = next;
    return true;
}

/* The stream takes part from here on; false when memory is out. */
static bool add_lane(vgpu_capture *capture, vgpu_stream *stream) {
    if (capture->count == capture->capacity) {
        size_t capacity = capture->capacity == 0 ? 8 : 2 * capture->capacity;
        lane *lanes = realloc(capture->lanes, capacity * sizeof *lanes);
        if (lanes == NULL) {
            return false;
        }
        capture->lanes = lanes;
        int *devices = realloc(capture->body->devices, capacity * sizeof *devices);
        if (devices == NULL) {
            return false;
        }
        capture->body->devices = devices;
        capture->capacity = capacity;
    }
    capture->lanes[capture->count] = (lane){.stream = stream};
    capture->body->devices[capture->count] = stream->device;
    stream->capture = capture;
    stream->capture_lane = capture->count;
    capture->count++;
    capture->body->lanes = capture->count;
    return true;
}

/* Its streams no longer capture. *body (may be NULL) gets what was captured. */
static void finish(vgpu_capture *capture, vgpu_body **body) {
    vgpu_capture **link = &captures;
    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    for (size_t i = 0; i < capture->count; i++) {
        capture->lanes[i].stream->capture = NULL;
        vgpu_node_set_free(&capture->lanes[i].last);
    }
    if (body != NULL) {
        *body = capture->body;
    } else {
        vgpu_body_release(capture->body);
    }
    free(capture->lanes);
    free(capture);
    atomic_fetch_sub(&vgpu_captures, 1);
}

/* --- what is refused --------------------------------------------------------------------------------------------------- */

static cudaError_t refuse(vgpu_capture *capture, cudaError_t status) {
    if (capture->invalid) {
        return cudaErrorStreamCaptureInvalidated;
    }
    capture->invalid = true;
    return status;
}

/* Using the legacy stream of a device would depend on the blocking streams of the device that capture. */
static cudaError_t check_legacy(int device, bool invalidates) {
    cudaError_t status = cudaSuccess;
    for (vgpu_capture *capture = captures; capture != NULL; capture = capture->next) {
        for (size_t i = 0; i < capture->count; i++) {
            const vgpu_stream *stream = capture->lanes[i].stream;
            if (stream->device == device && !(stream->flags & cudaStreamNonBlocking)) {
                status = cudaErrorStreamCaptureImplicit;
                capture->invalid = capture->invalid || invalidates;
            }
        }
    }
    return status;
}

static cudaError_t check_unsafe(void) {
    cudaError_t status = cudaSuccess;
    for (vgpu_capture *capture = captures; capture != NULL && thread_mode != cudaStreamCaptureModeRelaxed;
         capture = capture->next) {
        bool own = capture->thread == this_thread();
        bool both_global = capture->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
        if (own ? capture->mode != cudaStreamCaptureModeRelaxed : both_global) {
            status = cudaErrorStreamCaptureUnsupported;
            capture->invalid = true;
        }
    }
    return status;
}

static bool is_legacy(const vgpu_stream *stream) {
    return stream == &vgpu_device_get(stream->device)->legacy;
}

cudaError_t vgpu_capture_unsafe(void) {
    if (!vgpu_capturing()) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&lock);
    cudaError_t status = check_unsafe();
    pthread_mutex_unlock(&lock);
    return status;
}

cudaError_t vgpu_capture_synchronous(void) {
    if (!vgpu_capturing()) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&lock);
    cudaError_t status = check_legacy(vgpu_current_device(), true);
    status = status == cudaSuccess ? check_unsafe() : status;
    pthread_mutex_unlock(&lock);
    return status;
}

cudaError_t vgpu_capture_asked_stream(vgpu_stream *stream) {
    if (!vgpu_capturing()) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&lock);
    cudaError_t status = cudaSuccess;
    if (stream->capture != NULL) {
        status = refuse(stream->capture, cudaErrorStreamCaptureUnsupported);
    } else {
        status = is_legacy(stream) ? check_legacy(stream->device, true) : cudaSuccess;
        status = status == cudaSuccess ? check_unsafe() : status;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

cudaError_t vgpu_capture_asked_device(int device) {
    if (!vgpu_capturing()) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&lock);
    cudaError_t status = cudaSuccess;
    for (vgpu_capture *capture = captures; capture != NULL; capture = capture->next) {
        for (size_t i = 0; i < capture->count; i++) {
            if (capture->lanes[i].stream->device == device) {
                status = cudaErrorStreamCaptureUnsupported;
                capture->invalid = true;
            }
        }
    }
    status = status == cudaSuccess ? check_unsafe() : status;
    pthread_mutex_unlock(&lock);
    return status;
}

static vgpu_capture *find(uint64_t number) {
    vgpu_capture *capture = captures;
    while (capture != NULL && capture->number != number) {
        capture = capture->next;
    }
    return capture;
}

cudaError_t vgpu_capture_asked_event(const vgpu_captured *event) {
    if (event->capture == 0) {
        return vgpu_capture_unsafe();
    }
    pthread_mutex_lock(&lock);
    vgpu_capture *capture = find(event->capture);
    if (capture != NULL) {
        capture->invalid = true;
    }
    pthread_mutex_unlock(&lock);
    return cudaErrorCapturedEvent;
}

/* --- what is captured -------------------------------------------------------------------------------------------------- */

static cudaError_t take_request(vgpu_stream *stream, const vgpu_request *request) {
    vgpu_capture *capture = stream->capture;
    if (capture->invalid) {
        return cudaErrorStreamCaptureInvalidated;
    }
    if (request->run == NULL || request->owned != NULL) {
        return refuse(capture, cudaErrorStreamCaptureUnsupported);
    }
    return add_node(capture, stream->capture_lane, request) ? cudaSuccess : refuse(capture, cudaErrorMemoryAllocation);
}

cudaError_t vgpu_capture_request(vgpu_stream *stream, const vgpu_request *request, bool *taken) {
    pthread_mutex_lock(&lock);
    cudaError_t status = cudaSuccess;
    *taken = stream->capture != NULL;
    if (*taken) {
        status = take_request(stream, request);
    } else if (is_legacy(stream)) {
        status = check_legacy(stream->device, true);
        *taken = status != cudaSuccess;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

bool vgpu_stream_captures(cudaStream_t handle) {
    if (!vgpu_capturing()) {
        return false;
    }
    vgpu_stream *stream = vgpu_stream_find(handle);
    pthread_mutex_lock(&lock);
    bool captures_now = stream != NULL && stream->capture != NULL;
    pthread_mutex_unlock(&lock);
    return captures_now;
}

cudaError_t vgpu_capture_record(vgpu_stream *stream, vgpu_captured *out, bool *taken) {
    *out = (vgpu_captured){0};
    *taken = false;
    if (!vgpu_capturing()) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&lock);
    cudaError_t status = cudaSuccess;
    vgpu_capture *capture = stream->capture;
    *taken = capture != NULL;
    if (capture != NULL && capture->invalid) {
        status = cudaErrorStreamCaptureInvalidated;
    } else if (capture != NULL) {
        out->capture = capture->number;
        if (!vgpu_node_set_add(&out->nodes, &capture->lanes[stream->capture_lane].last)) {
            status = refuse(capture, cudaErrorMemoryAllocation);
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* The stream waits for an event of a capture that goes on. */
static cudaError_t wait_captured(vgpu_stream *stream, vgpu_capture *capture, const vgpu_captured *event) {
    if (capture->invalid) {
        return cudaErrorStreamCaptureInvalidated;
    }
    if (stream->capture == NULL && is_legacy(stream)) {
        return refuse(capture, cudaErrorStreamCaptureImplicit);
    }
    if (stream->capture != NULL && stream->capture != capture) {
        (void)refuse(stream->capture, cudaErrorStreamCaptureMerge);
        return refuse(capture, cudaErrorStreamCaptureMerge);
    }
    bool done = (stream->capture == capture || add_lane(capture, stream)) &&
                vgpu_node_set_add(&capture->lanes[stream->capture_lane].last, &event->nodes);
    return done ? cudaSuccess : refuse(capture, cudaErrorMemoryAllocation);
}

cudaError_t vgpu_capture_wait(vgpu_stream *stream, const vgpu_captured *event, bool recorded, bool *taken) {
    *taken = event->capture != 0;
    if (!*taken && !vgpu_capturing()) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&lock);
    cudaError_t status = cudaSuccess;
    vgpu_capture *capture = event->capture != 0 ? find(event->capture) : NULL;
    if (capture != NULL) {
        status = wait_captured(stream, capture, event);
    } else if (stream->capture != NULL) { /* with work that is no part of the capture, or with none */
        *taken = true;
        status = stream->capture->invalid          ? cudaErrorStreamCaptureInvalidated
                 : recorded || event->capture != 0 ? refuse(stream->capture, cudaErrorStreamCaptureIsolation)
                                                   : cudaSuccess;
    } else if (event->capture != 0) {
        status = cudaErrorCapturedEvent;
    } else if (is_legacy(stream)) {
        status = check_legacy(stream->device, true);
        *taken = status != cudaSuccess;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* --- beginning and ending ---------------------------------------------------------------------------------------------- */

cudaError_t vgpu_capture_begin(vgpu_stream *stream, enum cudaStreamCaptureMode mode) {
    vgpu_capture *capture = calloc(1, sizeof *capture);
    vgpu_body *body = calloc(1, sizeof *body);
    if (capture == NULL || body == NULL) {
        free(capture);
        free(body);
        return cudaErrorMemoryAllocation;
    }
    atomic_store(&body->references, 1);
    pthread_mutex_lock(&lock);
    cudaError_t status = stream->capture != NULL ? cudaErrorIllegalState : cudaSuccess;
    *capture = (vgpu_capture){.thread = this_thread(), .mode = mode, .body = body};
    if (status == cudaSuccess && !add_lane(capture, stream)) {
        status = cudaErrorMemoryAllocation;
    }
    if (status == cudaSuccess) {
        capture->number = ++begun;
        capture->next = captures;
        captures = capture;
        atomic_fetch_add(&vgpu_captures, 1);
    }
    pthread_mutex_unlock(&lock);
    if (status != cudaSuccess) {
        vgpu_body_release(body);
        free(capture->lanes);
        free(capture);
    }
    return status;
}

/* Whether everything that was captured comes before what the first stream would do next. */
static bool all_joined(const vgpu_capture *capture, bool *joined) {
    const vgpu_body *body = capture->body;
    const vgpu_node_set *last = &capture->lanes[0].last;
    for (size_t i = 0; i < last->count; i++) {
        joined[last->list[i]] = true;
    }
    bool all = true;
    for (size_t n = body->count; n-- > 0;) {
        const vgpu_node_set *before = &body->nodes[n].before;
        for (size_t i = 0; i < before->count && joined[n]; i++) {
            joined[before->list[i]] = true;
        }
        all = all && joined[n];
    }
    return all;
}

static cudaError_t check_joined(const vgpu_capture *capture) {
    bool *joined = calloc(capture->body->count + 1, sizeof *joined);
    if (joined == NULL) {
        return cudaErrorMemoryAllocation;
    }
    bool all = all_joined(capture, joined);
    free(joined);
    return all ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

cudaError_t vgpu_capture_end(vgpu_stream *stream, vgpu_body **body) {
    pthread_mutex_lock(&lock);
    vgpu_capture *capture = stream->capture;
    cudaError_t status = cudaSuccess;
    if (capture == NULL) {
        status = cudaErrorIllegalState;
    } else if (capture->lanes[0].stream != stream) {
        status = refuse(capture, cudaErrorStreamCaptureUnmatched);
    } else if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != this_thread()) {
        status = cudaErrorStreamCaptureWrongThread;
    } else {
        status = capture->invalid ? cudaErrorStreamCaptureInvalidated : check_joined(capture);
        finish(capture, status == cudaSuccess ? body : NULL);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

cudaError_t vgpu_capture_status(vgpu_stream *stream, enum cudaStreamCaptureStatus *out) {
    pthread_mutex_lock(&lock);
    const vgpu_capture *capture = stream->capture;
    cudaError_t status = capture == NULL && is_legacy(stream) ? check_legacy(stream->device, false) : cudaSuccess;
    *out = capture == NULL    ? cudaStreamCaptureStatusNone
           : capture->invalid ? cudaStreamCaptureStatusInvalidated
                              : cudaStreamCaptureStatusActive;
    pthread_mutex_unlock(&lock);
    return status;
}

cudaError_t vgpu_capture_exchange_mode(enum cudaStreamCaptureMode *mode) {
    if (mode == NULL || (unsigned)*mode > cudaStreamCaptureModeRelaxed) {
        return cudaErrorInvalidValue;
    }
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

static bool takes_part(const vgpu_capture *capture, int device) {
    bool found = false;
    for (size_t i = 0; i < capture->count; i++) {
        found = found || capture->lanes[i].stream->device == device;
    }
    return found;
}

void vgpu_capture_reset(int device) {
    pthread_mutex_lock(&lock);
    for (vgpu_capture *capture = captures; capture != NULL;) {
        vgpu_capture *next = capture->next;
        if (takes_part(capture, device)) {
            finish(capture, NULL);
        }
        capture = next;
    }
    pthread_mutex_unlock(&lock);
}
