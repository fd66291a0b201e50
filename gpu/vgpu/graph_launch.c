/* Launching a graph: its nodes are queued again, in the order in which they were captured, each captured stream's on a lane of
 * its own. The first lane is the stream that the graph is launched into, where their devices agree, so that a graph of one
 * stream needs no other; the other lanes are streams of the graph's own.
 *
 * Nodes that follow each other in a lane are queued as one item, which costs the host as much as a single operation. An item
 * begins at a node that waits for another lane, and ends after one that another lane waits for. Collectives, which get new
 * numbers, are items of their own; so is every node in the modes that look at each operation. */
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/graph.h"

/* A lane while a graph is launched, and its own stream, made when it is first needed. */
typedef struct lane {
    vgpu_stream *stream, *own;
    cudaStream_t handle, own_handle;
    uint64_t until; /* position of the item that was queued last, in whichever launch */
    size_t last;    /* item + 1 of the lane; 0: none */
    bool joined;    /* an item of the first lane waits for the last one */
    size_t open;    /* while planning: item + 1 that the lane's next node may continue; 0: none */
} lane;

typedef struct item {
    size_t lane, node;         /* its first node */
    size_t first, count;       /* in vgpu_exec.queued */
    size_t waits, waits_count; /* in vgpu_exec.waited: what it comes after in other lanes */
    bool root;                 /* comes after nothing in the graph */
    uint64_t position;         /* after it, in the launch under way */
    vgpu_clock clock;          /* likewise, where clocks are kept */
} item;

struct vgpu_exec {
    vgpu_exec *next; /* of those that were closed while they ran */
    vgpu_body *body;
    lane *lanes; /* [body->lanes] */
    item *items; /* [count] */
    size_t count;
    vgpu_queued *queued;      /* [body->count]: the nodes as a stream runs them, item by item */
    size_t *waited;           /* items */
    vgpu_stream *last_stream; /* where it was launched last; NULL: nowhere yet */
    uint64_t last_position;
    vgpu_clock last_clock;
};

struct vgpu_replay {
    vgpu_exec *exec;
    item *item;
};

/* Whether nodes may be queued several at a time. */
static bool in_batches(void) {
    return !vgpu_mode.inspects && vgpu_mode.sched != VGPU_FUZZ;
}

/* --- planning --------------------------------------------------------------------------------------------------------- */

/* Memory for planning. */
typedef struct sketch {
    size_t *seen;    /* [lanes][lanes]: node + 1 of a lane up to which another has waited */
    size_t *first;   /* [nodes + 1]: where a node's waits begin in vgpu_exec.waited; its last entry ends them */
    bool *awaited;   /* [nodes]: another lane waits for it */
    size_t *item_of; /* [nodes] */
} sketch;

/* The nodes of other lanes that each node waits for: those that nothing before it in its lane has waited for. */
static void find_waits(vgpu_exec *exec, sketch *s) {
    const vgpu_body *body = exec->body;
    size_t used = 0;
    for (size_t n = 0; n < body->count; n++) {
        const vgpu_node *node = &body->nodes[n];
        size_t *row = &s->seen[node->lane * body->lanes];
        s->first[n] = used;
        for (size_t i = 0; i < node->before.count; i++) {
            size_t d = node->before.list[i];
            size_t other = body->nodes[d].lane;
            if (other != node->lane && row[other] < d + 1) {
                row[other] = d + 1;
                s->awaited[d] = true;
                exec->waited[used] = d;
                used++;
            }
        }
    }
    s->first[body->count] = used;
}

/* Divides the nodes into items. */
static void make_items(vgpu_exec *exec, sketch *s) {
    const vgpu_body *body = exec->body;
    for (size_t n = 0; n < body->count; n++) {
        const vgpu_node *node = &body->nodes[n];
        lane *l = &exec->lanes[node->lane];
        bool alone = node->joint.replay != NULL || !in_batches();
        size_t waits = s->first[n + 1] - s->first[n];
        if (l->open == 0 || alone || waits > 0 || node->before.count == 0) {
            exec->items[exec->count] = (item){.lane = node->lane,
                                              .node = n,
                                              .waits = s->first[n],
                                              .waits_count = waits,
                                              .root = node->before.count == 0};
            exec->count++;
            l->open = exec->count;
        }
        s->item_of[n] = l->open - 1;
        exec->items[l->open - 1].count++;
        l->last = l->open;
        l->open = alone || s->awaited[n] ? 0 : l->open;
    }
    for (size_t i = 0; i < s->first[body->count]; i++) {
        exec->waited[i] = s->item_of[exec->waited[i]];
    }
    for (size_t k = 0; k < body->lanes; k++) {
        size_t seen = s->seen[k]; /* by the first lane */
        exec->lanes[k].joined = seen > 0 && s->item_of[seen - 1] + 1 == exec->lanes[k].last;
    }
}

/* The operations of each item, side by side. */
static void fill_items(vgpu_exec *exec, const sketch *s) {
    size_t used = 0;
    for (size_t i = 0; i < exec->count; i++) {
        exec->items[i].first = used;
        used += exec->items[i].count;
        exec->items[i].count = 0;
    }
    for (size_t n = 0; n < exec->body->count; n++) {
        const vgpu_node *node = &exec->body->nodes[n];
        item *it = &exec->items[s->item_of[n]];
        vgpu_queued *queued = &exec->queued[it->first + it->count];
        *queued = (vgpu_queued){.name = node->name, .run = node->run, .kind = node->kind, .place = node->place};
        memcpy(queued->payload, node->payload, node->bytes);
        it->count++;
    }
}

static bool plan(vgpu_exec *exec) {
    const vgpu_body *body = exec->body;
    size_t edges = 0;
    for (size_t n = 0; n < body->count; n++) {
        edges += body->nodes[n].before.count;
    }
    sketch k = {.seen = calloc(body->lanes * body->lanes, sizeof *k.seen),
                .first = calloc(body->count + 1, sizeof *k.first),
                .awaited = calloc(body->count + 1, sizeof *k.awaited),
                .item_of = calloc(body->count + 1, sizeof *k.item_of)};
    exec->lanes = calloc(body->lanes, sizeof *exec->lanes);
    exec->items = calloc(body->count + 1, sizeof *exec->items);
    exec->waited = calloc(edges + 1, sizeof *exec->waited);
    exec->queued = aligned_alloc(_Alignof(vgpu_queued), (body->count + 1) * sizeof *exec->queued);
    bool whole = k.seen != NULL && k.first != NULL && k.awaited != NULL && k.item_of != NULL && exec->lanes != NULL &&
                 exec->items != NULL && exec->waited != NULL && exec->queued != NULL;
    if (whole) {
        find_waits(exec, &k);
        make_items(exec, &k);
        fill_items(exec, &k);
    }
    free(k.seen);
    free(k.first);
    free(k.awaited);
    free(k.item_of);
    return whole;
}

/* --- opening and closing ---------------------------------------------------------------------------------------------- */

static pthread_mutex_t closed_lock = PTHREAD_MUTEX_INITIALIZER;
static vgpu_exec *closed; /* what streams may still run from */

static void destroy(vgpu_exec *exec) {
    for (size_t i = 0; i < exec->count; i++) {
        vgpu_clock_free(&exec->items[i].clock);
    }
    vgpu_clock_free(&exec->last_clock);
    free(exec->lanes);
    free(exec->items);
    free(exec->queued);
    free(exec->waited);
    vgpu_body_release(exec->body);
    free(exec);
}

/* By every lane, since a stream of a failed device waits for none. */
static bool finished(const vgpu_exec *exec) {
    bool all = true;
    for (size_t k = 0; k < exec->body->lanes; k++) {
        const lane *l = &exec->lanes[k];
        all = all && (l->stream == NULL || vgpu_stream_reached(l->stream, l->until));
    }
    return all;
}

/* Frees what was closed and has ended. */
static void sweep(void) {
    pthread_mutex_lock(&closed_lock);
    for (vgpu_exec **link = &closed; *link != NULL;) {
        vgpu_exec *exec = *link;
        if (finished(exec)) {
            *link = exec->next;
            destroy(exec);
        } else {
            link = &exec->next;
        }
    }
    pthread_mutex_unlock(&closed_lock);
}

cudaError_t vgpu_exec_open(vgpu_body *body, vgpu_exec **out) {
    sweep();
    vgpu_exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL) {
        vgpu_body_release(body);
        return cudaErrorMemoryAllocation;
    }
    exec->body = body;
    if (!plan(exec)) {
        destroy(exec);
        return cudaErrorMemoryAllocation;
    }
    *out = exec;
    return cudaSuccess;
}

void vgpu_exec_close(vgpu_exec *exec) {
    for (size_t k = 0; k < exec->body->lanes; k++) {
        if (exec->lanes[k].own != NULL) {
            vgpu_stream_close(exec->lanes[k].own, exec->lanes[k].own_handle);
        }
    }
    pthread_mutex_lock(&closed_lock);
    exec->next = closed;
    closed = exec;
    pthread_mutex_unlock(&closed_lock);
    sweep();
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

/* from: of the launch; by then all of an earlier launch has ended, wherever it was. */
static cudaError_t open_lanes(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle, uint64_t from) {
    bool first_in_place = exec->body->devices[0] == stream->device;
    for (size_t k = 0; k < exec->body->lanes; k++) {
        lane *l = &exec->lanes[k];
        const vgpu_stream *before = l->stream;
        if (k == 0 && first_in_place) {
            l->stream = stream;
            l->handle = handle;
        } else if (l->last > 0) {
            cudaError_t status = open_lane(l, exec->body->devices[k]);
            if (status != cudaSuccess) {
                return status;
            }
        }
        if (l->stream != before) {
            l->until = k == 0 && first_in_place ? from : 0;
        }
    }
    return cudaSuccess;
}

cudaError_t vgpu_replay_queue(const struct vgpu_replay *replay, const void *payload, const vgpu_joint *joint) {
    item *it = replay->item;
    const vgpu_node *node = &replay->exec->body->nodes[it->node];
    const lane *l = &replay->exec->lanes[it->lane];
    vgpu_request request = {.name = node->name,
                            .run = node->run,
                            .payload = payload,
                            .bytes = node->bytes,
                            .kind = node->kind,
                            .joint = *joint,
                            .access = node->access,
                            .access_count = node->access_count};
    if (vgpu_mode.sched == VGPU_CHECK) {
        vgpu_clock_free(&it->clock);
        request.record = &it->clock;
    }
    vgpu_place = node->place;
    return vgpu_stream_queue(l->stream, l->handle, &request, &it->position);
}

/* The operations of an item as one. */
static cudaError_t queue_batch(vgpu_exec *exec, item *it) {
    const lane *l = &exec->lanes[it->lane];
    vgpu_queued *first = &exec->queued[it->first];
    vgpu_request request = {.name = "graph", .run = first->run, .kind = first->kind};
    request.batch = first;
    request.batch_count = it->count;
    return vgpu_stream_queue(l->stream, l->handle, &request, &it->position);
}

/* Where the stream was when the launch began. */
typedef struct start {
    vgpu_stream *stream;
    uint64_t position;
    vgpu_clock clock;
} start;

/* Queues the item's operations, which have nothing more to wait for. */
static cudaError_t queue_operations(vgpu_exec *exec, item *it) {
    const vgpu_node *node = &exec->body->nodes[it->node];
    struct vgpu_replay replay = {exec, it};
    if (node->joint.replay == NULL) {
        return in_batches() ? queue_batch(exec, it) : vgpu_replay_queue(&replay, node->payload, &node->joint);
    }
    _Alignas(16) unsigned char payload[VGPU_PAYLOAD_BYTES];
    memcpy(payload, node->payload, node->bytes);
    return node->joint.replay(payload, &replay);
}

static cudaError_t queue_item(vgpu_exec *exec, item *it, const start *from) {
    lane *l = &exec->lanes[it->lane];
    cudaError_t status = vgpu_device_error(l->stream->device);
    if (status == cudaSuccess && it->root && l->stream != from->stream) {
        status = vgpu_stream_queue_wait(l->stream, l->handle, from->stream, from->position, &from->clock);
    }
    for (size_t i = 0; i < it->waits_count && status == cudaSuccess; i++) {
        const item *other = &exec->items[exec->waited[it->waits + i]];
        status = vgpu_stream_queue_wait(l->stream, l->handle, exec->lanes[other->lane].stream, other->position,
                                        &other->clock);
    }
    status = status == cudaSuccess ? queue_operations(exec, it) : status;
    l->until = status == cudaSuccess ? it->position : l->until;
    return status;
}

/* What comes next in the stream waits for every lane. */
static cudaError_t join_lanes(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle) {
    cudaError_t status = cudaSuccess;
    bool first_in_place = exec->lanes[0].stream == stream;
    for (size_t k = 0; k < exec->body->lanes && status == cudaSuccess; k++) {
        const lane *l = &exec->lanes[k];
        if (l->last > 0 && l->stream != stream && !(l->joined && first_in_place)) {
            const item *last = &exec->items[l->last - 1];
            status = vgpu_stream_queue_wait(stream, handle, l->stream, last->position, &last->clock);
        }
    }
    return status;
}

/* A place in the stream: after all that is queued there. */
static cudaError_t note_place(vgpu_stream *stream, cudaStream_t handle, uint64_t *position, vgpu_clock *clock) {
    vgpu_request nothing = {.name = "graph", .record = clock};
    return vgpu_stream_queue(stream, handle, &nothing, position);
}

/* Waits for the launch before this one, and notes where this one starts. */
static cudaError_t begin_launch(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle, start *from) {
    cudaError_t status = vgpu_device_error(stream->device);
    if (status == cudaSuccess && exec->last_stream != NULL && exec->last_stream != stream) {
        status = vgpu_stream_queue_wait(stream, handle, exec->last_stream, exec->last_position, &exec->last_clock);
    }
    *from = (start){.stream = stream};
    return status == cudaSuccess ? note_place(stream, handle, &from->position, &from->clock) : status;
}

static cudaError_t end_launch(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle) {
    cudaError_t status = join_lanes(exec, stream, handle);
    vgpu_clock_free(&exec->last_clock);
    exec->last_stream = stream;
    cudaError_t noted = note_place(stream, handle, &exec->last_position, &exec->last_clock);
    return status == cudaSuccess ? noted : status;
}

cudaError_t vgpu_exec_launch(vgpu_exec *exec, vgpu_stream *stream, cudaStream_t handle) {
    start from;
    struct vgpu_place place = vgpu_place;
    cudaError_t status = begin_launch(exec, stream, handle, &from);
    if (status == cudaSuccess) {
        status = open_lanes(exec, stream, handle, from.position);
        for (size_t i = 0; i < exec->count && status == cudaSuccess; i++) {
            status = queue_item(exec, &exec->items[i], &from);
        }
        cudaError_t ended = end_launch(exec, stream, handle); /* also after a failure: some of it runs */
        status = status == cudaSuccess ? ended : status;
    }
    vgpu_place = place;
    vgpu_clock_free(&from.clock);
    return status;
}
