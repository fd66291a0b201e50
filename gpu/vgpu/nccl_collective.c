/* The public collectives: check the arguments, describe the operation, launch it or keep it for the group. */
#include "gpu/vgpu/nccl_internal.h"

typedef struct call {
    nccl_kind kind;
    const void *send; /* NULL: this rank sends nothing */
    void *receive;    /* NULL: this rank receives nothing */
    size_t count, send_count, receive_count;
    ncclDataType_t dtype;
    ncclRedOp_t op;
    int root;
    ncclComm_t comm;
    cudaStream_t stream;
} call;

/* Offset of a buffer of count elements in the arena of the communicator's device. */
static ncclResult_t check_buffer(const call *c, const char *which, const void *buffer, size_t count, uint64_t *offset) {
    size_t size = nccl_dtype_size(c->dtype), remaining = 0;
    const char *name = nccl_kind_name(c->kind);
    int rank = c->comm->rank;
    *offset = 0;
    if (count == 0) {
        return ncclSuccess;
    }
    if (count > SIZE_MAX / size) {
        return nccl_fail(ncclInvalidArgument, "%s of rank %d: %zu elements overflow", name, rank, count);
    }
    int device = vgpu_pointer_device(buffer, &remaining);
    if (device != c->comm->device) {
        return nccl_fail(ncclInvalidArgument, "%s of rank %d: the %s buffer is %s%d, expected memory of device %d",
                         name, rank, which, device < 0 ? "no device memory: " : "memory of device ", device,
                         c->comm->device);
    }
    if (remaining < count * size) {
        return nccl_fail(ncclInvalidArgument, "%s of rank %d: the %s buffer has %zu bytes, %zu are needed", name, rank,
                         which, remaining, count * size);
    }
    if ((uintptr_t)buffer % size != 0) {
        return nccl_fail(ncclInvalidArgument, "%s of rank %d: the %s buffer is not aligned to its %zu-byte elements",
                         name, rank, which, size);
    }
    *offset = (uint64_t)((const char *)buffer - c->comm->clique->peers[rank].base);
    return ncclSuccess;
}

/* The operation into a descriptor. */
static ncclResult_t describe_op(const call *c, nccl_descriptor *what) {
    nccl_user_op made;
    what->op = (uint8_t)c->op;
    if ((unsigned)c->op < ncclNumOps) {
        return ncclSuccess;
    }
    if (!nccl_user_op_find(c->comm, c->op, &made)) {
        return nccl_fail(ncclInvalidArgument, "%s: operation %d is not of this communicator", nccl_kind_name(c->kind),
                         (int)c->op);
    }
    if (made.dtype != c->dtype) {
        return nccl_fail(ncclInvalidArgument, "%s: operation %d was made for %s, not for %s", nccl_kind_name(c->kind),
                         (int)c->op, nccl_dtype_name((unsigned)made.dtype), nccl_dtype_name((unsigned)c->dtype));
    }
    what->op = NCCL_PREMUL_SUM;
    what->scalar = made.scalar;
    what->scalar_is_pointer = made.scalar_is_pointer;
    return ncclSuccess;
}

static ncclResult_t check_call(const call *c) {
    if (!nccl_comm_valid(c->comm)) {
        return nccl_fail(ncclInvalidArgument, "%s: not a live communicator", nccl_kind_name(c->kind));
    }
    ncclResult_t failed = (ncclResult_t)atomic_load(&c->comm->async_error);
    if (failed != ncclSuccess) {
        (void)ncclGetLastError(c->comm); /* becomes the thread's too */
        return failed;
    }
    if (nccl_dtype_size((unsigned)c->dtype) == 0) {
        return nccl_fail(ncclInvalidArgument, "%s: datatype %d is not served", nccl_kind_name(c->kind), (int)c->dtype);
    }
    if (c->root < 0 || c->root >= c->comm->ranks) {
        return nccl_fail(ncclInvalidArgument, "%s: root %d of %d ranks", nccl_kind_name(c->kind), c->root,
                         c->comm->ranks);
    }
    return ncclSuccess;
}

/* NCCL wants the buffers of a collective registered on all ranks or on none. */
static bool in_registered_memory(const call *c) {
    size_t size = nccl_dtype_size(c->dtype);
    return c->count > 0 && (c->send_count == 0 || nccl_registered(c->comm, c->send, c->send_count * size)) &&
           (c->receive_count == 0 || nccl_registered(c->comm, c->receive, c->receive_count * size));
}

static ncclResult_t start(const call *c) {
    nccl_descriptor what = {
        .kind = (uint8_t)c->kind, .dtype = (uint8_t)c->dtype, .root = (uint16_t)c->root, .count = c->count};
    ncclResult_t result = check_call(c);
    if (result == ncclSuccess) {
        result = describe_op(c, &what);
    }
    if (result == ncclSuccess) {
        result = check_buffer(c, "send", c->send, c->send_count, &what.send);
    }
    if (result == ncclSuccess) {
        result = check_buffer(c, "receive", c->receive, c->receive_count, &what.receive);
    }
    if (result != ncclSuccess) {
        return nccl_group_note(result);
    }
    what.registered = in_registered_memory(c);
    nccl_operation operation = {.comm = c->comm, .stream = c->stream, .what = what};
    return nccl_group_open() ? nccl_group_operation(operation) : nccl_launch(&operation, 1);
}

/* count times the ranks, or a count that every buffer check refuses. */
static size_t times_ranks(size_t count, const struct ncclComm *comm) {
    size_t ranks = nccl_comm_valid(comm) ? (size_t)comm->ranks : 1;
    return count > SIZE_MAX / ranks ? SIZE_MAX : count * ranks;
}

static bool is_root(const struct ncclComm *comm, int root) {
    return nccl_comm_valid(comm) && comm->rank == root;
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return start(&(call){.kind = NCCL_ALLREDUCE,
                         .send = sendbuff,
                         .receive = recvbuff,
                         .count = count,
                         .send_count = count,
                         .receive_count = count,
                         .dtype = datatype,
                         .op = op,
                         .comm = comm,
                         .stream = stream});
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    return start(&(call){.kind = NCCL_REDUCE,
                         .send = sendbuff,
                         .receive = recvbuff,
                         .count = count,
                         .send_count = count,
                         .receive_count = is_root(comm, root) ? count : 0,
                         .dtype = datatype,
                         .op = op,
                         .root = root,
                         .comm = comm,
                         .stream = stream});
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return start(&(call){.kind = NCCL_BROADCAST,
                         .send = sendbuff,
                         .receive = recvbuff,
                         .count = count,
                         .send_count = is_root(comm, root) ? count : 0,
                         .receive_count = count,
                         .dtype = datatype,
                         .root = root,
                         .comm = comm,
                         .stream = stream});
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
    return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return start(&(call){.kind = NCCL_REDUCESCATTER,
                         .send = sendbuff,
                         .receive = recvbuff,
                         .count = recvcount,
                         .send_count = times_ranks(recvcount, comm),
                         .receive_count = recvcount,
                         .dtype = datatype,
                         .op = op,
                         .comm = comm,
                         .stream = stream});
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
    return start(&(call){.kind = NCCL_ALLGATHER,
                         .send = sendbuff,
                         .receive = recvbuff,
                         .count = sendcount,
                         .send_count = sendcount,
                         .receive_count = times_ranks(sendcount, comm),
                         .dtype = datatype,
                         .comm = comm,
                         .stream = stream});
}
