/* What an implementation of data-parallel training is. Adding one: one file impls/<name>.c with a const ls_impl, one line in
 * impls/table.c; docs/adding-an-implementation.md walks through it. */
#ifndef LS_IMPLS_IMPL_H
#define LS_IMPLS_IMPL_H

#include "gpu/gpu.h"
#include "impls/protocol.h"
#include "impls/run.h"
#include "reference/replica.h"

/* A rank among the ranks of a run. */
typedef struct ls_rank {
    size_t rank, world, local_rank;
    int device;          /* the device of this rank; for dp the first of run->devices devices */
    const char *master;  /* host of rank 0 */
    unsigned short port; /* of rank 0's rendezvous */
    double timeout;      /* seconds, for every wait on a peer */
    void *shared;        /* ranks as threads: what the launcher shares between them; else NULL */
} ls_rank;

/* How the gradients of the devices become the gradient of the run, for verification. */
typedef enum ls_reduction {
    LS_REDUCTION_MEAN = 0, /* mean over ranks of the gradient of each rank's loss (DistributedDataParallel) */
    LS_REDUCTION_SUM = 1,  /* sum over devices of gradients of one loss over the whole batch (DataParallel) */
} ls_reduction;

/* Capabilities. */
enum {
    LS_CAP_RANK_THREADS = 1u << 0,   /* ranks may be threads of one process */
    LS_CAP_RANK_PROCESSES = 1u << 1, /* ranks are processes started by the launcher */
    LS_CAP_MPIRUN = 1u << 2,         /* ranks are processes under mpirun */
    LS_CAP_BUCKETS = 1u << 3,        /* obeys bucket_bytes */
    LS_CAP_MULTI_DEVICE = 1u << 4,   /* more than one device */
    LS_CAP_GRAPH = 1u << 5,          /* a step can be captured in a CUDA graph */
    LS_CAP_SHARED_DEVICES = 1u << 6, /* several of its devices may lie on one of the host (--share-devices) */
    LS_CAP_NCCL_REGISTER = 1u << 7,  /* its gradients can lie in memory registered with NCCL (--nccl-register) */
    LS_CAP_NCCL = 1u << 8,           /* several ranks of it meet in NCCL's collectives */
};

/* What an implementation did to communicate, counted by itself since open. */
typedef struct ls_counters {
    uint64_t allreduces, allreduce_bytes; /* of gradients */
    uint64_t broadcasts, broadcast_bytes;
    uint64_t peer_copies, peer_copy_bytes;
    uint64_t graph_launches; /* steps that were launched as a graph */
    uint64_t buckets;        /* of the plan; 0: no buckets */
    uint64_t
        overlap_steps; /* steps in which recorded events show a reduction starting before backward's last kernel ends */
    uint64_t overlap_measured; /* steps in which that was recorded */
    double overlap_lead; /* seconds: median over those steps of (end of backward - start of the first reduction) */
} ls_counters;

/* One implementation. Every rank calls every function in the same order. self is the implementation's own state. */
typedef struct ls_impl {
    const char *name;
    const char *summary; /* one line */
    unsigned capabilities;
    ls_reduction reduction;

    /* Whether it can run here; otherwise a reason for SKIPPED(reason) into why and false. May be NULL: always. */
    bool (*available)(char *why, size_t size);
    /* Ranks for so many devices: 1 for single and dp, devices for the others. */
    size_t (*ranks)(size_t devices);

    /* max_batch: the most samples of one rank's step. Parameters are the same on all ranks after open. */
    ls_rc (*open)(const ls_run *run, const ls_rank *rank, const ls_model *model, size_t max_batch, void **self);
    /* One training step over this rank's batch: gradients of the global batch, then the update. global_count: samples of
     * all ranks in this step. May return before the devices have finished. */
    ls_rc (*step)(void *self, const ls_batch *batch, size_t global_count);
    /* Waits until every device of this rank has finished, within rank->timeout. */
    ls_rc (*synchronize)(void *self);
    /* The loss (run->loss) of this rank's batch in the last step; 0 without samples. */
    ls_rc (*loss)(void *self, double *mean);
    /* The reduced gradient of the last step and the parameters, flat in ready order, of run->dtype. */
    ls_rc (*gradients)(void *self, void *flat);
    ls_rc (*parameters)(void *self, void *flat);
    /* Sums values over all ranks (control path: losses, counts; a barrier when count is 1). */
    ls_rc (*sum)(void *self, double *values, size_t count);
    /* The replicas of this rank, for evaluation (the first) and capture; *count of them. */
    ls_replica *(*replica)(void *self, size_t index, size_t *count);
    void (*counters)(void *self, ls_counters *out);
    /* The bucket plan of this rank and the collectives that it has begun, recorded with run->capture. NULL: it has none. */
    ls_protocol *(*protocol)(void *self);
    void (*close)(void *self);
} ls_impl;

/* NULL-ended. */
extern const ls_impl *const ls_impls[];
const ls_impl *ls_impl_find(const char *name);
/* The names of those that have all of these capabilities (0: of every one), joined by ", ", in the table's order. */
void ls_impls_with(unsigned capabilities, char *text, size_t size);
/* Whether impl can run on this machine; else why not, in words. why is empty where it can. */
bool ls_impl_available(const ls_impl *impl, char *why, size_t size);

#endif
