/* A collective as it runs on its stream's thread. Every rank announces what it does in the control block, checks that all do
 * the same, moves its part of the data over the shared mappings, and waits until all parts have been moved. The part of a rank is
 * reduced over all ranks in the order 0..n-1, so every element has one order of summation and all ranks get its bits.
 * A small part is moved by whoever claims it first: a rank that came early and sleeps takes longer to wake up than the part
 * takes, so the last to come, for whom everything is there, does not wait for it.
 * Small allreduces put their data into the announcement: each rank reduces all of it for itself, and nothing is waited for. */
#include <stdio.h>
#include <string.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/nccl_internal.h"

enum {
    SPINS = 50,
    YIELDS = 100,
    CLAIMED_BYTES =
        128 * 1024 /* of all others' parts: of two ranks some 15 us, where a thread takes 20 to 60 to wake up */
};

/* Ample for one part: at 1 GB/s, a tenth of what a core moves, 2 GB. */
static const unsigned long long MOVE_NS = 2000000000ULL;

const char *nccl_kind_name(unsigned kind) {
    static const char *const names[] = {[NCCL_ALLREDUCE] = "allreduce",
                                        [NCCL_BROADCAST] = "broadcast",
                                        [NCCL_REDUCE] = "reduce",
                                        [NCCL_ALLGATHER] = "all-gather",
                                        [NCCL_REDUCESCATTER] = "reduce-scatter"};
    return kind >= NCCL_ALLREDUCE && kind <= NCCL_REDUCESCATTER ? names[kind] : "unknown collective";
}

static bool has_op(unsigned kind) {
    return kind == NCCL_ALLREDUCE || kind == NCCL_REDUCE || kind == NCCL_REDUCESCATTER;
}

void nccl_describe(char *text, size_t size, const nccl_descriptor *what) {
    char root[32] = "";
    if (what->kind == NCCL_BROADCAST || what->kind == NCCL_REDUCE) {
        snprintf(root, sizeof root, " root %u", what->root);
    }
    snprintf(text, size, "%s of %llu %s%s%s%s%s", nccl_kind_name(what->kind), (unsigned long long)what->count,
             nccl_dtype_name(what->dtype), has_op(what->kind) ? " " : "",
             has_op(what->kind) ? nccl_op_name(what->op) : "", root, what->registered ? " in registered memory" : "");
}

static void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* The failure that ends this operation, if any, kept as the communicator's. */
static ncclResult_t check_failure(ncclComm_t comm) {
    char text[NCCL_TEXT_BYTES];
    ncclResult_t result = nccl_clique_status(comm->clique, text);
    if (result != ncclSuccess) {
        pthread_mutex_lock(&comm->lock);
        if (atomic_load(&comm->async_error) == ncclSuccess) {
            memcpy(comm->error_text, text, sizeof text);
            atomic_store(&comm->async_error, (int)result);
        }
        pthread_mutex_unlock(&comm->lock);
    } else if (atomic_load(&comm->aborted)) {
        result = ncclRemoteError;
    }
    return result;
}

/* What a rank waits for: a word in a slot to reach the operation's number, by what peer does. */
typedef struct wait {
    const nccl_operation *operation;
    int peer;
    nccl_slot *slot;
    _Atomic unsigned *word;
    const char *verb; /* what the peer has not done when this never ends */
} wait;

static bool reached(const wait *w) {
    return (int)(atomic_load(w->word) - w->operation->sequence) >= 0;
}

static void give_up(const wait *w, const char *why) {
    const nccl_operation *o = w->operation;
    /* Who says it, and so not the peer itself: the line is left out where the peer has said why it ended. */
    ls_error_set_rank(o->comm->rank, o->comm->device);
    nccl_clique_fail(o->comm->clique, ncclRemoteError, "rank %d (pid %d) did not %s %s #%u%s", w->peer,
                     (int)o->comm->clique->peers[w->peer].pid, w->verb, nccl_kind_name(o->what.kind), o->sequence, why);
    ls_error_set_rank(-1, -1);
}

/* Sleeps until the word is reached; looks around every NCCL_SLICE_NS. */
static ncclResult_t sleep_for(const wait *w) {
    ncclComm_t comm = w->operation->comm;
    const nccl_slot *peer = &comm->clique->control->slots[w->peer];
    const unsigned long long end = vgpu_now_ns() + comm->timeout_ns;
    ncclResult_t result = ncclSuccess;
    atomic_fetch_add(&w->slot->sleepers, 1);
    while (!reached(w) && (result = check_failure(comm)) == ncclSuccess) {
        const unsigned long long now = vgpu_now_ns();
        const unsigned seen = atomic_load(w->word);
        /* In this order: a peer may do its part and then end. */
        bool ended = nccl_peer_ended(&comm->clique->peers[w->peer]), left = atomic_load(&peer->left) != 0;
        if (reached(w)) {
            break;
        }
        if (ended) {
            give_up(w, ": its process has ended");
        } else if (left) {
            give_up(w, ": it has destroyed its communicator");
        } else if (now >= end) {
            char why[64];
            snprintf(why, sizeof why, " within %g s", (double)comm->timeout_ns / 1e9);
            give_up(w, why);
        } else {
            unsigned long long slice = now + NCCL_SLICE_NS;
            vgpu_wait_while(w->word, seen, slice < end ? slice : end);
        }
    }
    atomic_fetch_sub(&w->slot->sleepers, 1);
    return result;
}

static ncclResult_t wait_for(const wait *w) {
    if (reached(w)) {
        return ncclSuccess;
    }
    /* On the same core a peer cannot arrive while this rank spins. */
    const bool shared = nccl_shares_core(w->operation, w->peer);
    if (shared) {
        nccl_spread(w->operation);
    }
    for (int i = 0; !shared && i < SPINS; i++) {
        if (reached(w)) {
            return ncclSuccess;
        }
        pause_core();
    }
    for (int i = 0; i < YIELDS && vgpu_yield(); i++) {
        if (reached(w)) {
            return ncclSuccess;
        }
    }
    return sleep_for(w);
}

/* The counterpart of sleep_for: a peer either sees the new value or is seen here as a sleeper. */
static void announce(nccl_slot *slot, _Atomic unsigned *word, unsigned value) {
    atomic_store(word, value);
    if (atomic_load(&slot->sleepers) != 0) {
        vgpu_wake_all(word);
    }
}

static bool is_inline(const nccl_descriptor *what) {
    return what->kind == NCCL_ALLREDUCE && what->count <= NCCL_INLINE_BYTES / nccl_dtype_size(what->dtype);
}

static void publish(const nccl_operation *o) {
    ncclComm_t comm = o->comm;
    nccl_slot *slot = &comm->clique->control->slots[comm->rank];
    nccl_entry *entry = &slot->entry[o->sequence & 1];
    entry->what = o->what;
    if (o->what.scalar_is_pointer) {
        memcpy(&entry->what.scalar, (const void *)(uintptr_t)o->what.scalar, nccl_dtype_size(o->what.dtype));
    }
    if (is_inline(&o->what) && o->what.count > 0) {
        memcpy(entry->data, comm->clique->peers[comm->rank].base + o->what.send,
               o->what.count * nccl_dtype_size(o->what.dtype));
    }
    atomic_store_explicit(&slot->core, nccl_core(), memory_order_relaxed);
    announce(slot, &entry->sequence, o->sequence);
}

static bool agree(const nccl_descriptor *a, const nccl_descriptor *b) {
    return a->kind == b->kind && a->registered == b->registered && a->dtype == b->dtype && a->op == b->op &&
           a->root == b->root && a->count == b->count;
}

static ncclResult_t check_agreement(const nccl_operation *o) {
    nccl_clique *clique = o->comm->clique;
    const nccl_slot *slots = clique->control->slots;
    const nccl_descriptor *first = &slots[0].entry[o->sequence & 1].what;
    for (int rank = 1; rank < o->comm->ranks; rank++) {
        const nccl_descriptor *other = &slots[rank].entry[o->sequence & 1].what;
        if (!agree(first, other)) {
            char a[128], b[128];
            nccl_describe(a, sizeof a, first);
            nccl_describe(b, sizeof b, other);
            nccl_clique_fail(
                clique, ncclInvalidUsage,
                "collective #%u differs between ranks: rank 0 (pid %d) calls %s, rank %d (pid %d) calls %s",
                o->sequence, (int)clique->peers[0].pid, a, rank, (int)clique->peers[rank].pid, b);
            return check_failure(o->comm);
        }
    }
    return ncclSuccess;
}

/* Until every rank has announced the operation. */
static ncclResult_t wait_all_here(const nccl_operation *o) {
    ncclComm_t comm = o->comm;
    ncclResult_t result = ncclSuccess;
    for (int rank = 0; rank < comm->ranks && result == ncclSuccess; rank++) {
        nccl_slot *slot = &comm->clique->control->slots[rank];
        const wait w = {o, rank, slot, &slot->entry[o->sequence & 1].sequence, "reach"};
        result = wait_for(&w);
    }
    return result;
}

/* Bytes of results in a rank's part; an allreduce stores each in the buffers of all ranks. */
static size_t part_bytes(const nccl_operation *o) {
    const size_t bytes = o->what.count * nccl_dtype_size(o->what.dtype);
    return o->what.kind == NCCL_REDUCE || o->what.kind == NCCL_ALLREDUCE ? bytes / (size_t)o->comm->ranks
           : o->what.kind == NCCL_ALLGATHER                              ? bytes * (size_t)o->comm->ranks
                                                                         : bytes;
}

static bool has_claims(const nccl_operation *o) {
    return part_bytes(o) * (size_t)(o->comm->ranks - 1) <= CLAIMED_BYTES;
}

/* Takes a rank's part of this operation; false when somebody else has it. No rank is at a later operation, which would wait for
 * this rank to come. */
static bool claim(const nccl_operation *o, int part) {
    _Atomic uint64_t *word = &o->comm->clique->control->slots[part].claim;
    uint64_t seen = atomic_load(word);
    return seen >> 32 != o->sequence &&
           atomic_compare_exchange_strong(word, &seen, (uint64_t)o->sequence << 32 | (unsigned)o->comm->rank);
}

/* Until every part has been moved: by its rank, or by who has claimed it. */
static ncclResult_t wait_all_moved(const nccl_operation *o) {
    ncclComm_t comm = o->comm;
    const bool claimed = has_claims(o);
    ncclResult_t result = ncclSuccess;
    for (int part = 0; part < comm->ranks && result == ncclSuccess; part++) {
        nccl_slot *slot = &comm->clique->control->slots[part];
        const int mover = claimed ? (int)(uint32_t)atomic_load(&slot->claim) : part;
        const wait w = {o, mover, slot, &slot->done, "finish"};
        result = wait_for(&w);
    }
    return result;
}

/* What all ranks have announced, by rank. */
typedef struct terms {
    const char *sources[NCCL_RANKS_MAX];
    char *targets[NCCL_RANKS_MAX];
    uint64_t scalars[NCCL_RANKS_MAX];
} terms;

static void find_terms(const nccl_operation *o, terms *t) {
    const nccl_clique *clique = o->comm->clique;
    for (int rank = 0; rank < o->comm->ranks; rank++) {
        const nccl_entry *entry = &clique->control->slots[rank].entry[o->sequence & 1];
        char *base = clique->peers[rank].base;
        t->sources[rank] = is_inline(&o->what) ? (const char *)entry->data : base + entry->what.send;
        t->targets[rank] = base + entry->what.receive;
        t->scalars[rank] = entry->what.scalar;
    }
}

/* Reduces elements first..first+count of the sources and stores them at element `to` of each target. */
static void reduce_part(const nccl_operation *o, const terms *t, size_t first, size_t count, char *const *targets,
                        size_t target_count, size_t to) {
    alignas(64) unsigned char chunk[NCCL_CHUNK_BYTES];
    const size_t size = nccl_dtype_size(o->what.dtype), step = NCCL_CHUNK_BYTES / size, ranks = (size_t)o->comm->ranks;
    const void *at[NCCL_RANKS_MAX];
    for (size_t start = 0; start < count; start += step) {
        size_t n = count - start < step ? count - start : step;
        for (size_t rank = 0; rank < ranks; rank++) {
            at[rank] = t->sources[rank] + (first + start) * size;
        }
        nccl_reduce_chunk(o->what.dtype, o->what.op, ranks, at, t->scalars, n, chunk);
        for (size_t i = 0; i < target_count; i++) {
            memcpy(targets[i] + (to + start) * size, chunk, n * size);
        }
    }
}

/* Allreduce, reduce: a rank's share of the elements, in whole cache lines, to every receiver. */
static void reduce_share(const nccl_operation *o, const terms *t, int part, char *const *targets, size_t target_count) {
    const size_t size = nccl_dtype_size(o->what.dtype), line = 64 / size;
    const size_t ranks = (size_t)o->comm->ranks, count = o->what.count;
    size_t share = count / ranks + (count % ranks != 0);
    share = (share + line - 1) / line * line;
    const size_t first = share * (size_t)part;
    if (first >= count) {
        return;
    }
    const size_t mine = count - first < share ? count - first : share;
    if (ranks != 2 || target_count != 2 ||
        !nccl_reduce_two(&o->what, o->comm->rank, t->sources, t->scalars, targets, first, mine)) {
        reduce_part(o, t, first, mine, targets, target_count, first);
    }
}

static void copy_elements(const nccl_operation *o, char *to, const char *from) {
    if (to != from) {
        memcpy(to, from, o->what.count * nccl_dtype_size(o->what.dtype));
    }
}

/* A rank's part, whoever moves it. */
static void move_part(const nccl_operation *o, const terms *t, int part) {
    const int ranks = o->comm->ranks, root = (int)o->what.root;
    const size_t bytes = o->what.count * nccl_dtype_size(o->what.dtype);
    switch ((nccl_kind)o->what.kind) {
    case NCCL_ALLREDUCE:
        reduce_share(o, t, part, t->targets, (size_t)ranks);
        break;
    case NCCL_REDUCE:
        reduce_share(o, t, part, &t->targets[root], 1);
        break;
    case NCCL_BROADCAST:
        copy_elements(o, t->targets[part], t->sources[root]);
        break;
    case NCCL_ALLGATHER:
        for (int rank = 0; rank < ranks; rank++) {
            copy_elements(o, t->targets[part] + (size_t)rank * bytes, t->sources[rank]);
        }
        break;
    case NCCL_REDUCESCATTER:
        reduce_part(o, t, (size_t)part * o->what.count, o->what.count, &t->targets[part], 1, 0);
        break;
    }
    nccl_slot *slot = &o->comm->clique->control->slots[part];
    announce(slot, &slot->done, o->sequence);
}

/* Of one rank, in place: the result is there already when elements keep their values. */
static bool changes_nothing(const nccl_operation *o, const terms *t) {
    if (o->comm->ranks != 1 || t->sources[0] != t->targets[0] || !has_op(o->what.kind)) {
        return false;
    }
    float factor = 0;
    double wide_factor = 0;
    memcpy(&factor, &t->scalars[0], sizeof factor);
    memcpy(&wide_factor, &t->scalars[0], sizeof wide_factor);
    return o->what.op != NCCL_PREMUL_SUM || (o->what.dtype == ncclFloat32 && factor == 1.0F) ||
           (o->what.dtype == ncclFloat64 && wide_factor == 1.0);
}

/* This rank's part first: each then finds its own unless it is late. */
static void move_parts(const nccl_operation *o) {
    const int ranks = o->comm->ranks, me = o->comm->rank;
    terms t;
    find_terms(o, &t);
    if (changes_nothing(o, &t)) {
        nccl_slot *slot = &o->comm->clique->control->slots[me];
        announce(slot, &slot->done, o->sequence);
        return;
    }
    if (!has_claims(o)) {
        move_part(o, &t, me);
        return;
    }
    for (int i = 0; i < ranks; i++) {
        const int part = (me + i) % ranks;
        if (claim(o, part)) {
            move_part(o, &t, part);
        }
    }
}

/* A rank that aborts frees its buffers. It records the failure and then looks who is moving; here it is the other way round, so one
 * of the two sees the other. */
static ncclResult_t move_data(const nccl_operation *o) {
    _Atomic unsigned *moving = &o->comm->clique->control->slots[o->comm->rank].moving;
    atomic_store(moving, 1);
    ncclResult_t result = check_failure(o->comm);
    if (result == ncclSuccess) {
        move_parts(o);
    }
    atomic_store_explicit(moving, 0, memory_order_release);
    if (atomic_load(&o->comm->clique->control->failure) != NCCL_WELL) {
        vgpu_wake_all(moving);
    }
    return result;
}

ncclResult_t nccl_await_movers(ncclComm_t comm) {
    const unsigned long long end = vgpu_now_ns() + MOVE_NS;
    for (int rank = 0; rank < comm->ranks; rank++) {
        const nccl_peer *peer = &comm->clique->peers[rank];
        _Atomic unsigned *moving = &comm->clique->control->slots[rank].moving;
        while (rank != comm->rank && atomic_load(moving) != 0 && !nccl_peer_ended(peer)) {
            const unsigned long long now = vgpu_now_ns();
            if (now >= end) {
                return nccl_fail(ncclRemoteError,
                                 "rank %d (pid %d) still uses the buffers of rank %d, which must not be freed", rank,
                                 (int)peer->pid, comm->rank);
            }
            vgpu_wait_while(moving, 1, now + NCCL_SLICE_NS < end ? now + NCCL_SLICE_NS : end);
        }
    }
    return ncclSuccess;
}

static void reduce_inline(const nccl_operation *o) {
    terms t;
    find_terms(o, &t);
    reduce_part(o, &t, 0, o->what.count, &t.targets[o->comm->rank], 1, 0);
}

/* A communicator's operations run in the order of their launch, whatever streams they are on. */
static ncclResult_t await_turn(const nccl_operation *o) {
    ncclResult_t result = check_failure(o->comm);
    unsigned completed = atomic_load(&o->comm->completed);
    while (result == ncclSuccess && completed != o->sequence - 1) {
        nccl_comm_wait(o->comm, completed);
        completed = atomic_load(&o->comm->completed);
        result = check_failure(o->comm);
        if (result == ncclSuccess && vgpu_device_error(o->comm->device) != cudaSuccess) {
            result = ncclUnhandledCudaError; /* the operation before was dropped */
        }
    }
    return result;
}

static ncclResult_t exchange(const nccl_operation *o) {
    publish(o);
    ncclResult_t result = wait_all_here(o);
    if (result == ncclSuccess) {
        result = check_agreement(o);
    }
    if (result != ncclSuccess || o->what.count == 0) {
        return result;
    }
    if (is_inline(&o->what)) {
        reduce_inline(o);
        return ncclSuccess;
    }
    result = move_data(o);
    return result == ncclSuccess ? wait_all_moved(o) : result;
}

/* False when the communicator of the operation has gone. */
static bool begin(const nccl_operation *o) {
    pthread_mutex_lock(&o->comm->lock);
    bool valid = atomic_load(&o->comm->generation) == o->generation;
    if (valid) {
        o->comm->running++;
    }
    pthread_mutex_unlock(&o->comm->lock);
    return valid;
}

static void end(ncclComm_t comm) {
    pthread_mutex_lock(&comm->lock);
    comm->running--;
    atomic_fetch_add(&comm->completed, 1);
    pthread_mutex_unlock(&comm->lock);
    if (atomic_load(&comm->sleepers) != 0) {
        vgpu_wake_all(&comm->completed);
    }
}

cudaError_t nccl_run(void *payload) {
    const nccl_operation *o = payload;
    if (!begin(o)) {
        return cudaSuccess;
    }
    ncclResult_t result = await_turn(o);
    if (result == ncclSuccess) {
        result = exchange(o);
    }
    /* After its own abort a rank's device goes on, as on GPUs. */
    bool well = result == ncclSuccess || atomic_load(&o->comm->aborted);
    end(o->comm);
    return well ? cudaSuccess : cudaErrorLaunchFailure;
}
