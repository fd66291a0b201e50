/* mpi: one process a device under Open MPI. Gradients are averaged by MPI_Allreduce from host memory: each bucket is
 * multiplied by 1/W on the device and copied to pinned host memory as soon as backward has made it ready, reduced there in
 * index order, and copied back before the update. MPI need not be CUDA-aware for that. With --mpi-buffers device it is given the
 * bucket itself, once the host has seen that the device is done with it.
 *
 * One stream orders everything on the device: the copy of a bucket to the host, the copy back (enqueued after the host has
 * seen the first one complete), the update, and the next step's copy to the host into the same memory. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/kernels/kernels.h"
#include "gpu/range.h"
#include "impls/buckets.h"
#include "impls/launch_mpi_buffers.h"
#include "impls/mpi_check.h"
#include "impls/mutant_terms.h"
#include "impls/setup.h"
#include "impls/table.h"
#include "reference/replica_buffers.h"

typedef struct mpi {
    ls_mpi_world world;
    int device;
    const ls_model *model;
    ls_dtype dtype;
    ls_replica *replica;
    cudaStream_t stream; /* the replica's */
    ls_counters counters;
    ls_protocol protocol;
    bool failed;
    ls_bucket_plan plan;
    size_t next;    /* the first bucket not yet copied to the host in this step */
    size_t missing; /* gradients that this bucket still waits for */
    bool reverse;   /* the last bucket is reduced first */
    bool on_device; /* MPI is given device pointers */
    cudaEvent_t
        copied[LS_MODEL_MAX_PARAMS]; /* [plan.count]: the bucket has arrived on the host, or is done on the device */
    void *host;                      /* pinned, [param_count] */
    void *buffers;                   /* [buffer_count]; NULL without */
    int64_t *tracked;                /* [tracked_count]; NULL without */
} mpi;

static size_t mpi_ranks(size_t devices) {
    return devices;
}

/* Whether mpirun is in PATH. */
static bool mpi_available(char *why, size_t size) {
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        size_t length = strcspn(path, ":");
        char candidate[LS_PATH_SIZE];
        int written = snprintf(candidate, sizeof candidate, "%.*s/mpirun", (int)length, path);
        if (written > 0 && (size_t)written < sizeof candidate && access(candidate, X_OK) == 0) {
            return true;
        }
        path += length + (path[length] == ':');
    }
    (void)snprintf(why, size, "mpirun is not in PATH; it comes with Debian's package openmpi-bin");
    return false;
}

/* Opening. */

static MPI_Datatype mpi_type(ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? MPI_DOUBLE : MPI_FLOAT;
}

/* Rank 0's initial values to all, through host memory. */
static ls_rc broadcast_parameters(mpi *m, uint64_t seed) {
    if (LS_MUTANT(no_broadcast)) {
        return ls_setup_initial(m->replica, seed + m->world.rank);
    }
    size_t element = ls_dtype_size(m->dtype);
    if (m->world.rank == 0) {
        LS_TRY(ls_setup_initial(m->replica, seed));
        LS_TRY(ls_replica_read_params(m->replica, m->host));
    }
    for (size_t done = 0; done < m->model->param_count;) {
        size_t left = m->model->param_count - done;
        int part = left < INT_MAX ? (int)left : INT_MAX;
        LS_MPI(MPI_Bcast((char *)m->host + done * element, part, mpi_type(m->dtype), 0, MPI_COMM_WORLD));
        done += (size_t)part;
    }
    m->counters.broadcasts++;
    m->counters.broadcast_bytes += m->model->param_count * element;
    LS_TRY(ls_protocol_broadcast(&m->protocol, m->dtype, m->model->param_count, 0));
    /* Not waited for: the next use of the host memory is a copy that follows on the same stream. */
    LS_CUDA(cudaMemcpyAsync(ls_replica_params(m->replica), m->host, m->model->param_count * element,
                            cudaMemcpyHostToDevice, m->stream));
    return LS_OK;
}

static ls_rc open_all(mpi *m, const ls_run *run, size_t max_batch) {
    LS_TRY(ls_setup_replica(run, m->model, m->device, max_batch, &m->replica));
    m->stream = ls_replica_stream(m->replica);
    ls_replica_set_masks(m->replica, run->seed, m->world.rank);
    size_t cap = LS_MUTANT(cap_ignored) ? SIZE_MAX : run->bucket_bytes;
    ls_bucket_plan_make(m->model, m->dtype, cap, &m->plan);
    LS_TRY(ls_mpi_buffers_of_rank(run, &m->on_device));
    m->protocol = (ls_protocol){.record = run->capture, .plan = &m->plan};
    m->counters.buckets = m->plan.count;
    for (size_t i = 0; i < m->plan.count; i++) {
        LS_CUDA(cudaEventCreateWithFlags(&m->copied[i], cudaEventDisableTiming | cudaEventBlockingSync));
    }
    LS_CUDA(cudaMallocHost(&m->host, m->model->param_count * ls_dtype_size(m->dtype)));
    if (m->model->buffer_tensors > 0) {
        m->buffers = ls_calloc(m->model->buffer_count, ls_dtype_size(m->dtype), "buffers");
        m->tracked = ls_calloc(m->model->tracked_count, sizeof *m->tracked, "buffers");
        if (m->buffers == NULL || m->tracked == NULL) {
            return LS_DEVICE_FAILED;
        }
    }
    return broadcast_parameters(m, run->seed);
}

/* What MPI says against what the run and the launcher's environment say. */
static ls_rc check_world(const ls_mpi_world *world, const ls_run *run, const ls_rank *rank) {
    if (world->size != run->devices) {
        /* All ranks see the same, so the first speaks for all. */
        return world->rank != 0 ? LS_BAD_INPUT
                                : ls_fail(LS_BAD_INPUT,
                                          "the run has %zu devices, mpirun started %zu processes; start one process a "
                                          "device (mpirun -n %zu)",
                                          run->devices, world->size, run->devices);
    }
    if (world->rank != rank->rank) {
        return ls_fail(LS_BAD_INPUT, "the launcher's environment says rank %zu, the MPI library says rank %zu",
                       rank->rank, world->rank);
    }
    return LS_OK;
}

static void release(mpi *m) {
    /* Clean-up goes on after errors: what failed has been printed by the call that failed first. */
    if (m->replica != NULL) {
        (void)cudaSetDevice(m->device);
        (void)cudaStreamSynchronize(m->stream);
    }
    (void)cudaFreeHost(m->host);
    ls_protocol_close(&m->protocol);
    free(m->buffers);
    free(m->tracked);
    for (size_t i = 0; i < m->plan.count; i++) {
        if (m->copied[i] != NULL) {
            (void)cudaEventDestroy(m->copied[i]);
        }
    }
    if (m->replica != NULL) {
        ls_replica_close(m->replica);
    }
    free(m);
}

static void mpi_close(void *self) {
    mpi *m = self;
    if (m == NULL) {
        return;
    }
    if (m->failed) {
        ls_mpi_stop(1); /* does not return: peers may be waiting for this rank */
    }
    release(m);
    ls_mpi_stop(0);
}

static ls_rc mpi_open(const ls_run *run, const ls_rank *rank, const ls_model *model, size_t max_batch, void **self) {
    *self = NULL;
    mpi *m = ls_calloc(1, sizeof *m, "the MPI implementation");
    if (m == NULL) {
        return LS_DEVICE_FAILED;
    }
    m->device = rank->device;
    m->model = model;
    m->dtype = run->dtype;
    m->reverse = run->reverse_buckets;
    ls_rc rc = ls_mpi_start(&m->world);
    rc = rc == LS_OK ? check_world(&m->world, run, rank) : rc;
    if (rc != LS_OK) { /* the same on all ranks: they end in order */
        mpi_close(m);
        return rc;
    }
    rc = open_all(m, run, max_batch);
    if (rc != LS_OK) {
        release(
            m); /* the caller records that this rank failed and ends it, and so mpirun its peers, which may wait for it */
        return rc;
    }
    *self = m;
    return LS_OK;
}

/* A step. */

static size_t bucket_tensors(const ls_bucket *bucket) {
    return bucket->last - bucket->first + 1;
}

static ls_mutant_place place_of(const mpi *m) {
    return (ls_mutant_place){.model = m->model,
                             .dtype = m->dtype,
                             .plan = &m->plan,
                             .step = ls_replica_step(m->replica) - 1,
                             .stream = m->stream,
                             .last = m->world.rank == m->world.size - 1};
}

/* Enqueues what comes before the reduction of a bucket whose gradients have all been enqueued. */
static ls_rc prepare_bucket(mpi *m, size_t index) {
    LS_RANGE_NUMBERED("bucket", index);
    const ls_bucket *bucket = &m->plan.buckets[index];
    size_t element = ls_dtype_size(m->dtype);
    void *flat = ls_replica_grads(m->replica);
    char *grads = (char *)flat + bucket->offset * element;
    ls_mutant_place place = place_of(m);
    LS_TRY(ls_mutant_term(&place, bucket->offset, bucket->count, flat));
    LS_CUDA(ls_kernel_scale(m->stream, m->dtype, bucket->count, ls_setup_share(m->world.size), grads));
    if (!m->on_device) {
        LS_CUDA(cudaMemcpyAsync((char *)m->host + bucket->offset * element, grads, bucket->count * element,
                                cudaMemcpyDeviceToHost, m->stream));
    }
    LS_CUDA(cudaEventRecord(m->copied[index], m->stream));
    return LS_OK;
}

/* Gradients become ready in the order of the flat buffer, so the bucket under way is always the next one. */
static ls_rc grad_ready(void *self, size_t position) {
    mpi *m = self;
    const ls_bucket *bucket = &m->plan.buckets[m->next];
    if (m->next == m->plan.count || position < bucket->first || position > bucket->last) {
        return ls_fail(LS_DEVICE_FAILED, "gradient %zu became ready out of order", position);
    }
    if (--m->missing > 0) {
        return LS_OK;
    }
    LS_TRY(prepare_bucket(m, m->next));
    m->next++;
    m->missing = m->next < m->plan.count ? bucket_tensors(&m->plan.buckets[m->next]) : 0;
    return LS_OK;
}

/* The sum of a bucket over ranks, where MPI has it. */
static ls_rc allreduce(mpi *m, const ls_bucket *bucket, void *values) {
    size_t count = bucket->count;
    if (LS_MUTANT(count_differs) && m->world.rank == m->world.size - 1) {
        count--;
    }
    if (!m->on_device) {
        LS_TRY(LS_AT(ls_platform_host_access(values, bucket->count * ls_dtype_size(m->dtype), 1)));
    }
    LS_TRY(ls_mpi_sum(values, count, mpi_type(m->dtype), INT_MAX));
    m->counters.allreduces++;
    m->counters.allreduce_bytes += bucket->count * ls_dtype_size(m->dtype);
    return ls_protocol_allreduce(&m->protocol, m->dtype, count);
}

/* MPI knows nothing of streams. */
static ls_rc await_bucket(const mpi *m, size_t index) {
    LS_RANGE("wait");
    LS_CUDA(cudaEventSynchronize(m->copied[index]));
    return LS_OK;
}

static ls_rc reduce_bucket(mpi *m, size_t index) {
    LS_RANGE_NUMBERED("reduce", index);
    const ls_bucket *bucket = &m->plan.buckets[index];
    size_t element = ls_dtype_size(m->dtype);
    char *values = (char *)m->host + bucket->offset * element;
    void *flat = ls_replica_grads(m->replica);
    char *grads = (char *)flat + bucket->offset * element;
    ls_mutant_place place = place_of(m);
    if (LS_MUTANT(last_bucket_skipped) && index == m->plan.count - 1) {
        return LS_OK;
    }
    LS_TRY(await_bucket(m, index));
    if (m->on_device) {
        LS_TRY(allreduce(m, bucket, grads));
        return ls_mutant_sum(&place, bucket->offset, bucket->count, flat);
    }
    LS_TRY(LS_AT(ls_platform_host_access(values, bucket->count * element, 1)));
    LS_TRY(allreduce(m, bucket, values));
    LS_CUDA(cudaMemcpyAsync(grads, values, bucket->count * element, cudaMemcpyHostToDevice, m->stream));
    return ls_mutant_sum(&place, bucket->offset, bucket->count, flat);
}

/* Reduces every bucket, called by the host, while later ones are still being made. */
static ls_rc reduce(mpi *m) {
    for (size_t i = 0; i < m->plan.count; i++) {
        size_t index = m->reverse ? m->plan.count - 1 - i : i;
        if (LS_MUTANT(bucket_order_differs) && m->world.rank == m->world.size - 1 && m->plan.count > 1 &&
            i + 2 >= m->plan.count) {
            index = 2 * m->plan.count - 3 - i; /* the last two swapped */
        }
        LS_TRY(reduce_bucket(m, index));
    }
    return LS_OK;
}

/* Rank 0's buffers to all at the start of every forward pass after the first, as ddp. */
static ls_rc broadcast_buffers(void *self) {
    mpi *m = self;
    if (m->model->buffer_tensors == 0 || ls_replica_step(m->replica) == 0 || LS_MUTANT(buffers_not_broadcast)) {
        return LS_OK;
    }
    LS_RANGE("buffers");
    LS_TRY(ls_replica_read_buffers(m->replica, m->buffers, m->tracked));
    /* at most 2^28 values a layer's: far below INT_MAX for all layers that fit into memory */
    LS_MPI(MPI_Bcast(m->buffers, (int)m->model->buffer_count, mpi_type(m->dtype), 0, MPI_COMM_WORLD));
    LS_MPI(MPI_Bcast(m->tracked, (int)m->model->tracked_count, MPI_INT64_T, 0, MPI_COMM_WORLD));
    m->counters.broadcasts += 2;
    m->counters.broadcast_bytes +=
        m->model->buffer_count * ls_dtype_size(m->dtype) + m->model->tracked_count * sizeof *m->tracked;
    ls_collective counts = {
        .kind = LS_COLLECTIVE_BROADCAST, .element = sizeof *m->tracked, .count = m->model->tracked_count};
    LS_TRY(ls_protocol_broadcast(&m->protocol, m->dtype, m->model->buffer_count, 0));
    LS_TRY(ls_protocol_note(&m->protocol, counts));
    return ls_replica_write_buffers(m->replica, m->buffers, m->tracked);
}

static ls_rc run_step(mpi *m, const ls_batch *batch) {
    LS_RANGE_NUMBERED("step", ls_replica_step(m->replica));
    ls_hooks hooks = {.self = m, .before_forward = broadcast_buffers, .grad_ready = grad_ready};
    LS_TRY(ls_replica_input(m->replica, batch));
    LS_TRY(ls_replica_forward(m->replica, &hooks));
    LS_TRY(ls_replica_loss(m->replica, ls_setup_denominator(batch->count)));
    m->next = 0;
    m->missing = bucket_tensors(&m->plan.buckets[0]);
    LS_TRY(ls_replica_backward(m->replica, &hooks));
    if (m->next != m->plan.count) {
        return ls_fail(LS_DEVICE_FAILED, "backward ended with bucket %zu of %zu incomplete", m->next, m->plan.count);
    }
    LS_TRY(reduce(m));
    return ls_replica_update(m->replica);
}

static ls_rc keep_failure(mpi *m, ls_rc rc) {
    m->failed = m->failed || rc != LS_OK;
    return rc;
}

static ls_rc mpi_step(void *self, const ls_batch *batch, size_t global_count) {
    (void)global_count; /* the mean over ranks of their means, as ddp */
    return keep_failure(self, run_step(self, batch));
}

/* Results. */

static ls_rc mpi_synchronize(void *self) {
    LS_RANGE("wait");
    mpi *m = self;
    return keep_failure(m,
                        ls_cuda_check(cudaStreamSynchronize(m->stream), "cudaStreamSynchronize", __FILE__, __LINE__));
}

static ls_rc mpi_loss(void *self, double *mean) {
    return ls_replica_read_loss(((mpi *)self)->replica, mean);
}

static ls_rc mpi_gradients(void *self, void *flat) {
    return ls_replica_read_grads(((mpi *)self)->replica, flat);
}

static ls_rc mpi_parameters(void *self, void *flat) {
    return ls_replica_read_params(((mpi *)self)->replica, flat);
}

static ls_rc mpi_sum(void *self, double *values, size_t count) {
    LS_TRY(keep_failure(self, ls_mpi_sum(values, count, MPI_DOUBLE, INT_MAX)));
    return ls_protocol_allreduce(&((mpi *)self)->protocol, LS_FLOAT64, count);
}

static ls_replica *mpi_replica(void *self, size_t index, size_t *count) {
    if (count != NULL) {
        *count = 1;
    }
    return index == 0 ? ((mpi *)self)->replica : NULL;
}

static void mpi_counters(void *self, ls_counters *out) {
    *out = ((mpi *)self)->counters;
}

static ls_protocol *mpi_protocol(void *self) {
    return &((mpi *)self)->protocol;
}

const ls_impl ls_impl_mpi = {
    .name = "mpi",
    .summary = "one process a device under mpirun, MPI_Allreduce of buckets, in host memory by default",
    .capabilities = LS_CAP_MPIRUN | LS_CAP_BUCKETS | LS_CAP_MULTI_DEVICE | LS_CAP_SHARED_DEVICES,
    .reduction = LS_REDUCTION_MEAN,
    .available = mpi_available,
    .ranks = mpi_ranks,
    .open = mpi_open,
    .step = mpi_step,
    .synchronize = mpi_synchronize,
    .loss = mpi_loss,
    .gradients = mpi_gradients,
    .parameters = mpi_parameters,
    .sum = mpi_sum,
    .replica = mpi_replica,
    .counters = mpi_counters,
    .protocol = mpi_protocol,
    .close = mpi_close,
};
