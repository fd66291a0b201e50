/* ddp: DistributedDataParallel. One rank a device, ranks as processes or as threads of one process. As PyTorch's reducer
 * (torch/csrc/distributed/c10d/reducer.cpp): parameters are broadcast from rank 0 once; gradients are gathered in buckets
 * in the order in which backward makes them ready; a full bucket is multiplied by 1/W and summed over the ranks by one
 * allreduce (ls_ddp_mean), buckets strictly in index order, while backward goes on.
 *
 * Two streams: the replica's (compute) and the communication stream. A bucket's allreduce waits for the event after its last
 * gradient. The last allreduce of a step has no backward left to hide under: it goes on the compute stream, behind the others,
 * and spares what it costs to hand over to a stream and back; a network of one bucket uses no other stream. The update and the
 * next step's backward follow it there, so no gradient is overwritten while it is being reduced. */
#include <stdlib.h>

#include "gpu/range.h"
#include "impls/buckets.h"
#include "impls/ddp_comm.h"
#include "impls/ddp_fingerprint.h"
#include "impls/ddp_mean.h"
#include "impls/ddp_overlap.h"
#include "impls/ddp_register.h"
#include "impls/ddp_watch.h"
#include "impls/mutant_terms.h"
#include "impls/rendezvous.h"
#include "impls/setup.h"
#include "impls/step_graph.h"
#include "impls/table.h"
#include "impls/thread_group.h"
#include "reference/replica_buffers.h"

typedef struct ddp {
    ls_rank rank;
    const ls_model *model;
    ls_dtype dtype;
    ls_replica *replica;
    cudaStream_t compute, communication;
    ls_ddp_watch watch; /* owns the communicator */
    ls_ddp_mean mean;   /* what the gradients are reduced by */
    void *registered;   /* of the gradients, with --nccl-register */
    ls_ddp_overlap overlap;
    ls_counters counters;
    ls_protocol protocol;
    ls_step_graph graph;
    bool failed;
    ls_bucket_plan plan;
    cudaEvent_t ready[LS_MODEL_MAX_PARAMS]; /* [plan.count], on compute: the bucket's gradients are complete */
    size_t missing[LS_MODEL_MAX_PARAMS];    /* [plan.count]: gradients of the bucket still to come in this step */
    size_t next;                            /* the first bucket not yet reduced in this step */
    bool reverse;                           /* none is reduced before backward has ended, and the last is the first */
    cudaEvent_t reduced;                    /* on communication: all buckets but the last are reduced */
    double *sums;                           /* device buffer of ls_impl.sum */
    size_t sums_capacity;
} ddp;

static size_t ddp_ranks(size_t devices) {
    return devices;
}

/* Opening. */

/* The communicator's id, from rank 0 to all. */
static ls_rc share_id(const ddp *d, const ls_run *run, ncclUniqueId *id) {
    if (d->rank.rank == 0) {
        LS_NCCL(ncclGetUniqueId(id));
    }
    if (d->rank.world == 1) {
        return LS_OK;
    }
    if (d->rank.shared != NULL) {
        return ls_thread_group_share(d->rank.shared, d->rank.rank, id, sizeof *id, d->rank.timeout);
    }
    ls_rendezvous meeting = {
        .host = d->rank.master,
        .port = d->rank.port,
        .rank = d->rank.rank,
        .world = d->rank.world,
        .timeout = d->rank.timeout,
        .param_count = d->model->param_count,
        .fingerprint = ls_ddp_fingerprint(run, d->model, &d->plan),
        .by_hand = getenv("LOCKSTEP_LAUNCHER") == NULL,
    };
    return ls_rendezvous_share(&meeting, id, sizeof *id);
}

static ls_rc open_communicator(ddp *d, const ls_run *run) {
    ncclUniqueId id = {{0}};
    ncclComm_t comm = NULL;
    LS_TRY(share_id(d, run, &id));
    LS_TRY(ls_ddp_comm_open(&d->rank, id, &comm));
    return ls_ddp_watch_open(&d->watch, comm, (int)d->rank.rank, d->rank.device, d->rank.timeout);
}

/* Rank 0's initial values to all, as DDP's constructor does. */
static ls_rc broadcast_parameters(ddp *d, uint64_t seed) {
    if (LS_MUTANT(no_broadcast)) {
        return ls_setup_initial(d->replica, seed + d->rank.rank);
    }
    if (d->rank.rank == 0) {
        LS_TRY(ls_setup_initial(d->replica, seed));
    }
    void *params = ls_replica_params(d->replica);
    LS_TRY(ls_ddp_watch_begin(&d->watch));
    ls_rc rc = ls_ddp_watch_check(
        &d->watch,
        ncclBroadcast(params, params, d->model->param_count, ls_dtype_nccl(d->dtype), 0, d->watch.comm, d->compute),
        "ncclBroadcast", __FILE__, __LINE__);
    ls_ddp_watch_end(&d->watch);
    LS_TRY(rc);
    d->counters.broadcasts++;
    d->counters.broadcast_bytes += d->model->param_count * ls_dtype_size(d->dtype);
    LS_TRY(ls_protocol_broadcast(&d->protocol, d->dtype, d->model->param_count, 0));
    LS_TRY(ls_ddp_watch_enqueued(&d->watch, d->compute));
    return ls_ddp_watch_wait(&d->watch, d->compute);
}

static ls_rc open_all(ddp *d, const ls_run *run, size_t max_batch) {
    ls_replica_options options;
    LS_TRY(ls_setup_options(run, d->rank.device, max_batch, &options));
    options.grad_memory = run->nccl_register ? &ls_ddp_register_memory : NULL;
    LS_TRY(ls_replica_open(d->model, &options, &d->replica));
    d->compute = ls_replica_stream(d->replica);
    ls_replica_set_masks(d->replica, run->seed, d->rank.rank);
    size_t cap = LS_MUTANT(cap_ignored) ? SIZE_MAX : run->bucket_bytes;
    ls_bucket_plan_make(d->model, d->dtype, cap, &d->plan);
    d->protocol = (ls_protocol){.record = run->capture, .plan = &d->plan};
    d->counters.buckets = d->plan.count;
    LS_CUDA(cudaStreamCreateWithFlags(&d->communication, cudaStreamNonBlocking));
    for (size_t i = 0; i < d->plan.count; i++) {
        LS_CUDA(cudaEventCreateWithFlags(&d->ready[i], cudaEventDisableTiming));
    }
    LS_CUDA(cudaEventCreateWithFlags(&d->reduced, cudaEventDisableTiming));
    LS_TRY(ls_ddp_overlap_open(&d->overlap));
    LS_TRY(open_communicator(d, run));
    LS_TRY(ls_ddp_mean_open(&d->watch, d->dtype, ls_setup_share(d->rank.world), &d->mean));
    if (run->nccl_register) {
        LS_TRY(ls_ddp_register_open(&d->watch, ls_replica_grads(d->replica),
                                    d->model->param_count * ls_dtype_size(d->dtype), &d->registered));
    }
    return broadcast_parameters(d, run->seed);
}

static void ddp_close(void *self) {
    ddp *d = self;
    if (d == NULL) {
        return;
    }
    /* Clean-up goes on after errors: what failed has been printed by the call that failed first. */
    (void)cudaSetDevice(d->rank.device);
    if (!d->failed) {
        /* NCCL ends a communicator when the graphs that hold its collectives have gone. */
        (void)cudaStreamSynchronize(d->compute);
        ls_step_graph_close(&d->graph);
        ls_ddp_register_close(&d->watch, d->communication, d->registered);
        ls_ddp_mean_close(&d->watch, &d->mean);
    }
    ls_ddp_watch_close(&d->watch, d->failed);
    if (d->failed && d->rank.shared != NULL) {
        ls_thread_group_cancel(d->rank.shared);
    }
    ls_step_graph_close(&d->graph);
    (void)cudaFree(d->sums);
    ls_protocol_close(&d->protocol);
    ls_ddp_overlap_close(&d->overlap);
    if (d->reduced != NULL) {
        (void)cudaEventDestroy(d->reduced);
    }
    for (size_t i = 0; i < d->plan.count; i++) {
        if (d->ready[i] != NULL) {
            (void)cudaEventDestroy(d->ready[i]);
        }
    }
    if (d->communication != NULL) {
        (void)cudaStreamDestroy(d->communication);
    }
    if (d->replica != NULL) {
        ls_replica_close(d->replica);
    }
    free(d);
}

static ls_rc ddp_open(const ls_run *run, const ls_rank *rank, const ls_model *model, size_t max_batch, void **self) {
    *self = NULL;
    ddp *d = ls_calloc(1, sizeof *d, "DistributedDataParallel");
    if (d == NULL) {
        return LS_DEVICE_FAILED;
    }
    d->rank = *rank;
    d->model = model;
    d->dtype = run->dtype;
    d->reverse = run->reverse_buckets;
    ls_step_graph_open(&d->graph, run, max_batch);
    ls_rc rc = open_all(d, run, max_batch);
    if (rc != LS_OK) {
        d->failed = true;
        ddp_close(d);
        return rc;
    }
    *self = d;
    return LS_OK;
}

/* A step. */

/* Collectives have been enqueued; those of a graph are when it is launched. */
static ls_rc enqueued(ddp *d, cudaStream_t stream) {
    return d->graph.capturing ? LS_OK : ls_ddp_watch_enqueued(&d->watch, stream);
}

static ls_rc allreduce(ddp *d, const ls_bucket *bucket, void *grads, cudaStream_t stream) {
    size_t count = bucket->count;
    ncclDataType_t type = ls_dtype_nccl(d->dtype);
    ncclRedOp_t op = d->mean.op;
    bool last_rank = d->rank.rank == d->rank.world - 1;
    if (LS_MUTANT(count_differs) && last_rank) {
        count--;
    }
    if (LS_MUTANT(type_differs) && last_rank) {
        type = ncclInt32;
        op = ncclSum; /* the other is of the gradients' type alone, and would be refused here, not at the peers */
    }
    LS_TRY(ls_ddp_watch_begin(&d->watch));
    ls_rc rc = ls_ddp_watch_check(&d->watch, ncclAllReduce(grads, grads, count, type, op, d->watch.comm, stream),
                                  "ncclAllReduce", __FILE__, __LINE__);
    ls_ddp_watch_end(&d->watch);
    return rc;
}

/* Orders a reduction on the communication stream behind the gradients of its bucket. */
static ls_rc fork(ddp *d, size_t index) {
    LS_CUDA(cudaEventRecord(d->ready[index], d->compute));
    LS_CUDA(cudaStreamWaitEvent(d->communication, d->ready[index], 0));
    return LS_OK;
}

/* Orders the last reduction, and so the update, behind all others. */
static ls_rc join(ddp *d) {
    LS_RANGE("join");
    LS_CUDA(cudaEventRecord(d->reduced, d->communication));
    LS_CUDA(cudaStreamWaitEvent(d->compute, d->reduced, 0));
    return LS_OK;
}

/* Enqueues the reduction of a bucket whose gradients have all been enqueued. last: the others have been before it. */
static ls_rc reduce_bucket(ddp *d, size_t index, bool last) {
    LS_RANGE_NUMBERED("bucket", index);
    const ls_bucket *bucket = &d->plan.buckets[index];
    void *flat = ls_replica_grads(d->replica);
    char *grads = (char *)flat + bucket->offset * ls_dtype_size(d->dtype);
    cudaStream_t stream = last ? d->compute : d->communication;
    ls_mutant_place place = {.model = d->model,
                             .dtype = d->dtype,
                             .plan = &d->plan,
                             .step = ls_replica_step(d->replica) - 1,
                             .stream = stream,
                             .last = d->rank.rank == d->rank.world - 1};
    if (!last) {
        LS_TRY(fork(d, index));
    } else {
        /* Before it waits for the others: a reduction that backward does not hide can then never seem to overlap. */
        LS_TRY(ls_ddp_overlap_backward(&d->overlap, d->compute));
        LS_TRY(d->plan.count > 1 ? join(d) : LS_OK);
    }
    if (LS_MUTANT(last_bucket_skipped) && index == d->plan.count - 1) {
        return LS_OK;
    }
    LS_TRY(ls_mutant_term(&place, bucket->offset, bucket->count, flat));
    if (index == 0) {
        LS_TRY(ls_ddp_overlap_reduction(&d->overlap, stream));
    }
    LS_TRY(allreduce(d, bucket, grads, stream));
    d->counters.allreduces++;
    d->counters.allreduce_bytes += bucket->count * ls_dtype_size(d->dtype);
    LS_TRY(ls_protocol_allreduce(&d->protocol, d->dtype, bucket->count));
    return ls_mutant_sum(&place, bucket->offset, bucket->count, flat);
}

/* A gradient is ready: reduces every bucket that this completes, in index order. */
static ls_rc grad_ready(void *self, size_t position) {
    ddp *d = self;
    for (size_t i = 0; i < d->plan.count; i++) {
        if (position >= d->plan.buckets[i].first && position <= d->plan.buckets[i].last) {
            d->missing[i]--;
            break;
        }
    }
    while (!d->reverse && d->next < d->plan.count && d->missing[d->next] == 0) {
        if (LS_MUTANT(bucket_order_differs) && d->rank.rank == d->rank.world - 1 && d->plan.count > 1 &&
            d->next + 2 >= d->plan.count) {
            size_t swapped = d->next++; /* the last two, once both are ready */
            if (swapped == d->plan.count - 1) {
                LS_TRY(reduce_bucket(d, swapped, false));
                LS_TRY(reduce_bucket(d, swapped - 1, true));
            }
            continue;
        }
        LS_TRY(reduce_bucket(d, d->next, d->next == d->plan.count - 1));
        d->next++;
    }
    return LS_OK;
}

static ls_rc backward(ddp *d) {
    ls_hooks hooks = {.self = d, .grad_ready = grad_ready};
    for (size_t i = 0; i < d->plan.count; i++) {
        d->missing[i] = d->plan.buckets[i].last - d->plan.buckets[i].first + 1;
    }
    d->next = 0;
    if (!d->graph.capturing) {
        ls_ddp_overlap_begin(&d->overlap);
    }
    LS_TRY(ls_replica_backward(d->replica, &hooks));
    while (d->reverse && d->next < d->plan.count && d->missing[d->plan.count - 1 - d->next] == 0) {
        LS_TRY(reduce_bucket(d, d->plan.count - 1 - d->next, d->next == d->plan.count - 1));
        d->next++;
    }
    if (d->next != d->plan.count) {
        return ls_fail(LS_DEVICE_FAILED, "backward ended with bucket %zu of %zu incomplete: %zu gradients are missing",
                       d->next, d->plan.count, d->missing[d->next]);
    }
    ls_ddp_overlap_end(&d->overlap);
    return enqueued(d, d->compute);
}

/* Rank 0's buffers to all at the start of every forward pass after the first, as DDP does with broadcast_buffers: a rank
 * keeps what its own samples add to them until the next step. On the compute stream, in order with this step's allreduces,
 * which wait for gradients, and the last step's, which the update has waited for. */
static ls_rc broadcast_buffers(void *self) {
    ddp *d = self;
    if (d->model->buffer_tensors == 0 || ls_replica_step(d->replica) == 0 || LS_MUTANT(buffers_not_broadcast)) {
        return LS_OK;
    }
    LS_RANGE("buffers");
    void *values = ls_replica_buffers(d->replica);
    int64_t *tracked = ls_replica_tracked(d->replica);
    LS_TRY(ls_ddp_watch_begin(&d->watch));
    ls_rc rc = ls_ddp_watch_check(
        &d->watch,
        ncclBroadcast(values, values, d->model->buffer_count, ls_dtype_nccl(d->dtype), 0, d->watch.comm, d->compute),
        "ncclBroadcast", __FILE__, __LINE__);
    if (rc == LS_OK) {
        rc = ls_ddp_watch_check(
            &d->watch,
            ncclBroadcast(tracked, tracked, d->model->tracked_count, ncclInt64, 0, d->watch.comm, d->compute),
            "ncclBroadcast", __FILE__, __LINE__);
    }
    ls_ddp_watch_end(&d->watch);
    LS_TRY(rc);
    d->counters.broadcasts += 2;
    d->counters.broadcast_bytes +=
        d->model->buffer_count * ls_dtype_size(d->dtype) + d->model->tracked_count * sizeof *tracked;
    ls_collective counts = {
        .kind = LS_COLLECTIVE_BROADCAST, .element = sizeof *tracked, .count = d->model->tracked_count};
    LS_TRY(ls_protocol_broadcast(&d->protocol, d->dtype, d->model->buffer_count, 0));
    LS_TRY(ls_protocol_note(&d->protocol, counts));
    return enqueued(d, d->compute);
}

static ls_rc run_step(void *self) {
    ddp *d = self;
    ls_hooks hooks = {.self = d, .before_forward = broadcast_buffers};
    LS_TRY(ls_replica_scale(d->replica));
    LS_TRY(ls_replica_forward(d->replica, &hooks));
    LS_TRY(ls_replica_loss(d->replica, ls_setup_denominator(ls_replica_batch_count(d->replica))));
    LS_TRY(backward(d));
    return ls_replica_update(d->replica);
}

static void replayed(void *self) {
    ls_replica_replayed(((ddp *)self)->replica, true);
}

static ls_rc launch(void *self, cudaGraphExec_t exec) {
    ddp *d = self;
    LS_TRY(ls_ddp_watch_begin(&d->watch));
    ls_rc rc = ls_cuda_check(cudaGraphLaunch(exec, d->compute), "cudaGraphLaunch", __FILE__, __LINE__);
    ls_ddp_watch_end(&d->watch);
    LS_TRY(rc);
    return ls_ddp_watch_enqueued(&d->watch, d->compute);
}

static ls_rc keep_failure(ddp *d, ls_rc rc) {
    d->failed = d->failed || rc != LS_OK;
    return rc;
}

static ls_rc ddp_step(void *self, const ls_batch *batch, size_t global_count) {
    (void)global_count; /* the mean over ranks of their means: PyTorch divides by W whatever each rank's count */
    ddp *d = self;
    LS_RANGE_NUMBERED("step", ls_replica_step(d->replica));
    ls_step_parts parts = {.self = d,
                           .stream = d->compute,
                           .run = run_step,
                           .replayed = replayed,
                           .launch = launch,
                           .counters = &d->counters,
                           .protocol = &d->protocol};
    ls_rc rc = ls_replica_load(d->replica, batch);
    rc = rc == LS_OK ? ls_step_graph_run(&d->graph, &parts, batch->count) : rc;
    if (rc != LS_OK) {
        ls_ddp_watch_explain(&d->watch);
    }
    return keep_failure(d, rc);
}

/* Results. All wait through the watch, so that a failed peer is named instead of waited for. */

static ls_rc ddp_synchronize(void *self) {
    LS_RANGE("wait");
    ddp *d = self;
    return keep_failure(d, ls_ddp_watch_wait(&d->watch, d->compute));
}

static ls_rc ddp_loss(void *self, double *mean) {
    LS_TRY(ddp_synchronize(self));
    return ls_replica_read_loss(((ddp *)self)->replica, mean);
}

static ls_rc ddp_gradients(void *self, void *flat) {
    LS_TRY(ddp_synchronize(self));
    return ls_replica_read_grads(((ddp *)self)->replica, flat);
}

static ls_rc ddp_parameters(void *self, void *flat) {
    LS_TRY(ddp_synchronize(self));
    return ls_replica_read_params(((ddp *)self)->replica, flat);
}

static ls_rc sum_on_device(ddp *d, double *values, size_t count) {
    if (count > d->sums_capacity) {
        LS_CUDA(cudaFree(d->sums));
        d->sums = NULL;
        d->sums_capacity = 0;
        LS_CUDA(cudaMalloc((void **)&d->sums, count * sizeof *d->sums));
        d->sums_capacity = count;
    }
    LS_CUDA(cudaMemcpyAsync(d->sums, values, count * sizeof *values, cudaMemcpyHostToDevice, d->compute));
    LS_TRY(ls_ddp_watch_begin(&d->watch));
    ls_rc rc = ls_ddp_watch_check(
        &d->watch, ncclAllReduce(d->sums, d->sums, count, ncclFloat64, ncclSum, d->watch.comm, d->compute),
        "ncclAllReduce", __FILE__, __LINE__);
    ls_ddp_watch_end(&d->watch);
    LS_TRY(rc);
    LS_TRY(ls_protocol_allreduce(&d->protocol, LS_FLOAT64, count));
    LS_TRY(ls_ddp_watch_enqueued(&d->watch, d->compute));
    LS_TRY(ls_ddp_watch_wait(&d->watch, d->compute));
    LS_CUDA(cudaMemcpyAsync(values, d->sums, count * sizeof *values, cudaMemcpyDeviceToHost, d->compute));
    LS_CUDA(cudaStreamSynchronize(d->compute));
    return LS_OK;
}

static ls_rc ddp_sum(void *self, double *values, size_t count) {
    ddp *d = self;
    return count == 0 ? LS_OK : keep_failure(d, sum_on_device(d, values, count));
}

static ls_replica *ddp_replica(void *self, size_t index, size_t *count) {
    if (count != NULL) {
        *count = 1;
    }
    return index == 0 ? ((ddp *)self)->replica : NULL;
}

static void ddp_counters(void *self, ls_counters *out) {
    ddp *d = self;
    *out = d->counters;
    ls_ddp_overlap_read(&d->overlap, out);
}

static ls_protocol *ddp_protocol(void *self) {
    return &((ddp *)self)->protocol;
}

const ls_impl ls_impl_ddp = {
    .name = "ddp",
    .summary = "DistributedDataParallel: one rank a device, NCCL allreduce of buckets under backward",
    .capabilities = LS_CAP_RANK_THREADS | LS_CAP_RANK_PROCESSES | LS_CAP_BUCKETS | LS_CAP_MULTI_DEVICE | LS_CAP_GRAPH |
                    LS_CAP_NCCL | LS_CAP_NCCL_REGISTER,
    .reduction = LS_REDUCTION_MEAN,
    .ranks = ddp_ranks,
    .open = ddp_open,
    .step = ddp_step,
    .synchronize = ddp_synchronize,
    .loss = ddp_loss,
    .gradients = ddp_gradients,
    .parameters = ddp_parameters,
    .sum = ddp_sum,
    .replica = ddp_replica,
    .counters = ddp_counters,
    .protocol = ddp_protocol,
    .close = ddp_close,
};
