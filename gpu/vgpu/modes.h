/* The modes that find races and stray accesses (docs/races.md), as stream.c, the calls and NCCL use them. All are off by
 * default; then each place that asks pays for the test of one byte. */
#ifndef LS_GPU_VGPU_MODES_H
#define LS_GPU_VGPU_MODES_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/vgpu/access.h"
#include "gpu/vgpu/clock.h"

typedef enum vgpu_sched { VGPU_ASYNC, VGPU_CHECK, VGPU_FUZZ, VGPU_ISOLATE } vgpu_sched;

/* Set once, with the settings. */
typedef struct vgpu_modes {
    vgpu_sched sched;
    bool guard;
    bool delays;
    bool inspects; /* requests are looked at before they are queued: check, isolate or guard */
    uint64_t seed; /* of fuzz */
} vgpu_modes;
extern vgpu_modes vgpu_mode;

typedef enum vgpu_kind {
    VGPU_NOTHING, /* asks for a position only */
    VGPU_KERNEL,
    VGPU_COPY,
    VGPU_PEER_COPY, /* between devices that need not reach one another */
    VGPU_FILL,
    VGPU_COLLECTIVE,
    VGPU_EVENT,
    VGPU_HOST_FUNCTION
} vgpu_kind;

struct vgpu_replay;

/* A collective's part of one rank: the parts of all ranks with the same clique and sequence are one joint operation. */
typedef struct vgpu_joint {
    const void *clique; /* NULL: no part of anything */
    unsigned sequence;
    int ranks;         /* of the communicator */
    int parts;         /* of them in this process */
    bool gives, takes; /* results depend on this rank's work before it; its work after it depends on others */
    /* Starts the part again, under a number of its own, when a graph that holds it is launched: vgpu_replay_queue with what it
     * makes of payload, a copy of the captured one. */
    cudaError_t (*replay)(void *payload, const struct vgpu_replay *replay);
} vgpu_joint;

struct vgpu_stream;
struct vgpu_request;
struct vgpu_queued;

/* Called with the stream's lock held, before a request is queued; guard and check. A finding has been printed and is the
 * device's error. Fills request->record. */
cudaError_t vgpu_inspect(struct vgpu_stream *stream, const struct vgpu_request *request);
/* What this thread has declared for its next operation; count 0 when nothing. Forgets it. */
size_t vgpu_take_declaration(const vgpu_access **list);
/* Writes "conv forward (stream 3 of device 0, reference/layers/conv.c:24)". */
void vgpu_describe_operation(char *text, size_t size, const char *name, int device, unsigned stream,
                             struct vgpu_place place);

/* A source file as seen from the root of the tree: the compiler names it from the build folder. */
const char *vgpu_source_name(const char *file);
/* vgpu_submit for operations that are no kernels. */
cudaError_t vgpu_submit_kind(cudaStream_t stream, const char *name, cudaError_t (*run)(void *payload),
                             const void *payload, size_t bytes, vgpu_kind kind, const vgpu_joint *joint);

/* --- graph_capture.c, graph_launch.c: what NCCL asks of captures -------------------------------------------------------- */

/* Whether what is queued on the stream becomes part of a graph and is not run. */
bool vgpu_stream_captures(cudaStream_t stream);
/* Queues a captured operation in its place among those of a graph that is being launched. */
cudaError_t vgpu_replay_queue(const struct vgpu_replay *replay, const void *payload, const vgpu_joint *joint);

/* --- sched_check.c: what has happened before what; calls do nothing unless sched is VGPU_CHECK ------------------------- */

cudaError_t vgpu_check_queue(struct vgpu_stream *stream, const struct vgpu_request *request);
/* The stream waits for what the clock of an event stands for. */
void vgpu_check_wait(struct vgpu_stream *stream, const vgpu_clock *event);
/* The calling thread has waited for what the clock stands for. */
void vgpu_check_joined(const vgpu_clock *clock);
/* The calling thread waits for all that has been queued on the device. */
void vgpu_check_device_wait(int device);
void vgpu_check_stream_created(struct vgpu_stream *stream);
/* Memory begins, or ends, at once for all: what was known about the range is forgotten. At its end work that the calling
 * thread has not waited for is a finding, which is the result. */
cudaError_t vgpu_check_memory_begins(const void *pointer, size_t size);
cudaError_t vgpu_check_memory_ends(const void *pointer, size_t size);
/* The host thread is about to use pinned memory. */
cudaError_t vgpu_check_host_access(const void *pointer, size_t size, unsigned how);

/* --- sched_fuzz.c: another order for each seed --------------------------------------------------------------------------- */

void vgpu_fuzz_wait(struct vgpu_stream *stream, uint64_t position);
void vgpu_fuzz_opened(struct vgpu_stream *stream); /* its thread has started */
void vgpu_fuzz_submitted(struct vgpu_stream *stream, const struct vgpu_request *request, uint64_t position);
void vgpu_fuzz_completed(struct vgpu_stream *stream);
void vgpu_fuzz_asked(void); /* a query found something not ready */

/* --- isolate.c, delay.c, guard.c ------------------------------------------------------------------------------------------ */

cudaError_t vgpu_isolate_run(struct vgpu_queued *queued, int device);
/* False, after one line, when text is no list of delays. */
bool vgpu_delay_parse(const char *text);
void vgpu_delay(vgpu_kind kind, const char *name, int device);

#endif
