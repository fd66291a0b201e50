/* Copies and fills. Which side waits for what follows CUDA's "API synchronization behavior":
 * pageable host memory to device may return once staged; anything to pageable host memory returns complete; host to host
 * is synchronous; pinned memory is read and written when the stream gets there. */
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/graph.h"
#include "gpu/vgpu/host_guard.h"

/* CUDA stages pageable copies up to this size and returns; larger ones are copied before the call returns. */
enum { STAGED_BYTES = 64 * 1024 };

typedef enum place { PAGEABLE, PINNED, DEVICE } place;

typedef struct side {
    place place;
    int device; /* of device memory */
} side;

/* Where a range lies; cudaErrorInvalidValue when it is not wholly inside one live device allocation that it starts in. */
static cudaError_t locate(const void *pointer, size_t count, side *out) {
    size_t remaining = 0;
    *out = (side){PAGEABLE, -1};
    if (pointer == NULL) {
        return cudaErrorInvalidValue;
    }
    if (vgpu_address_device(pointer) >= 0) {
        *out = (side){DEVICE, vgpu_pointer_device(pointer, &remaining)};
        return remaining >= count ? cudaSuccess : cudaErrorInvalidValue;
    }
    if (vgpu_host_pinned(pointer, &remaining, NULL) && remaining >= count) {
        out->place = PINNED;
    }
    return cudaSuccess;
}

/* A device reaches its own memory and pinned memory; the host everything but device memory. */
static cudaError_t check_kind(enum cudaMemcpyKind kind, side to, side from) {
    bool to_host = to.place != DEVICE;
    bool from_host = from.place != DEVICE;
    bool to_device = to.place != PAGEABLE;
    bool from_device = from.place != PAGEABLE;
    bool fits = false;
    switch (kind) {
    case cudaMemcpyHostToHost:
        fits = to_host && from_host;
        break;
    case cudaMemcpyHostToDevice:
        fits = to_device && from_host;
        break;
    case cudaMemcpyDeviceToHost:
        fits = to_host && from_device;
        break;
    case cudaMemcpyDeviceToDevice:
        fits = to_device && from_device;
        break;
    case cudaMemcpyDefault:
        fits = true;
        break;
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
    return fits ? cudaSuccess : cudaErrorInvalidValue;
}

typedef struct copy {
    void *to;
    const void *from;
    size_t count;
} copy;

static cudaError_t run_copy(void *payload) {
    copy *c = payload;
    memmove(c->to, c->from, c->count);
    return cudaSuccess;
}

typedef enum wait_rule { WAIT_FOR_PAGEABLE, WAIT_UNLESS_ON_DEVICES } wait_rule;

/* What a copy uses: pageable memory is left out, since no copy uses it after its call. */
static size_t list_accesses(copy c, side to, side from, vgpu_access list[2]) {
    size_t count = 0;
    if (to.place != PAGEABLE) {
        list[count++] = (vgpu_access){c.to, c.count, VGPU_WRITE};
    }
    if (from.place != PAGEABLE) {
        list[count++] = (vgpu_access){c.from, c.count, VGPU_READ};
    }
    return count;
}

/* Waits for a position, whose clock is given where clocks are kept. */
static cudaError_t wait_for(vgpu_stream *stream, uint64_t position, const vgpu_clock *clock) {
    vgpu_stream_wait(stream, position);
    vgpu_check_joined(clock);
    return vgpu_device_error(stream->device);
}

/* cudaMemcpy synchronises with its stream before it stages pageable memory. */
static void join_earlier_work(vgpu_stream *stream, cudaStream_t handle) {
    vgpu_clock clock = {0};
    vgpu_request nothing = {.name = "synchronize", .record = &clock};
    if (vgpu_mode.sched == VGPU_CHECK && vgpu_stream_queue(stream, handle, &nothing, NULL) == cudaSuccess) {
        vgpu_check_joined(&clock);
    }
    vgpu_clock_free(&clock);
}

/* Queues a copy whose arguments are good, and waits for it as far as the call must. */
static cudaError_t queue_copy(cudaStream_t handle, copy c, side to, side from, wait_rule rule, vgpu_kind kind) {
    vgpu_stream *stream = vgpu_stream_find(handle);
    if (stream == NULL) {
        return cudaErrorInvalidResourceHandle;
    }
    cudaError_t status = vgpu_device_error(stream->device);
    if (status != cudaSuccess || c.count == 0) {
        return status;
    }
    bool wait = rule == WAIT_UNLESS_ON_DEVICES
                    ? to.place != DEVICE || from.place != DEVICE
                    : to.place == PAGEABLE || from.place == PAGEABLE || (to.place != DEVICE && from.place != DEVICE);
    bool captured = vgpu_stream_captures(handle); /* then even pageable memory is used when the graph runs */
    wait = wait && !captured;
    vgpu_access access[2];
    vgpu_clock clock = {0};
    vgpu_request request = {.name = "copy", .run = run_copy, .payload = &c, .bytes = sizeof c, .kind = kind};
    request.access = access;
    request.access_count = list_accesses(c, to, from, access);
    if (vgpu_mode.sched == VGPU_CHECK) {
        c.to = vgpu_host_guard_alias(c.to);
        c.from = vgpu_host_guard_alias(c.from);
    }
    if (rule == WAIT_FOR_PAGEABLE && to.place == DEVICE && from.place == PAGEABLE && c.count <= STAGED_BYTES &&
        !captured) {
        request.owned = malloc(c.count);
        if (request.owned != NULL) {
            memcpy(request.owned, c.from, c.count);
            c.from = request.owned;
            wait = false;
        }
    }
    /* A pageable source may only have been staged when the call returns, however long that took here. */
    bool staged = to.place == DEVICE && from.place == PAGEABLE;
    request.record = wait && !staged ? &clock : NULL;
    if (staged && rule == WAIT_UNLESS_ON_DEVICES) {
        join_earlier_work(stream, handle);
    }
    uint64_t position = 0;
    status = vgpu_stream_queue(stream, handle, &request, &position);
    if (status != cudaSuccess) {
        free(request.owned);
    } else if (wait) {
        status = wait_for(stream, position, &clock);
    }
    vgpu_clock_free(&clock);
    return status;
}

static cudaError_t copy_checked(cudaStream_t stream, copy c, enum cudaMemcpyKind kind, wait_rule rule) {
    side to = {PAGEABLE, -1};
    side from = {PAGEABLE, -1};
    cudaError_t status = cudaSuccess;
    if (c.count > 0) {
        status = locate(c.to, c.count, &to);
        status = status == cudaSuccess ? locate(c.from, c.count, &from) : status;
        status = status == cudaSuccess ? check_kind(kind, to, from) : status;
    } else if ((unsigned)kind > cudaMemcpyDefault) {
        status = cudaErrorInvalidMemcpyDirection;
    }
    return status == cudaSuccess ? queue_copy(stream, c, to, from, rule, VGPU_COPY) : status;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind) {
    VGPU_ENTER();
    cudaError_t refused = vgpu_capture_synchronous();
    return vgpu_leave(
        refused != cudaSuccess ? refused : copy_checked(NULL, (copy){dst, src, count}, kind, WAIT_UNLESS_ON_DEVICES));
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream) {
    VGPU_ENTER();
    return vgpu_leave(copy_checked(stream, (copy){dst, src, count}, kind, WAIT_FOR_PAGEABLE));
}

/* Both ranges must lie on the devices named. Peer access is not needed: without it CUDA copies through the host. */
static cudaError_t check_peers(copy c, int to_device, int from_device) {
    if (vgpu_device_get(to_device) == NULL || vgpu_device_get(from_device) == NULL) {
        return cudaErrorInvalidDevice;
    }
    side to = {PAGEABLE, -1};
    side from = {PAGEABLE, -1};
    if (c.count > 0) {
        cudaError_t status = locate(c.to, c.count, &to);
        status = status == cudaSuccess ? locate(c.from, c.count, &from) : status;
        if (status != cudaSuccess || to.device != to_device || from.device != from_device) {
            return cudaErrorInvalidValue;
        }
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count,
                                cudaStream_t stream) {
    VGPU_ENTER();
    copy c = {dst, src, count};
    cudaError_t status = check_peers(c, dstDevice, srcDevice);
    if (status == cudaSuccess) {
        status = queue_copy(stream, c, (side){DEVICE, dstDevice}, (side){DEVICE, srcDevice}, WAIT_FOR_PAGEABLE,
                            VGPU_PEER_COPY);
    }
    return vgpu_leave(status);
}

/* Serialised with all work of the current device and both others, whatever its stream; complete on return. */
cudaError_t cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t count) {
    VGPU_ENTER();
    copy c = {dst, src, count};
    cudaError_t status = vgpu_capture_synchronous();
    status = status == cudaSuccess ? check_peers(c, dstDevice, srcDevice) : status;
    if (status == cudaSuccess) {
        vgpu_device_wait(srcDevice);
        vgpu_device_wait(dstDevice);
        status = queue_copy(NULL, c, (side){DEVICE, dstDevice}, (side){DEVICE, srcDevice}, WAIT_FOR_PAGEABLE,
                            VGPU_PEER_COPY);
    }
    if (status == cudaSuccess) {
        vgpu_device_wait(vgpu_current_device());
        status = vgpu_device_error(vgpu_current_device());
    }
    return vgpu_leave(status);
}

typedef struct fill {
    void *to;
    int value;
    size_t count;
} fill;

static cudaError_t run_fill(void *payload) {
    fill *f = payload;
    memset(f->to, f->value, f->count);
    return cudaSuccess;
}

static cudaError_t queue_fill(cudaStream_t handle, fill f, bool wait_if_pinned) {
    side to = {PAGEABLE, -1};
    cudaError_t status = f.count > 0 ? locate(f.to, f.count, &to) : cudaSuccess;
    if (status != cudaSuccess || (f.count > 0 && to.place == PAGEABLE)) {
        return cudaErrorInvalidValue;
    }
    vgpu_stream *stream = vgpu_stream_find(handle);
    if (stream == NULL) {
        return cudaErrorInvalidResourceHandle;
    }
    status = vgpu_device_error(stream->device);
    if (status != cudaSuccess || f.count == 0) {
        return status;
    }
    uint64_t position = 0;
    vgpu_clock clock = {0};
    vgpu_access access = {f.to, f.count, VGPU_WRITE};
    bool wait = wait_if_pinned && to.place == PINNED;
    if (vgpu_mode.sched == VGPU_CHECK) {
        f.to = vgpu_host_guard_alias(f.to);
    }
    vgpu_request request = {.name = "fill", .run = run_fill, .payload = &f, .bytes = sizeof f, .kind = VGPU_FILL};
    request.access = &access;
    request.access_count = 1;
    request.record = wait ? &clock : NULL;
    status = vgpu_stream_queue(stream, handle, &request, &position);
    if (status == cudaSuccess && wait) {
        status = wait_for(stream, position, &clock);
    }
    vgpu_clock_free(&clock);
    return status;
}

cudaError_t cudaMemset(void *devPtr, int value, size_t count) {
    VGPU_ENTER();
    cudaError_t refused = vgpu_capture_synchronous();
    return vgpu_leave(refused != cudaSuccess ? refused : queue_fill(NULL, (fill){devPtr, value, count}, true));
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream) {
    VGPU_ENTER();
    return vgpu_leave(queue_fill(stream, (fill){devPtr, value, count}, false));
}
