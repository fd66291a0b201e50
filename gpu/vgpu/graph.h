/* Captures and graphs. While a stream captures, what would be queued on it becomes a node of a graph: graph_capture.c keeps the
 * books and refuses what CUDA refuses, graph_body.c holds the nodes, graph_calls.c has the calls, graph_launch.c queues the nodes
 * of a graph again. A launch goes through vgpu_stream_queue; in the modes that look at operations there (races, guards,
 * schedules) it does so for each node, so that they see those of a graph like any other. */
#ifndef LS_GPU_VGPU_GRAPH_H
#define LS_GPU_VGPU_GRAPH_H

#include "gpu/vgpu/runtime.h"

/* Nodes by their index in the graph. */
typedef struct vgpu_node_set {
    uint32_t *list; /* [count], owned */
    size_t count;
} vgpu_node_set;

/* One operation of a graph, as it was queued. */
typedef struct vgpu_node {
    const char *name;
    vgpu_operation run;
    vgpu_access *access; /* [access_count], owned */
    size_t access_count;
    vgpu_joint joint;
    vgpu_kind kind;
    struct vgpu_place place;
    size_t lane;          /* the stream that it was captured on */
    vgpu_node_set before; /* nodes that it comes after; all have smaller indices */
    size_t bytes;
    _Alignas(16) unsigned char payload[VGPU_PAYLOAD_BYTES];
} vgpu_node;

/* What capturing has made. Does not change any more once the capture has ended; shared by a graph and what is instantiated from
 * it. Lane 0 is the stream on which the capture began. */
typedef struct vgpu_body {
    _Atomic size_t references;
    vgpu_node *nodes; /* [count] */
    size_t count, capacity;
    int *devices; /* [lanes]: of the captured streams */
    size_t lanes;
} vgpu_body;

/* --- graph_body.c; false when memory is out ------------------------------------------------------------------------------- */

bool vgpu_node_set_add(vgpu_node_set *set, const vgpu_node_set *more);
void vgpu_node_set_free(vgpu_node_set *set);
/* Adds the request as a node of a lane. before is taken over, and empty then. */
bool vgpu_body_add(vgpu_body *body, size_t lane, vgpu_node_set *before, const vgpu_request *request);
void vgpu_body_release(vgpu_body *body);

/* What an event stands for that was recorded on a capturing stream. */
typedef struct vgpu_captured {
    uint64_t capture; /* 0: it was not */
    vgpu_node_set nodes;
} vgpu_captured;

void vgpu_captured_free(vgpu_captured *captured);
bool vgpu_captured_copy(vgpu_captured *to, const vgpu_captured *from);

/* Captures under way in this process: 0, the usual case, and nobody needs to ask further. */
extern _Atomic unsigned vgpu_captures;
static inline bool vgpu_capturing(void) {
    return atomic_load_explicit(&vgpu_captures, memory_order_relaxed) != 0;
}

/* --- graph_capture.c; each of these refuses what CUDA refuses, and then invalidates the captures concerned ------------------ */

/* vgpu_stream_queue asks first. *taken: the request has become a node, or the status says why it may not be queued. */
cudaError_t vgpu_capture_request(vgpu_stream *stream, const vgpu_request *request, bool *taken);
/* cudaEventRecord and cudaStreamWaitEvent ask likewise. out: what the event now stands for; the caller frees it. recorded: the
 * event has a record, which is no captured one unless event says so. */
cudaError_t vgpu_capture_record(vgpu_stream *stream, vgpu_captured *out, bool *taken);
cudaError_t vgpu_capture_wait(vgpu_stream *stream, const vgpu_captured *event, bool recorded, bool *taken);
/* A call that is unsafe while this thread, or any thread in global mode, captures. */
cudaError_t vgpu_capture_unsafe(void);
/* A call that synchronises with a stream, ends it or asks how far it is; with all streams of a device; with an event. */
cudaError_t vgpu_capture_asked_stream(vgpu_stream *stream);
cudaError_t vgpu_capture_asked_device(int device);
cudaError_t vgpu_capture_asked_event(const vgpu_captured *event);
/* A call that goes through the current device's legacy stream and waits for it. */
cudaError_t vgpu_capture_synchronous(void);
/* Ends the captures that a stream of the device takes part in. */
void vgpu_capture_reset(int device);

cudaError_t vgpu_capture_begin(vgpu_stream *stream, enum cudaStreamCaptureMode mode);
/* *body: the caller's one reference. */
cudaError_t vgpu_capture_end(vgpu_stream *stream, vgpu_body **body);
cudaError_t vgpu_capture_status(vgpu_stream *stream, enum cudaStreamCaptureStatus *out);
cudaError_t vgpu_capture_exchange_mode(enum cudaStreamCaptureMode *mode);

/* --- graph_launch.c ----------------------------------------------------------------------------------------------------- */

typedef struct vgpu_exec vgpu_exec;

/* Takes over one reference of body, also on failure. */
cudaError_t vgpu_exec_open(vgpu_body *body, vgpu_exec **out);
/* Work that is queued still runs. */
void vgpu_exec_close(vgpu_exec *exec);
cudaError_t vgpu_exec_launch(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle);

#endif
