/* Communicators that are made while their owner goes on: a thread of their own joins the clique. */
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/nccl_internal.h"

#define JOINING_MAGIC 0x4c534a4f494e0001ULL

typedef struct behind {
    ncclComm_t comm;
    nccl_join join;
} behind;

bool nccl_comm_joining(const struct ncclComm *comm) {
    return comm != NULL && atomic_load(&comm->magic) == JOINING_MAGIC;
}

/* Nobody will ask for it any more. */
static void forget(ncclComm_t comm) {
    atomic_store(&comm->magic, 0);
    nccl_comm_put(comm);
}

/* The owner has aborted meanwhile: peers that came are told, as by an abort of a live communicator. */
static void leave(nccl_clique *clique, int rank) {
    if (clique->ranks > 1) {
        nccl_clique_fail(clique, ncclRemoteError, "rank %d (pid %d) aborted its communicator of %d ranks", rank,
                         (int)clique->peers[rank].pid, clique->ranks);
    }
    nccl_clique_release(clique);
}

static void *run(void *argument) {
    behind *b = argument;
    ncclComm_t comm = b->comm;
    ncclResult_t result = nccl_join_cliques(&b->join, 1);
    nccl_clique *clique = result == ncclSuccess ? b->join.clique : NULL;
    if (result == ncclSuccess) {
        b->join.clique = NULL;
    } else {
        nccl_join_cancel(&b->join);
    }
    pthread_mutex_lock(&comm->lock);
    bool abandoned = comm->abandoned;
    comm->joined = true;
    if (!abandoned && result == ncclSuccess) {
        nccl_comm_fill(comm, clique, b->join.rank, b->join.timeout_ns);
    } else if (!abandoned) {
        (void)strncpy(comm->error_text, nccl_last_error(), sizeof comm->error_text - 1);
        atomic_store(&comm->async_error, (int)result);
    }
    pthread_mutex_unlock(&comm->lock);
    if (abandoned && clique != NULL) {
        leave(clique, b->join.rank);
    }
    if (abandoned) {
        forget(comm);
    }
    free(b);
    return NULL;
}

ncclResult_t nccl_join_behind(const nccl_join *join) {
    behind *b = calloc(1, sizeof *b);
    ncclComm_t comm = nccl_comm_take();
    pthread_t thread;
    if (b != NULL && comm != NULL) {
        *b = (behind){.comm = comm, .join = *join};
        pthread_mutex_lock(&comm->lock);
        comm->clique = NULL;
        comm->abandoned = comm->joined = false;
        memset(comm->error_text, 0, sizeof comm->error_text);
        atomic_store(&comm->async_error, (int)ncclInProgress);
        atomic_store(&comm->magic, JOINING_MAGIC);
        pthread_mutex_unlock(&comm->lock);
        if (pthread_create(&thread, NULL, run, b) == 0) {
            (void)pthread_detach(thread);
            *join->out = comm;
            return ncclInProgress;
        }
    }
    free(b);
    if (comm != NULL) {
        forget(comm);
    }
    return nccl_fail(ncclSystemError, "no memory or thread for a communicator");
}

bool nccl_join_abandon(ncclComm_t comm) {
    if (!nccl_comm_joining(comm)) {
        return false;
    }
    pthread_mutex_lock(&comm->lock);
    bool live = !nccl_comm_joining(comm); /* it came to be just now */
    bool joined = comm->joined;
    comm->abandoned = !live;
    pthread_mutex_unlock(&comm->lock);
    if (!live && joined) {
        forget(comm); /* otherwise its thread does, when it ends */
    }
    return !live;
}
