/* Queues collectives on their streams, numbers them, and refuses an order of launches that would deadlock on GPUs. */
#include <stdio.h>

#include "gpu/vgpu/modes.h"
#include "gpu/vgpu/nccl_internal.h"

static _Atomic uint64_t launches, threads;

static cudaError_t replay_operation(void *payload, const struct vgpu_replay *replay);

static uint64_t this_thread(void) {
    static _Thread_local uint64_t number;
    if (number == 0) {
        number = atomic_fetch_add(&threads, 1) + 1;
    }
    return number;
}

/* On GPUs a collective of one device may hold up its thread until its peers have started: one thread that starts two devices'
 * parts of the same collective must do so in one group. Here it would work, so that it must be found. */
static ncclResult_t check_group(const nccl_operation *o, uint64_t launch) {
    nccl_clique *clique = o->comm->clique;
    uint64_t thread = this_thread();
    int other = -1;
    pthread_mutex_lock(&clique->lock);
    for (int rank = 0; rank < clique->ranks; rank++) {
        const nccl_launch_record *record = &clique->records[rank];
        if (rank != o->comm->rank && record->sequence == o->sequence && record->thread == thread &&
            record->launch != launch) {
            other = rank;
        }
    }
    clique->records[o->comm->rank] = (nccl_launch_record){o->sequence, thread, launch};
    pthread_mutex_unlock(&clique->lock);
    if (other < 0) {
        return ncclSuccess;
    }
    nccl_clique_fail(
        clique, ncclInvalidUsage,
        "%s #%u: one thread started it for rank %d and then for rank %d outside a common group; on GPUs this "
        "may deadlock: put both calls between ncclGroupStart and ncclGroupEnd",
        nccl_kind_name(o->what.kind), o->sequence, other, o->comm->rank);
    char text[NCCL_TEXT_BYTES];
    ncclResult_t result = nccl_clique_status(clique, text);
    return nccl_fail(result, "%s", text);
}

/* What the operation's part of this rank uses; its peers' memory is their parts' concern. */
static void declare(const nccl_operation *o) {
    const nccl_descriptor *what = &o->what;
    char *base = o->comm->clique->peers[o->comm->rank].base;
    size_t bytes = what->count * nccl_dtype_size(what->dtype);
    size_t all = bytes * (size_t)o->comm->ranks;
    bool root = (int)what->root == o->comm->rank;
    bool sends = what->kind != NCCL_BROADCAST || root;
    bool receives = what->kind != NCCL_REDUCE || root;
    LS_ACCESS(
        LS_READS(base + what->send, !sends                             ? 0
                                    : what->kind == NCCL_REDUCESCATTER ? all
                                                                       : bytes),
        LS_WRITES(base + what->receive, !receives                      ? 0
                                        : what->kind == NCCL_ALLGATHER ? all
                                                                       : bytes),
        LS_READS(what->scalar_is_pointer ? (const void *)(uintptr_t)what->scalar : NULL, nccl_dtype_size(what->dtype)));
}

/* Results flow from the root, to the root, or from all to all. */
static vgpu_joint joint_of(const nccl_operation *o) {
    const nccl_clique *clique = o->comm->clique;
    bool root = (int)o->what.root == o->comm->rank;
    vgpu_joint joint = {.clique = clique, .sequence = o->sequence, .ranks = clique->ranks};
    joint.gives = o->what.kind != NCCL_BROADCAST || root;
    joint.takes = o->what.kind != NCCL_REDUCE || root;
    joint.replay = replay_operation;
    for (int rank = 0; rank < clique->ranks; rank++) {
        joint.parts += clique->peers[rank].local ? 1 : 0;
    }
    return joint;
}

static ncclResult_t submit(nccl_operation *o) {
    int before;
    cudaError_t status = cudaGetDevice(&before);
    if (status == cudaSuccess && before != o->comm->device) {
        status = cudaSetDevice(o->comm->device); /* stream 0 is the communicator's device's */
    }
    if (status == cudaSuccess) {
        int device = vgpu_stream_device(o->stream);
        if (device != o->comm->device) {
            cudaSetDevice(before);
            return nccl_fail(ncclInvalidArgument,
                             "%s of rank %d: the stream is of device %d, the communicator of device %d",
                             nccl_kind_name(o->what.kind), o->comm->rank, device, o->comm->device);
        }
        vgpu_joint joint = joint_of(o);
        declare(o);
        status =
            vgpu_submit_kind(o->stream, nccl_kind_name(o->what.kind), nccl_run, o, sizeof *o, VGPU_COLLECTIVE, &joint);
        if (before != o->comm->device) {
            cudaSetDevice(before);
        }
    }
    if (status != cudaSuccess) {
        return nccl_fail(ncclUnhandledCudaError, "%s of rank %d: %s", nccl_kind_name(o->what.kind), o->comm->rank,
                         cudaGetErrorString(status));
    }
    return ncclSuccess;
}

/* Starts a captured collective again, under the next number of its communicator. */
static cudaError_t replay_operation(void *payload, const struct vgpu_replay *replay) {
    nccl_operation *o = payload;
    pthread_mutex_lock(&o->comm->launching);
    cudaError_t status = cudaErrorInvalidResourceHandle; /* the communicator of the graph has gone */
    if (atomic_load(&o->comm->generation) == o->generation) {
        o->sequence = atomic_load(&o->comm->launched) + 1;
        vgpu_joint joint = joint_of(o);
        status = vgpu_replay_queue(replay, o, &joint);
    }
    if (status == cudaSuccess) {
        atomic_store(&o->comm->launched, o->sequence);
    }
    pthread_mutex_unlock(&o->comm->launching);
    return status;
}

/* Captured operations get their numbers when the graph is launched, all at once as in a group. */
static ncclResult_t capture(nccl_operation *o) {
    o->sequence = 0;
    o->generation = atomic_load(&o->comm->generation);
    return submit(o);
}

ncclResult_t nccl_launch(nccl_operation *operations, size_t count) {
    _Static_assert(sizeof *operations <= VGPU_PAYLOAD_BYTES, "an operation must fit into a stream's payload");
    uint64_t launch = atomic_fetch_add(&launches, 1) + 1;
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        nccl_operation *o = &operations[i];
        if (vgpu_stream_captures(o->stream)) {
            result = capture(o);
            continue;
        }
        pthread_mutex_lock(&o->comm->launching);
        o->sequence = atomic_load(&o->comm->launched) + 1;
        o->generation = atomic_load(&o->comm->generation);
        result = check_group(o, launch);
        if (result == ncclSuccess) {
            result = submit(o);
        }
        if (result == ncclSuccess) {
            atomic_store(&o->comm->launched, o->sequence);
        }
        pthread_mutex_unlock(&o->comm->launching);
    }
    return result;
}
