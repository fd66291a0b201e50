/* Streams as queues: where operations are queued, and the thread on which they run. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/graph.h"

static _Thread_local vgpu_stream *running_stream = NULL;
static _Thread_local const vgpu_queued *running = NULL;

vgpu_pool vgpu_streams = {
    .object_size = sizeof(vgpu_stream), .tag = 0x5c, .prepare = vgpu_stream_prepare, .lock = PTHREAD_MUTEX_INITIALIZER};

void vgpu_stream_prepare(void *object) {
    vgpu_stream *stream = object;
    pthread_mutex_init(&stream->lock, NULL);
    atomic_store(&stream->wake_at, UINT64_MAX);
}

bool vgpu_on_stream_thread(void) {
    return running_stream != NULL;
}

const vgpu_queued *vgpu_running(vgpu_stream **stream) {
    *stream = running_stream;
    return running;
}

vgpu_stream *vgpu_stream_find(cudaStream_t handle) {
    if (handle == NULL || handle == cudaStreamLegacy) {
        vgpu_device *device = vgpu_device_get(vgpu_current_device());
        return device != NULL ? &device->legacy : NULL;
    }
    return vgpu_pool_find(&vgpu_streams, (uintptr_t)handle);
}

int vgpu_stream_device(cudaStream_t handle) {
    vgpu_stream *stream = vgpu_stream_find(handle);
    return stream != NULL ? stream->device : -1;
}

/* --- waiting for a position ----------------------------------------------------------------------------------------- */

static void lower_wake_at(vgpu_stream *stream, uint64_t position) {
    uint64_t current = atomic_load(&stream->wake_at);
    while (position < current && !atomic_compare_exchange_weak(&stream->wake_at, &current, position)) {
    }
}

void vgpu_stream_wait(vgpu_stream *stream, uint64_t position) {
    for (int i = 0; i < VGPU_SPINS; i++) {
        if (vgpu_stream_reached(stream, position)) {
            return;
        }
        if (vgpu_mode.sched == VGPU_FUZZ) {
            vgpu_fuzz_wait(stream, position);
            return;
        }
        vgpu_relax();
    }
    for (int i = 0; i < VGPU_YIELDS && vgpu_yield(); i++) {
        if (vgpu_stream_reached(stream, position)) {
            return;
        }
    }
    for (;;) {
        /* The word is read before the wish is stated: a wake that overlooks the wish has changed the word by then. */
        unsigned word = atomic_load(&stream->wake_word);
        lower_wake_at(stream, position);
        if (vgpu_stream_reached(stream, position)) {
            return;
        }
        vgpu_sleep(&stream->wake_word, word);
    }
}

/* Publishes that position is complete, and wakes the sleepers when the first of them has what it waits for. */
static void complete(vgpu_stream *stream, uint64_t position) {
    atomic_store(&stream->completed, position);
    if (position >= atomic_load(&stream->wake_at)) {
        atomic_store(&stream->wake_at, UINT64_MAX);
        atomic_fetch_add(&stream->wake_word, 1);
        vgpu_wake(&stream->wake_word, INT_MAX);
    }
}

/* --- running -------------------------------------------------------------------------------------------------------- */

/* The only place where operations run. After a device's failure the rest of its work is dropped, as CUDA does. */
static void run_operation(vgpu_stream *stream, vgpu_queued *queued) {
    if (queued->batch != NULL) {
        for (size_t i = 0; i < queued->batch_count; i++) {
            run_operation(stream, &queued->batch[i]);
        }
        return;
    }
    if (queued->wait_stream != NULL && vgpu_device_error(stream->device) == cudaSuccess) {
        vgpu_stream_wait(queued->wait_stream, queued->wait_position);
    }
    if (queued->run != NULL && vgpu_device_error(stream->device) == cudaSuccess) {
        running = queued;
        if (vgpu_mode.delays) {
            vgpu_delay(queued->kind, queued->name, stream->device);
        }
        cudaError_t status =
            vgpu_mode.sched == VGPU_ISOLATE ? vgpu_isolate_run(queued, stream->device) : queued->run(queued->payload);
        running = NULL;
        if (status != cudaSuccess) {
            vgpu_device_fail(stream->device, status);
        }
    }
    free(queued->owned);
    if (vgpu_mode.inspects) {
        free(queued->access);
    }
}

/* The stream is closed, and nothing is left to run. */
static bool drained(vgpu_stream *stream, uint64_t position) {
    return atomic_load(&stream->closing) && atomic_load(&stream->submitted) <= position;
}

/* Returns true when there is work behind position, false when the stream is closed and drained. */
static bool await_work(vgpu_stream *stream, uint64_t position) {
    _Atomic uint64_t *limit = vgpu_mode.sched == VGPU_FUZZ ? &stream->granted : &stream->submitted;
    for (;;) {
        for (int i = 0; i < VGPU_SPINS; i++) {
            if (atomic_load_explicit(limit, memory_order_acquire) > position) {
                return true;
            }
            vgpu_relax();
        }
        if (drained(stream, position)) {
            return false;
        }
        for (int i = 0; i < VGPU_IDLE_YIELDS && vgpu_yield(); i++) {
            if (atomic_load_explicit(limit, memory_order_acquire) > position) {
                return true;
            }
        }
        atomic_store(&stream->asleep, 1);
        if (atomic_load(limit) > position || drained(stream, position)) {
            atomic_store(&stream->asleep, 0);
            continue;
        }
        vgpu_sleep(&stream->asleep, 1);
    }
}

static void ring_doorbell(vgpu_stream *stream) {
    if (atomic_load(&stream->asleep) != 0 && atomic_exchange(&stream->asleep, 0) != 0) {
        vgpu_wake(&stream->asleep, 1);
    }
}

void vgpu_stream_grant(vgpu_stream *stream) {
    atomic_fetch_add(&stream->granted, 1);
    ring_doorbell(stream);
}

/* Takes a drained stream off its device and makes the object free for the next one. */
static void dispose(vgpu_stream *stream) {
    vgpu_device *device = vgpu_device_get(stream->device);
    pthread_mutex_lock(&device->streams_lock);
    for (vgpu_stream **link = &device->streams; *link != NULL; link = &(*link)->next) {
        if (*link == stream) {
            *link = stream->next;
            break;
        }
    }
    pthread_mutex_unlock(&device->streams_lock);
    vgpu_pool_release(&vgpu_streams, &stream->slot);
}

static void *serve(void *argument) {
    vgpu_stream *stream = argument;
    running_stream = stream;
    vgpu_place_thread(stream->device);
    vgpu_set_current_device(stream->device);
    uint64_t position = atomic_load(&stream->completed);
    while (await_work(stream, position)) {
        run_operation(stream, &stream->ring[position % VGPU_RING]);
        position++;
        complete(stream, position);
        if (vgpu_mode.sched == VGPU_FUZZ) {
            vgpu_fuzz_completed(stream);
        }
    }
    dispose(stream);
    return NULL;
}

/* Starts the stream's thread; called with the stream's lock held. */
static cudaError_t start(vgpu_stream *stream) {
    if (stream->ring == NULL) {
        stream->ring = aligned_alloc(64, sizeof(vgpu_queued) * VGPU_RING);
        if (stream->ring == NULL) {
            return cudaErrorMemoryAllocation;
        }
    }
    /* Signals of the process are for the program's threads; faults of an operation stay with the operation. */
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    sigdelset(&blocked, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, serve, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        return cudaErrorOperatingSystem;
    }
    char name[16];
    unsigned number = stream->slot.index & 0xffff;
    snprintf(name, sizeof name, stream->slot.generation == 0 ? "vgpu%d" : "vgpu%d s%u", stream->device & 0xff, number);
    pthread_setname_np(thread, name);
    pthread_detach(thread);
    stream->started = true;
    if (vgpu_mode.sched == VGPU_FUZZ) {
        vgpu_fuzz_opened(stream);
    }
    return cudaSuccess;
}

/* --- queueing ------------------------------------------------------------------------------------------------------- */

/* Called with the stream's lock held when the ring may be full. Whoever finds it full waits until a quarter has drained, so
 * that the two sides do not wake each other for every single entry. */
static void make_room(vgpu_stream *stream, uint64_t position) {
    if (position - atomic_load(&stream->completed) >= VGPU_RING) {
        vgpu_stream_wait(stream, position - VGPU_RING + VGPU_RING / 4);
    }
    stream->room_until = atomic_load(&stream->completed) + VGPU_RING;
}

/* What the modes want to know of an operation that waits to be run. */
static void keep_details(vgpu_queued *queued, const vgpu_request *request) {
    queued->place = vgpu_place;
    queued->joint = request->joint;
    queued->access = NULL;
    queued->access_count = 0;
    if (vgpu_mode.sched == VGPU_ISOLATE && request->access_count > 0) {
        queued->access = malloc(request->access_count * sizeof *queued->access);
        if (queued->access != NULL) {
            memcpy(queued->access, request->access, request->access_count * sizeof *queued->access);
            queued->access_count = request->access_count;
        }
    }
}

/* Appends one entry; called with the stream's lock held and its thread started. */
static void push(vgpu_stream *stream, const vgpu_request *request, vgpu_stream *wait_stream, uint64_t wait_position) {
    uint64_t position = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    if (position >= stream->room_until) {
        make_room(stream, position);
    }
    vgpu_queued *queued = &stream->ring[position % VGPU_RING];
    queued->name = request->name;
    queued->run = request->run;
    queued->owned = request->owned;
    queued->wait_stream = wait_stream;
    queued->wait_position = wait_position;
    queued->kind = request->kind;
    queued->batch = request->batch;
    queued->batch_count = request->batch_count;
    if (vgpu_mode.inspects || vgpu_mode.sched == VGPU_FUZZ) {
        keep_details(queued, request);
    }
    if (request->bytes > 0) {
        memcpy(queued->payload, request->payload, request->bytes);
    }
    atomic_store(&stream->submitted, position + 1);
    if (vgpu_mode.sched == VGPU_FUZZ) {
        vgpu_fuzz_submitted(stream, request, position);
        return;
    }
    ring_doorbell(stream);
}

static cudaError_t push_wait(vgpu_stream *stream, vgpu_stream *on, uint64_t position) {
    if (on == stream || vgpu_stream_reached(on, position)) {
        return cudaSuccess;
    }
    if (!stream->started) {
        cudaError_t status = start(stream);
        if (status != cudaSuccess) {
            return status;
        }
    }
    static const vgpu_request wait = {.name = "wait"};
    push(stream, &wait, on, position);
    return cudaSuccess;
}

/* The legacy default stream waits for all that its device's blocking streams hold. */
static cudaError_t wait_for_blocking_streams(vgpu_device *device) {
    cudaError_t status = cudaSuccess;
    pthread_mutex_lock(&device->streams_lock);
    for (vgpu_stream *other = device->streams; other != NULL && status == cudaSuccess; other = other->next) {
        uint64_t position = atomic_load(&other->submitted);
        if (!(other->flags & cudaStreamNonBlocking) && position > other->awaited_by_legacy) {
            other->awaited_by_legacy = position;
            status = push_wait(&device->legacy, other, position);
        }
    }
    pthread_mutex_unlock(&device->streams_lock);
    return status;
}

/* What the legacy default stream's rules ask before the next operation of stream, whose lock is held. A position waited
 * for has been published before, so waits always point back in time and cannot form a circle. */
static cudaError_t apply_legacy_rules(vgpu_stream *stream) {
    vgpu_device *device = vgpu_device_get(stream->device);
    if (stream == &device->legacy) {
        return wait_for_blocking_streams(device);
    }
    if (stream->flags & cudaStreamNonBlocking) {
        return cudaSuccess;
    }
    uint64_t position = atomic_load(&device->legacy.submitted);
    if (position <= stream->legacy_awaited) {
        return cudaSuccess;
    }
    stream->legacy_awaited = position;
    return push_wait(stream, &device->legacy, position);
}

static bool names(cudaStream_t handle, vgpu_stream *stream) {
    return handle == NULL || handle == cudaStreamLegacy || atomic_load(&stream->slot.handle) == (uintptr_t)handle;
}

cudaError_t vgpu_stream_queue(vgpu_stream *stream, cudaStream_t handle, const vgpu_request *request,
                              uint64_t *position) {
    if (vgpu_capturing()) {
        bool taken = false;
        cudaError_t captured = vgpu_capture_request(stream, request, &taken);
        if (taken) {
            return captured;
        }
    }
    pthread_mutex_lock(&stream->lock);
    cudaError_t status = names(handle, stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
    if (status == cudaSuccess) {
        status = apply_legacy_rules(stream);
    }
    if (status == cudaSuccess && request->run != NULL && !stream->started) {
        status = start(stream);
    }
    if (status == cudaSuccess && vgpu_mode.inspects) {
        status = vgpu_inspect(stream, request);
    }
    if (status == cudaSuccess && request->run != NULL) {
        push(stream, request, NULL, 0);
    }
    if (position != NULL) {
        *position = atomic_load(&stream->submitted);
    }
    pthread_mutex_unlock(&stream->lock);
    return status;
}

cudaError_t vgpu_stream_queue_wait(vgpu_stream *stream, cudaStream_t handle, vgpu_stream *on, uint64_t position,
                                   const vgpu_clock *clock) {
    pthread_mutex_lock(&stream->lock);
    cudaError_t status = names(handle, stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
    if (status == cudaSuccess) {
        status = apply_legacy_rules(stream);
    }
    if (status == cudaSuccess) {
        status = push_wait(stream, on, position);
    }
    if (status == cudaSuccess) {
        vgpu_check_wait(stream, clock);
    }
    pthread_mutex_unlock(&stream->lock);
    return status;
}

cudaError_t vgpu_submit(cudaStream_t handle, const char *name, vgpu_operation run, const void *payload, size_t bytes) {
    static const vgpu_joint alone = {0};
    return vgpu_submit_kind(handle, name, run, payload, bytes, VGPU_KERNEL, &alone);
}

cudaError_t vgpu_submit_kind(cudaStream_t handle, const char *name, vgpu_operation run, const void *payload,
                             size_t bytes, vgpu_kind kind, const vgpu_joint *joint) {
    const vgpu_access *access = NULL;
    size_t access_count = vgpu_wants_access ? vgpu_take_declaration(&access) : 0;
    VGPU_ENTER();
    if (bytes > VGPU_PAYLOAD_BYTES || run == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    vgpu_stream *stream = vgpu_stream_find(handle);
    if (stream == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    cudaError_t status = vgpu_device_error(stream->device);
    if (status == cudaSuccess && stream->device != vgpu_current_device()) {
        status = cudaErrorInvalidResourceHandle;
    }
    if (status == cudaSuccess) {
        vgpu_request request = {.name = name, .run = run, .payload = payload, .bytes = bytes, .kind = kind};
        request.joint = *joint;
        request.access = access;
        request.access_count = access_count;
        status = vgpu_stream_queue(stream, handle, &request, NULL);
    }
    return vgpu_leave(status);
}

bool vgpu_stream_close(vgpu_stream *stream, cudaStream_t handle) {
    pthread_mutex_lock(&stream->lock);
    if (!vgpu_pool_retire(&stream->slot, (uintptr_t)handle)) {
        pthread_mutex_unlock(&stream->lock);
        return false;
    }
    bool started = stream->started;
    atomic_store(&stream->closing, true);
    ring_doorbell(stream);
    pthread_mutex_unlock(&stream->lock);
    if (!started) {
        dispose(stream);
    }
    return true;
}
