/* Operations that multiply by a scalar before they sum. Their numbers are never given twice in a process, so that one that has been
 * destroyed, or is another communicator's, is never taken for one that is alive. */
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/nccl_internal.h"
#include "gpu/vgpu/runtime.h"

static _Atomic unsigned last_number = ncclNumOps - 1;

/* A number of its own for an operation; false when there are none left. */
static bool take_number(ncclRedOp_t *number) {
    unsigned last = atomic_load(&last_number);
    while (last < ncclMaxRedOp && !atomic_compare_exchange_weak(&last_number, &last, last + 1)) {
    }
    *number = (ncclRedOp_t)(last + 1);
    return last < ncclMaxRedOp;
}

static ncclResult_t check_scalar(const void *scalar, ncclDataType_t dtype, ncclScalarResidence_t residence,
                                 const struct ncclComm *comm) {
    size_t size = nccl_dtype_size((unsigned)dtype), remaining = 0;
    if (size == 0) {
        return nccl_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: datatype %d is not served", (int)dtype);
    }
    if (residence == ncclScalarHostImmediate) {
        return ncclSuccess;
    }
    if (residence != ncclScalarDevice) {
        return nccl_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: residence %d", (int)residence);
    }
    bool seen = vgpu_pointer_device(scalar, &remaining) == comm->device || vgpu_host_pinned(scalar, &remaining, NULL);
    if (!seen || remaining < size || (uintptr_t)scalar % size != 0) {
        return nccl_fail(ncclInvalidArgument,
                         "ncclRedOpCreatePreMulSum of rank %d: the scalar is not %zu aligned bytes of memory that "
                         "device %d can read",
                         comm->rank, size, comm->device);
    }
    return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
    if (!nccl_comm_valid(comm)) {
        return nccl_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: not a live communicator");
    }
    if (op == NULL || scalar == NULL) {
        return nccl_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: %s is NULL", op == NULL ? "op" : "scalar");
    }
    ncclResult_t result = check_scalar(scalar, datatype, residence, comm);
    if (result != ncclSuccess) {
        return result;
    }
    nccl_user_op *made = calloc(1, sizeof *made);
    if (made == NULL || !take_number(&made->number)) {
        free(made);
        return nccl_fail(ncclSystemError, "ncclRedOpCreatePreMulSum: no memory or number for an operation");
    }
    made->dtype = datatype;
    made->scalar_is_pointer = residence == ncclScalarDevice;
    if (made->scalar_is_pointer) {
        made->scalar = (uintptr_t)scalar;
    } else {
        memcpy(&made->scalar, scalar, nccl_dtype_size((unsigned)datatype));
    }
    *op = made->number;
    pthread_mutex_lock(&comm->lock);
    made->next = comm->user_ops;
    comm->user_ops = made;
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

/* Where the list has the operation, or its end; the communicator's lock is held. */
static nccl_user_op **place_of(ncclComm_t comm, ncclRedOp_t op) {
    nccl_user_op **at = &comm->user_ops;
    while (*at != NULL && (*at)->number != op) {
        at = &(*at)->next;
    }
    return at;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    if ((unsigned)op < ncclNumOps) {
        return nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: %s is built in", nccl_op_name((unsigned)op));
    }
    if (!nccl_comm_valid(comm)) {
        return nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: not a live communicator");
    }
    pthread_mutex_lock(&comm->lock);
    nccl_user_op **at = place_of(comm, op), *found = *at;
    if (found != NULL) {
        *at = found->next;
    }
    pthread_mutex_unlock(&comm->lock);
    if (found == NULL) {
        return nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy of rank %d: operation %d is not of this communicator",
                         comm->rank, (int)op);
    }
    free(found);
    return ncclSuccess;
}

bool nccl_user_op_find(ncclComm_t comm, ncclRedOp_t op, nccl_user_op *out) {
    pthread_mutex_lock(&comm->lock);
    const nccl_user_op *found = *place_of(comm, op);
    if (found != NULL) {
        *out = *found;
    }
    pthread_mutex_unlock(&comm->lock);
    return found != NULL;
}

void nccl_user_op_drop(ncclComm_t comm) {
    while (comm->user_ops != NULL) {
        nccl_user_op *dropped = comm->user_ops;
        comm->user_ops = dropped->next;
        free(dropped);
    }
}
