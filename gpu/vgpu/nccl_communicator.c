/* Communicators: made by ncclCommInitAll and ncclCommInitRank, freed by ncclCommDestroy and ncclCommAbort. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/nccl_bootstrap.h"

#define COMM_MAGIC 0x4c53434f4d4d0001ULL

ncclResult_t ncclGetVersion(int *version) {
    if (version == NULL) {
        return nccl_fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    }
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId) {
    if (uniqueId == NULL) {
        return nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
    }
    return nccl_rendezvous_open(uniqueId);
}

ncclResult_t nccl_timeout(unsigned long long *nanoseconds) {
    const char *text = getenv("LOCKSTEP_VGPU_NCCL_TIMEOUT");
    double seconds = 60.0;
    if (text != NULL) {
        char *end;
        seconds = strtod(text, &end);
        if (end == text || *end != '\0' || !(seconds > 0.0) || seconds > 1e6) {
            return nccl_fail(ncclInvalidUsage,
                             "LOCKSTEP_VGPU_NCCL_TIMEOUT is '%s', expected seconds above 0 and up to 1000000", text);
        }
    }
    *nanoseconds = (unsigned long long)ceil(seconds * 1e9);
    return ncclSuccess;
}

bool nccl_comm_valid(const struct ncclComm *comm) {
    return comm != NULL && atomic_load(&comm->magic) == COMM_MAGIC;
}

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static ncclComm_t free_comms;

ncclComm_t nccl_comm_take(void) {
    pthread_mutex_lock(&free_lock);
    ncclComm_t comm = free_comms;
    if (comm != NULL) {
        free_comms = comm->next;
    }
    pthread_mutex_unlock(&free_lock);
    if (comm == NULL) {
        comm = calloc(1, sizeof *comm);
        if (comm != NULL) {
            pthread_mutex_init(&comm->lock, NULL);
            pthread_mutex_init(&comm->launching, NULL);
        }
    }
    return comm;
}

void nccl_comm_put(ncclComm_t comm) {
    pthread_mutex_lock(&free_lock);
    comm->next = free_comms;
    free_comms = comm;
    pthread_mutex_unlock(&free_lock);
}

void nccl_comm_fill(ncclComm_t comm, nccl_clique *clique, int rank, unsigned long long timeout_ns) {
    comm->clique = clique;
    comm->rank = rank;
    comm->ranks = clique->ranks;
    comm->device = clique->peers[rank].device;
    comm->timeout_ns = timeout_ns;
    atomic_store(&comm->launched, 0);
    comm->running = 0;
    comm->error_text[0] = '\0';
    atomic_store(&comm->completed, 0);
    atomic_store(&comm->async_error, (int)ncclSuccess);
    atomic_store(&comm->aborted, false);
    atomic_store(&comm->magic, COMM_MAGIC);
}

/* Takes over one reference of clique, also on failure. */
static ncclResult_t comm_new(nccl_clique *clique, int rank, unsigned long long timeout_ns, ncclComm_t *out) {
    ncclComm_t comm = nccl_comm_take();
    if (comm == NULL) {
        nccl_clique_release(clique);
        return nccl_fail(ncclSystemError, "out of memory for a communicator");
    }
    pthread_mutex_lock(&comm->lock);
    nccl_comm_fill(comm, clique, rank, timeout_ns);
    pthread_mutex_unlock(&comm->lock);
    *out = comm;
    return ncclSuccess;
}

/* No operation runs, and none that is queued will. */
static void comm_free(ncclComm_t comm) {
    (void)nccl_register_drop(comm);
    pthread_mutex_lock(&comm->lock);
    nccl_user_op_drop(comm);
    nccl_clique *clique = comm->clique;
    atomic_store(&comm->magic, 0);
    comm->clique = NULL;
    atomic_fetch_add(&comm->generation, 1);
    pthread_mutex_unlock(&comm->lock);
    nccl_clique_release(clique);
    nccl_comm_put(comm);
}

ncclResult_t nccl_join_cliques(nccl_join *joins, size_t count) {
    ncclResult_t (*const phases[])(nccl_join *) = {nccl_join_connect, nccl_join_receive, nccl_join_finish};
    ncclResult_t result = ncclSuccess;
    for (size_t phase = 0; phase < sizeof phases / sizeof phases[0]; phase++) {
        for (size_t i = 0; i < count && result == ncclSuccess; i++) {
            result = phases[phase](&joins[i]);
        }
    }
    return result;
}

ncclResult_t nccl_join_all(nccl_join *joins, size_t count) {
    ncclResult_t result = nccl_join_cliques(joins, count);
    size_t made = 0;
    for (; made < count && result == ncclSuccess; made++) {
        nccl_clique *clique = joins[made].clique;
        joins[made].clique = NULL;
        result = comm_new(clique, joins[made].rank, joins[made].timeout_ns, joins[made].out);
    }
    if (result != ncclSuccess) {
        for (size_t i = 0; i < count; i++) {
            if (i + 1 < made) {
                comm_free(*joins[i].out);
            }
            *joins[i].out = NULL;
            nccl_join_cancel(&joins[i]);
        }
    }
    return result;
}

/* vgpu has nothing to tune: what is set must be refused rather than ignored. */
static ncclResult_t check_config(const ncclConfig_t *config) {
    if (config->magic != 0xcafebeefU || config->size != sizeof *config) {
        return nccl_fail(ncclInvalidArgument, "ncclCommInitRankConfig: config was not set by NCCL_CONFIG_INITIALIZER");
    }
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 1 && config->blocking != 0) {
        return nccl_fail(ncclInvalidArgument, "ncclCommInitRankConfig: blocking=%d, expected 0 or 1", config->blocking);
    }
    ncclConfig_t plain = NCCL_CONFIG_INITIALIZER;
    plain.version = config->version;
    plain.blocking = config->blocking;
    plain.commName = config->commName;
    const int *set = &config->cgaClusterSize, *undefined = &plain.cgaClusterSize;
    bool same = set[0] == undefined[0] && config->minCTAs == plain.minCTAs && config->maxCTAs == plain.maxCTAs &&
                config->netName == plain.netName && config->splitShare == plain.splitShare &&
                config->trafficClass == plain.trafficClass && config->collnetEnable == plain.collnetEnable &&
                config->CTAPolicy == plain.CTAPolicy && config->shrinkShare == plain.shrinkShare &&
                config->nvlsCTAs == plain.nvlsCTAs && config->nChannelsPerNetPeer == plain.nChannelsPerNetPeer &&
                config->nvlinkCentricSched == plain.nvlinkCentricSched;
    if (!same) {
        return nccl_fail(
            ncclInvalidArgument,
            "ncclCommInitRankConfig: a member other than blocking and commName is set, which virtual GPUs do "
            "not serve");
    }
    return ncclSuccess;
}

static ncclResult_t check_join(ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank) {
    uint64_t magic;
    memcpy(&magic, id, sizeof magic);
    if (comm == NULL) {
        return nccl_fail(ncclInvalidArgument, "ncclCommInitRank: comm is NULL");
    }
    if (nranks < 1 || nranks > NCCL_RANKS_MAX || rank < 0 || rank >= nranks) {
        return nccl_fail(ncclInvalidArgument, "ncclCommInitRank: rank %d of %d; virtual GPUs serve 1 to %d ranks", rank,
                         nranks, (int)NCCL_RANKS_MAX);
    }
    if (magic != NCCL_MAGIC) {
        return nccl_fail(ncclInvalidArgument, "ncclCommInitRank: commId is not from ncclGetUniqueId");
    }
    return ncclSuccess;
}

static ncclResult_t init_rank(ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank, bool blocking) {
    ncclResult_t result = check_join(comm, nranks, id, rank);
    nccl_join join = {.out = comm, .id = *id, .ranks = nranks, .rank = rank, .socket = -1};
    if (result == ncclSuccess) {
        result = nccl_timeout(&join.timeout_ns);
    }
    if (result == ncclSuccess && cudaGetDevice(&join.device) != cudaSuccess) {
        result = nccl_fail(ncclUnhandledCudaError, "ncclCommInitRank: no current device");
    }
    if (result == ncclSuccess) {
        *comm = NULL;
    }
    if (result != ncclSuccess) {
        return nccl_group_note(result);
    }
    if (nccl_group_open()) {
        return nccl_group_join(&join);
    }
    return blocking ? nccl_join_all(&join, 1) : nccl_join_behind(&join);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank) {
    return init_rank(comm, nranks, &commId, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config) {
    ncclResult_t result = config == NULL ? ncclSuccess : check_config(config);
    bool blocking = config == NULL || config->blocking != 0;
    return result == ncclSuccess ? init_rank(comm, nranks, &commId, rank, blocking) : nccl_group_note(result);
}

static ncclResult_t check_devices(const ncclComm_t *comm, int ndev, const int *devlist) {
    int present = 0;
    if (comm == NULL || ndev < 1) {
        return nccl_fail(ncclInvalidArgument, "ncclCommInitAll: %s", comm == NULL ? "comm is NULL" : "ndev is below 1");
    }
    if (cudaGetDeviceCount(&present) != cudaSuccess) {
        return nccl_fail(ncclUnhandledCudaError, "ncclCommInitAll: no device");
    }
    for (int i = 0; i < ndev; i++) {
        int device = devlist == NULL ? i : devlist[i];
        if (device < 0 || device >= present) {
            return nccl_fail(devlist == NULL ? ncclInvalidArgument : ncclUnhandledCudaError,
                             "ncclCommInitAll: device %d for rank %d, but there are %d devices", device, i, present);
        }
        for (int k = 0; devlist != NULL && k < i; k++) {
            if (devlist[k] == device) {
                return nccl_fail(ncclInvalidUsage, "Duplicate GPU detected: rank %d and rank %d are both on device %d",
                                 k, i, device);
            }
        }
    }
    return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
    unsigned long long timeout_ns = 0;
    nccl_clique *clique = NULL;
    int devices[NCCL_RANKS_MAX];
    ncclResult_t result = check_devices(comm, ndev, devlist);
    if (result == ncclSuccess && ndev > NCCL_RANKS_MAX) {
        result = nccl_fail(ncclInvalidArgument, "ncclCommInitAll: %d ranks; virtual GPUs serve 1 to %d", ndev,
                           (int)NCCL_RANKS_MAX);
    }
    if (result == ncclSuccess) {
        result = nccl_timeout(&timeout_ns);
    }
    if (result != ncclSuccess) {
        return result;
    }
    for (int i = 0; i < ndev; i++) {
        devices[i] = devlist == NULL ? i : devlist[i];
    }
    result = nccl_clique_create_local(ndev, devices, &clique);
    for (int i = 0; clique != NULL && i < ndev; i++) {
        if (result != ncclSuccess) {
            nccl_clique_release(clique);
            continue;
        }
        result = comm_new(clique, i, timeout_ns, &comm[i]);
        for (int k = 0; result != ncclSuccess && k < i; k++) {
            comm_free(comm[k]);
        }
    }
    return result;
}

static ncclResult_t check_comm(const struct ncclComm *comm, const void *out, const char *call) {
    if (!nccl_comm_valid(comm)) {
        return nccl_fail(ncclInvalidArgument, "%s: not a live communicator", call);
    }
    return out == NULL ? nccl_fail(ncclInvalidArgument, "%s: nowhere to put the result", call) : ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    ncclResult_t result = check_comm(comm, count, "ncclCommCount");
    if (result == ncclSuccess) {
        *count = comm->ranks;
    }
    return result;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    ncclResult_t result = check_comm(comm, device, "ncclCommCuDevice");
    if (result == ncclSuccess) {
        *device = comm->device;
    }
    return result;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    ncclResult_t result = check_comm(comm, rank, "ncclCommUserRank");
    if (result == ncclSuccess) {
        *rank = comm->rank;
    }
    return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
    if (asyncError != NULL && nccl_comm_joining(comm)) {
        pthread_mutex_lock(&comm->lock); /* success is told once the communicator is live */
        *asyncError = (ncclResult_t)atomic_load(&comm->async_error);
        pthread_mutex_unlock(&comm->lock);
        return ncclSuccess;
    }
    ncclResult_t result = check_comm(comm, asyncError, "ncclCommGetAsyncError");
    if (result == ncclSuccess) {
        *asyncError = (ncclResult_t)atomic_load(&comm->async_error);
    }
    return result;
}

void nccl_comm_wait(ncclComm_t comm, unsigned seen) {
    atomic_fetch_add(&comm->sleepers, 1);
    if (atomic_load(&comm->completed) == seen) {
        vgpu_wait_while(&comm->completed, seen, vgpu_now_ns() + NCCL_SLICE_NS);
    }
    atomic_fetch_sub(&comm->sleepers, 1);
}

/* Until every queued collective has ended; each ends by itself, by success, failure, abort or the time limit. Those that a
 * failed device has dropped will never run: the peers are told. */
static void drain(ncclComm_t comm) {
    for (;;) {
        unsigned completed = atomic_load(&comm->completed);
        pthread_mutex_lock(&comm->lock);
        const unsigned launched = atomic_load(&comm->launched);
        bool ended = completed == launched;
        bool dropped = !ended && comm->running == 0 && vgpu_device_error(comm->device) != cudaSuccess;
        if (dropped) {
            atomic_fetch_add(&comm->generation, 1);
            atomic_store(&comm->completed, launched);
        }
        pthread_mutex_unlock(&comm->lock);
        if (dropped && comm->ranks > 1) {
            nccl_clique_fail(comm->clique, ncclRemoteError, "rank %d (pid %d): its device %d has failed: %s",
                             comm->rank, (int)comm->clique->peers[comm->rank].pid, comm->device,
                             cudaGetErrorString(vgpu_device_error(comm->device)));
        }
        if (ended || dropped) {
            return;
        }
        nccl_comm_wait(comm, completed);
    }
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    ncclResult_t result = check_comm(comm, comm, "ncclCommFinalize");
    if (result != ncclSuccess) {
        return result;
    }
    drain(comm);
    return (ncclResult_t)atomic_load(&comm->async_error);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (comm == NULL) {
        return ncclSuccess;
    }
    ncclResult_t result = check_comm(comm, comm, "ncclCommDestroy");
    if (result != ncclSuccess) {
        return result;
    }
    drain(comm);
    size_t registered = nccl_register_drop(comm);
    if (registered > 0) {
        ls_notice("nccl: rank %d destroys its communicator with registered buffers left (%zu): ncclCommDeregister "
                  "comes first",
                  comm->rank, registered);
    }
    atomic_store(&comm->clique->control->slots[comm->rank].left, 1);
    comm_free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (comm == NULL || nccl_join_abandon(comm)) {
        return ncclSuccess;
    }
    ncclResult_t result = check_comm(comm, comm, "ncclCommAbort");
    if (result != ncclSuccess) {
        return result;
    }
    atomic_store(&comm->aborted, true);
    if (comm->ranks > 1) {
        nccl_clique_fail(comm->clique, ncclRemoteError, "rank %d (pid %d) aborted its communicator of %d ranks",
                         comm->rank, (int)comm->clique->peers[comm->rank].pid, comm->ranks);
    }
    drain(comm);
    result = nccl_await_movers(comm);
    comm_free(comm);
    return result;
}
