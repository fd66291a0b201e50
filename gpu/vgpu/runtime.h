/* What the files of the virtual CUDA runtime share among themselves. NCCL, the launcher and the layer math use internal.h
 * instead.
 *
 * Positions: every stream counts the operations queued on it (submitted) and the operations finished (completed). Both
 * only grow, also when a slot serves a later stream. So "the work queued so far" is the pair (stream, position), and that
 * pair is all that an event record, a wait or a synchronisation needs. */
#ifndef LS_GPU_VGPU_RUNTIME_H
#define LS_GPU_VGPU_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/vgpu/internal.h"
#include "gpu/vgpu/modes.h"

/* --- handle.c: objects behind opaque handles ------------------------------------------------------------------------ */

/* First member of every such object. A handle is a number (generation, index, tag), never an address, so that a stale or
 * foreign one is refused with certainty. Objects are never freed, only reused. */
typedef struct vgpu_slot {
    _Atomic uintptr_t handle; /* 0: no live handle names this object */
    struct vgpu_slot *next_free;
    uint32_t index;
    uint32_t generation;
} vgpu_slot;

enum { VGPU_CHUNK_OBJECTS = 64, VGPU_MAX_CHUNKS = 4096 };

typedef struct vgpu_pool {
    size_t object_size; /* a multiple of 64 */
    unsigned tag;       /* low byte of the handles, distinct for each pool */
    void (*prepare)(void *object);
    pthread_mutex_t lock;
    vgpu_slot *free;
    uint32_t count;
    _Atomic(char *) chunks[VGPU_MAX_CHUNKS];
} vgpu_pool;

/* An object that no handle names yet (new ones are zeroed and went through prepare); NULL when memory is out. */
void *vgpu_pool_take(vgpu_pool *pool);
/* Gives the object a fresh handle. */
uintptr_t vgpu_pool_publish(vgpu_pool *pool, vgpu_slot *slot);
/* The object of a live handle, else NULL. */
void *vgpu_pool_find(vgpu_pool *pool, uintptr_t handle);
/* Ends the handle; false when another call ended it first. */
bool vgpu_pool_retire(vgpu_slot *slot, uintptr_t handle);
/* Returns an object whose handle was retired, for reuse. */
void vgpu_pool_release(vgpu_pool *pool, vgpu_slot *slot);
/* Calls visit for every object of the pool that has a live handle. */
void vgpu_pool_each(vgpu_pool *pool, void (*visit)(void *object, uintptr_t handle, void *context), void *context);

/* --- stream.c: the queue of operations ------------------------------------------------------------------------------ */

enum { VGPU_RING = 1024 }; /* operations that wait in a stream before its submitters block; CUDA's own depth */

typedef struct vgpu_stream vgpu_stream;
struct vgpu_queued;

/* What is to be queued. owned (may be NULL) is freed after the operation, or instead of it when the device has failed. */
typedef struct vgpu_request {
    const char *name;
    vgpu_operation run; /* NULL queues only what the legacy default stream's rules ask for */
    const void *payload;
    size_t bytes;
    void *owned;
    vgpu_kind kind;
    vgpu_joint joint;
    const vgpu_access *access; /* [access_count], what the operation uses */
    size_t access_count;
    vgpu_clock *record; /* NULL, or gets the stream's clock after the operation, where clocks are kept */
    struct vgpu_queued
        *batch; /* NULL, or [batch_count]: operations that are run in place of this one, and stay the caller's */
    size_t batch_count;
} vgpu_request;

/* One queued operation: first wait until wait_stream has completed wait_position (if there is one), then run. */
typedef struct vgpu_queued {
    const char *name;
    vgpu_operation run;
    void *owned;
    vgpu_access *access; /* [access_count], owned; in the modes that look at operations as they run */
    size_t access_count;
    vgpu_joint joint;
    vgpu_kind kind;
    struct vgpu_place place;
    vgpu_stream *wait_stream;
    uint64_t wait_position;
    struct vgpu_queued *batch; /* see vgpu_request */
    size_t batch_count;
    _Alignas(16) unsigned char payload[VGPU_PAYLOAD_BYTES];
} vgpu_queued;

struct vgpu_stream {
    vgpu_slot slot;
    int device;
    unsigned flags;
    int priority;
    pthread_mutex_t lock;    /* submitters */
    vgpu_queued *ring;       /* VGPU_RING entries, made at first use */
    bool started;            /* a thread serves the ring */
    uint64_t room_until;     /* the ring has room for entries below this position; completed is read only beyond it */
    uint64_t legacy_awaited; /* position of the legacy stream that this stream has been told to wait for */
    uint64_t awaited_by_legacy;
    vgpu_stream *next;            /* of the same device, under its streams_lock */
    struct vgpu_capture *capture; /* of graph_capture.c, under its lock: the capture that it takes part in */
    size_t capture_lane;          /* and as which of its streams */
    struct vgpu_track *track;     /* of sched_check.c */
    uint64_t needed;              /* of sched_fuzz.c: somebody waits for this position */
    _Atomic uint64_t granted;     /* in fuzz: the thread runs entries below this position */

    _Alignas(64) _Atomic uint64_t submitted;
    _Atomic bool closing;
    _Atomic unsigned asleep; /* futex: 1 while the thread sleeps for work */
    _Alignas(64) _Atomic uint64_t completed;
    _Atomic uint64_t wake_at;   /* smallest position that a sleeper waits for */
    _Atomic unsigned wake_word; /* futex: changes when wake_at was reached */
};

extern vgpu_pool vgpu_streams;

/* The stream of a handle (0 and cudaStreamLegacy: the current device's legacy stream), NULL when invalid. */
vgpu_stream *vgpu_stream_find(cudaStream_t handle);
/* The only place where operations are queued; on a stream that captures they become part of a graph instead. Applies the legacy
 * default stream's rules. position (may be NULL) gets the position after the operation. On failure the caller still owns
 * request->owned. */
cudaError_t vgpu_stream_queue(vgpu_stream *stream, cudaStream_t handle, const vgpu_request *request,
                              uint64_t *position);
/* Queues a wait for another stream's position, whose clock is given where clocks are kept. */
cudaError_t vgpu_stream_queue_wait(vgpu_stream *stream, cudaStream_t handle, vgpu_stream *on, uint64_t position,
                                   const vgpu_clock *clock);
/* Its number in diagnostics; 0 for a default stream. */
unsigned vgpu_stream_number(const vgpu_stream *stream);
/* Lets a stream's thread run one more entry (fuzz). */
void vgpu_stream_grant(vgpu_stream *stream);
/* The operation that the calling thread runs now, and its stream; NULL outside operations. */
const vgpu_queued *vgpu_running(vgpu_stream **stream);
/* Blocks until the stream has completed position. */
void vgpu_stream_wait(vgpu_stream *stream, uint64_t position);
static inline bool vgpu_stream_reached(vgpu_stream *stream, uint64_t position) {
    return atomic_load(&stream->completed) >= position;
}
/* Makes a stream object usable as the queue of device (pool streams at creation, legacy streams at device start). */
void vgpu_stream_prepare(void *stream);
/* True on a stream's own thread, where CUDA calls are not permitted. */
bool vgpu_on_stream_thread(void);
/* Ends the stream: queued work still runs, then the object is released. false when the handle was ended before. */
bool vgpu_stream_close(vgpu_stream *stream, cudaStream_t handle);

/* --- device.c ------------------------------------------------------------------------------------------------------- */

enum { VGPU_MAX_DEVICES = 64 };

typedef struct vgpu_device {
    _Atomic int error;            /* sticky; cudaSuccess while well */
    _Atomic uint64_t peers;       /* bit p: access to device p is enabled */
    pthread_mutex_t streams_lock; /* the list below */
    vgpu_stream *streams;         /* all but legacy; destroyed ones stay until drained */
    vgpu_stream legacy;
} vgpu_device;

/* Settings, read from the environment once. status: cudaSuccess, or cudaErrorInvalidDevice after one line on stderr. */
typedef struct vgpu_settings {
    cudaError_t status;
    int devices;
    size_t memory; /* bytes of each device */
    bool fuses;    /* layers that can be computed in one pass are */
    bool copies;   /* a device says that it has a copy engine */
} vgpu_settings;

const vgpu_settings *vgpu_get_settings(void);
/* The device, started; NULL for a bad number. */
vgpu_device *vgpu_device_get(int device);
int vgpu_current_device(void);
void vgpu_set_current_device(int device);

/* Starts the calling thread on the core of a device (device modulo cores), then leaves it to the scheduler. */
void vgpu_place_thread(int device);
/* Waits for everything queued on the device. */
void vgpu_device_wait(int device);
/* The device's sticky error. */
cudaError_t vgpu_device_error(int device);
void vgpu_device_fail(int device, cudaError_t status);

/* --- error.c -------------------------------------------------------------------------------------------------------- */

/* Start of every call that touches the current device: cudaErrorNotPermitted in a host function, bad settings, or the
 * device's sticky error. */
cudaError_t vgpu_enter(void);
/* End of every call: remembers a failure as the thread's last error. */
cudaError_t vgpu_leave(cudaError_t status);

#define VGPU_ENTER()                              \
    do {                                          \
        cudaError_t vgpu_entered_ = vgpu_enter(); \
        if (vgpu_entered_ != cudaSuccess) {       \
            return vgpu_leave(vgpu_entered_);     \
        }                                         \
    } while (0)

/* The same for calls that capturing forbids although they do not touch a stream. */
#define VGPU_ENTER_UNSAFE()                               \
    do {                                                  \
        VGPU_ENTER();                                     \
        cudaError_t vgpu_unsafe_ = vgpu_capture_unsafe(); \
        if (vgpu_unsafe_ != cudaSuccess) {                \
            return vgpu_leave(vgpu_unsafe_);              \
        }                                                 \
    } while (0)

/* --- wait.c --------------------------------------------------------------------------------------------------------- */

/* A stream that has run dry yields longer than others that wait: about as long as a host takes from one step to the next, which
 * then finds it awake. */
enum { VGPU_SPINS = 50, VGPU_YIELDS = 4, VGPU_IDLE_YIELDS = 200 };

static inline void vgpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Sleeps while *word == expected, among the threads of this process; may return early. */
void vgpu_sleep(_Atomic unsigned *word, unsigned expected);
void vgpu_wake(_Atomic unsigned *word, int sleepers);

/* --- event.c, memory.c, host_memory.c --------------------------------------------------------------------------------- */

/* Ends every event of the device. */
void vgpu_events_reset(int device);
/* The allocation whose block holds *pointer, guard pages included: its first byte and its size, 0 when the block is free. -1
 * for memory of no device. */
int vgpu_allocation(const void **pointer, size_t *size);
/* The device whose address range holds pointer, live allocation or not; -1 if none. */
int vgpu_address_device(const void *pointer);
/* Sets the protection (mprotect) of the device's whole memory, if there is some. */
void vgpu_memory_protect(int device, int protection);
/* Frees every allocation of the device. */
void vgpu_memory_reset(int device);
/* True when pointer lies in pinned memory; remaining (may be NULL) gets the bytes from it to the end of its range,
 * device (may be NULL) the device that was current when it was pinned. */
bool vgpu_host_pinned(const void *pointer, size_t *remaining, int *device);

#endif
