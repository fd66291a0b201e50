/* Launching a graph: its nodes are queued again, in the order in which they were captured, each captured stream's on a lane of
 * its own. The first lane is the stream that the graph is launched into, where their devices agree, so that a graph of one
 * stream needs no other; the other lanes are streams of the graph's own. A node that comes after one of another lane waits for
 * its position there. */
#include <stdlib.h>

#include "gpu/vgpu/graph.h"

/* A lane while a graph is launched, and its own stream, made when it is first needed. */
typedef struct lane {
    vgpu_stream *stream, *own;
    cudaStream_t handle, own_handle;
    size_t last; /* node + 1 of the lane; 0: none */
    bool joined; /* a node of the first lane waits for the last one */
} lane;

/* The nodes of other lanes that a node waits for: those that nothing before it in its lane has waited for. */
typedef struct waits {
    size_t first, count; /* in vgpu_exec.waited */
    bool awaited;        /* some node waits for this one */
} waits;

struct vgpu_exec {
    vgpu_body *body;
    lane *lanes;              /* [body->lanes] */
    waits *waits;             /* [body->count] */
    uint32_t *waited;         /* node indices */
    uint64_t *position;       /* [body->count]: where a node has been queued in the launch under way */
    vgpu_clock *clock;        /* [body->count], where clocks are kept: of the lane after it */
    vgpu_stream *last_stream; /* where it was launched last; NULL: nowhere yet */
    uint64_t last_position;
    vgpu_clock last_clock;
};

/* A node on its way into its lane. */
struct vgpu_replay {
    vgpu_exec *exec;
    size_t node;
};

/* --- planning --------------------------------------------------------------------------------------------------------- */

/* Which nodes each node must wait for. seen[a * lanes + b]: node + 1 of lane b up to which lane a has waited. */
static void plan(vgpu_exec *exec, size_t *seen) {
    const vgpu_body *body = exec->body;
    size_t used = 0;
    for (size_t n = 0; n < body->count; n++) {
        const vgpu_node *node = &body->nodes[n];
        size_t *row = &seen[node->lane * body->lanes];
        exec->waits[n].first = used;
        for (size_t i = 0; i < node->before.count; i++) {
            size_t d = node->before.list[i];
            size_t other = body->nodes[d].lane;
            if (other != node->lane && row[other] < d + 1) {
                row[other] = d + 1;
                exec->waited[used] = (uint32_t)d;
                used++;
                exec->waits[d].awaited = true;
            }
        }
        exec->waits[n].count = used - exec->waits[n].first;
        exec->lanes[node->lane].last = n + 1;
    }
    for (size_t k = 0; k < body->lanes; k++) {
        exec->lanes[k].joined = seen[k] == exec->lanes[k].last;
    }
}

cudaError_t vgpu_exec_open(vgpu_body *body, vgpu_exec **out) {
    size_t edges = 0;
    for (size_t n = 0; n < body->count; n++) {
        edges += body->nodes[n].before.count;
    }
    vgpu_exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL) {
        vgpu_body_release(body);
        return cudaErrorMemoryAllocation;
    }
    exec->body = body;
    exec->lanes = calloc(body->lanes, sizeof *exec->lanes);
    exec->waits = calloc(body->count + 1, sizeof *exec->waits);
    exec->waited = calloc(edges + 1, sizeof *exec->waited);
    exec->position = calloc(body->count + 1, sizeof *exec->position);
    exec->clock = calloc(body->count + 1, sizeof *exec->clock);
    size_t *seen = calloc(body->lanes * body->lanes, sizeof *seen);
    bool whole = exec->lanes != NULL && exec->waits != NULL && exec->waited != NULL && exec->position != NULL &&
                 exec->clock != NULL && seen != NULL;
    if (whole) {
        plan(exec, seen);
        *out = exec;
    } else {
        vgpu_exec_close(exec);
    }
    free(seen);
    return whole ? cudaSuccess : cudaErrorMemoryAllocation;
}

static void free_clocks(vgpu_exec *exec) {
    for (size_t n = 0; vgpu_mode.sched == VGPU_CHECK && exec->clock != NULL && n < exec->body->count; n++) {
        vgpu_clock_free(&exec->clock[n]);
    }
}

void vgpu_exec_close(vgpu_exec *exec) {
    for (size_t k = 0; exec->lanes != NULL && k < exec->body->lanes; k++) {
        if (exec->lanes[k].own != NULL) {
            vgpu_stream_close(exec->lanes[k].own, exec->lanes[k].own_handle);
        }
    }
    free_clocks(exec);
    vgpu_clock_free(&exec->last_clock);
    free(exec->lanes);
    free(exec->waits);
    free(exec->waited);
    free(exec->position);
    free(exec->clock);
    vgpu_body_release(exec->body);
    free(exec);
}

/* --- launching -------------------------------------------------------------------------------------------------------- */

static cudaError_t open_lane(lane *l, int device) {
    if (l->own == NULL) {
        int before = vgpu_current_device();
        vgpu_set_current_device(device);
        cudaError_t status = cudaStreamCreateWithFlags(&l->own_handle, cudaStreamNonBlocking);
        vgpu_set_current_device(before);
        if (status != cudaSuccess) {
            return status;
        }
        l->own = vgpu_stream_find(l->own_handle);
    }
    l->stream = l->own;
    l->handle = l->own_handle;
    return cudaSuccess;
}

static cudaError_t open_lanes(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle) {
    bool first_in_place = exec->body->devices[0] == stream->device;
    for (size_t k = 0; k < exec->body->lanes; k++) {
        lane *l = &exec->lanes[k];
        if (k == 0 && first_in_place) {
            l->stream = stream;
            l->handle = handle;
        } else if (l->last > 0) {
            cudaError_t status = open_lane(l, exec->body->devices[k]);
            if (status != cudaSuccess) {
                return status;
            }
        }
    }
    return cudaSuccess;
}

cudaError_t vgpu_replay_queue(const struct vgpu_replay *replay, const void *payload, const vgpu_joint *joint) {
    vgpu_exec *exec = replay->exec;
    const vgpu_node *node = &exec->body->nodes[replay->node];
    const lane *l = &exec->lanes[node->lane];
    vgpu_request request = {.name = node->name,
                            .run = node->run,
                            .payload = payload,
                            .bytes = node->bytes,
                            .kind = node->kind,
                            .joint = *joint,
                            .access = node->access,
                            .access_count = node->access_count};
    bool awaited = exec->waits[replay->node].awaited || l->last == replay->node + 1;
    if (awaited && vgpu_mode.sched == VGPU_CHECK) {
        vgpu_clock_free(&exec->clock[replay->node]);
        request.record = &exec->clock[replay->node];
    }
    return vgpu_stream_queue(l->stream, l->handle, &request, &exec->position[replay->node]);
}

/* The place of the stream from which on a graph runs. */
typedef struct start {
    vgpu_stream *stream;
    uint64_t position;
    vgpu_clock clock;
} start;

static cudaError_t queue_node(vgpu_exec *exec, size_t n, const start *from) {
    const vgpu_node *node = &exec->body->nodes[n];
    const lane *l = &exec->lanes[node->lane];
    const waits *w = &exec->waits[n];
    cudaError_t status = vgpu_device_error(l->stream->device);
    if (status == cudaSuccess && node->before.count == 0 && l->stream != from->stream) {
        status = vgpu_stream_queue_wait(l->stream, l->handle, from->stream, from->position, &from->clock);
    }
    for (size_t i = 0; i < w->count && status == cudaSuccess; i++) {
        size_t d = exec->waited[w->first + i];
        vgpu_stream *other = exec->lanes[exec->body->nodes[d].lane].stream;
        status = vgpu_stream_queue_wait(l->stream, l->handle, other, exec->position[d], &exec->clock[d]);
    }
    if (status != cudaSuccess) {
        return status;
    }
    struct vgpu_replay replay = {exec, n};
    vgpu_place = node->place;
    if (node->joint.replay == NULL) {
        return vgpu_replay_queue(&replay, node->payload, &node->joint);
    }
    _Alignas(16) unsigned char payload[VGPU_PAYLOAD_BYTES];
    for (size_t i = 0; i < node->bytes; i++) {
        payload[i] = node->payload[i];
    }
    return node->joint.replay(payload, &replay);
}

/* What comes next in the stream waits for every lane. */
static cudaError_t join_lanes(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle) {
    cudaError_t status = cudaSuccess;
    bool first_in_place = exec->lanes[0].stream == stream;
    for (size_t k = 0; k < exec->body->lanes && status == cudaSuccess; k++) {
        const lane *l = &exec->lanes[k];
        if (l->last > 0 && l->stream != stream && !(l->joined && first_in_place)) {
            status = vgpu_stream_queue_wait(stream, handle, l->stream, exec->position[l->last - 1],
                                            &exec->clock[l->last - 1]);
        }
    }
    return status;
}

/* Waits for the launch before this one, and notes where this one starts. */
static cudaError_t begin_launch(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle, start *from) {
    cudaError_t status = vgpu_device_error(stream->device);
    if (status == cudaSuccess && exec->last_stream != NULL && exec->last_stream != stream) {
        status = vgpu_stream_queue_wait(stream, handle, exec->last_stream, exec->last_position, &exec->last_clock);
    }
    *from = (start){.stream = stream};
    if (status == cudaSuccess) {
        vgpu_request nothing = {.name = "graph", .record = &from->clock};
        status = vgpu_stream_queue(stream, handle, &nothing, &from->position);
    }
    return status;
}

static cudaError_t end_launch(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle) {
    cudaError_t status = join_lanes(exec, stream, handle);
    if (status == cudaSuccess) {
        vgpu_clock_free(&exec->last_clock);
        vgpu_request nothing = {.name = "graph", .record = &exec->last_clock};
        exec->last_stream = stream;
        status = vgpu_stream_queue(stream, handle, &nothing, &exec->last_position);
    }
    return status;
}

cudaError_t vgpu_exec_launch(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle) {
    start from;
    struct vgpu_place place = vgpu_place;
    cudaError_t status = begin_launch(exec, stream, handle, &from);
    status = status == cudaSuccess ? open_lanes(exec, stream, handle) : status;
    for (size_t n = 0; n < exec->body->count && status == cudaSuccess; n++) {
        status = queue_node(exec, n, &from);
    }
    status = status == cudaSuccess ? end_launch(exec, stream, handle) : status;
    vgpu_place = place;
    vgpu_clock_free(&from.clock);
    return status;
}
