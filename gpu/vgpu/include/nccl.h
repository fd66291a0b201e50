/* NCCL for virtual GPUs: the subset of NVIDIA's nccl.h that Lockstep uses, with the same names, signatures and numeric
 * values. A call that is missing here is missing at compile time instead of failing when it runs.
 *
 * Collectives are asynchronous operations of the given stream. The order of summation is rank 0..n-1 for every element, so
 * all ranks get identical bits. The time limit of initialisation and of a waiting collective is LOCKSTEP_VGPU_NCCL_TIMEOUT
 * seconds (default 60). */
#ifndef NCCL_H_
#define NCCL_H_

#include <cuda_runtime.h>
#include <limits.h>
#include <stddef.h>

#define NCCL_MAJOR            2
#define NCCL_MINOR            28
#define NCCL_PATCH            9
#define NCCL_SUFFIX           ""
#define NCCL_VERSION_CODE     22809
#define NCCL_VERSION(X, Y, Z) (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclNumResults = 8
} ncclResult_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL

/* Only blocking is looked at (undefined, 1 or 0); every other member that is set is refused, as vgpu has nothing to tune. */
typedef struct ncclConfig_v22800 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                                    \
    {                                                                                                              \
        sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), NCCL_CONFIG_UNDEF_INT, \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR,            \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,            \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,            \
            NCCL_CONFIG_UNDEF_INT,                                                                                 \
    }

typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5, /* and above: operations of ncclRedOpCreatePreMulSum */
    ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

/* The 8-bit floats have their values but are refused with ncclInvalidArgument. */
typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

ncclResult_t ncclGetVersion(int *version);

/* Makes the id of a new clique and opens its rendezvous in this process, which must live until all ranks are up. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId);

/* Joins the clique of commId as rank with the current device. Blocks until all nranks have called it, or until the time
 * limit; inside a group it is started by ncclGroupEnd. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank);
/* With blocking = 0 returns ncclInProgress at once; until ncclCommGetAsyncError says ncclSuccess the communicator can only be
 * aborted. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config);

/* One communicator for each of ndev devices of this process; devlist NULL: devices 0..ndev-1. */
ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist);

/* Waits for the communicator's queued collectives. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);
/* Waits for the communicator's queued collectives, then frees it. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
/* Ends the communicator's queued collectives with an error, here and on every peer, then frees it. */
ncclResult_t ncclCommAbort(ncclComm_t comm);

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);

/* Device memory of the current device for buffers that are registered; freed with ncclMemFree alone. size 0: NULL. */
ncclResult_t ncclMemAlloc(void **ptr, size_t size);
/* NULL is well. Memory that a communicator has registered is refused with ncclInvalidUsage and stays. */
ncclResult_t ncclMemFree(void *ptr);

/* Registers device memory of the communicator's device for collectives, in which then all ranks' buffers must be registered, or none's.
 * Each call's handle is deregistered once, before the memory is freed and the communicator is destroyed; ncclCommAbort does it itself.
 * A handle that is NULL is well; one that comm does not know: ncclInvalidUsage. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);

const char *ncclGetErrorString(ncclResult_t result);
/* The communicator's last error in words; comm NULL: the calling thread's. Valid until the next error. */
const char *ncclGetLastError(ncclComm_t comm);

/* An operation that multiplies each of this rank's inputs by *scalar, in the elements' type, and then sums; each rank's scalar is its
 * own. For collectives of comm and of datatype alone, others are refused. Host-immediate scalars are read here; device scalars, in
 * memory of comm's device or pinned host memory, by each collective when it runs, and so must live until it has. The communicator
 * frees what is left when it is destroyed or aborted. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
/* May follow the last call that is given op at once. ncclInvalidArgument for operations that are built in or not comm's. */
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* Collectives. Buffers are device memory of the communicator's device, count is in elements. In place when sendbuff ==
 * recvbuff (all-gather: sendbuff == recvbuff + rank * sendcount; reduce-scatter: recvbuff == sendbuff + rank * recvcount). */
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);

/* Calls between them are queued and started together by the outermost ncclGroupEnd. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#ifdef __cplusplus
}
#endif
#endif
