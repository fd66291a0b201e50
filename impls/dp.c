/* dp: DataParallel. One process, one host thread, N devices. Each step, as torch.nn.DataParallel does it: the batch is
 * scattered by torch.chunk's rule, the parameters of the first device are copied to the others, every device runs forward,
 * outputs are gathered onto the first device, which computes one loss over the whole batch, output gradients are scattered
 * back, every device runs backward, and gradients are summed onto the first device, which updates its parameters
 * (torch/nn/parallel/data_parallel.py, _functions.py: Broadcast's backward is a sum, without division).
 *
 * All of it is enqueued without waiting on the host. Device d's work runs on its replica's stream; what crosses devices is
 * ordered by three events a step:
 *   start     first device, at the step's start: its parameters are updated, its buffers and all gradients are free again;
 *   done[d]   device d: its outputs have arrived, later in the step: its gradients are complete;
 *   loss_done first device: the output gradients can be fetched.
 * No buffer is written before the last step's readers have finished: they all precede the first device's update, which
 * precedes `start`. */
#include <stdlib.h>

#include "gpu/kernels/kernels.h"
#include "gpu/layer_math.h"
#include "gpu/range.h"
#include "impls/chunk.h"
#include "impls/devices.h"
#include "impls/mutant_terms.h"
#include "impls/setup.h"
#include "impls/step_graph.h"
#include "impls/table.h"
#include "reference/loss.h"
#include "reference/replica_buffers.h"
#include "reference/upload.h"

/* One of the devices. */
typedef struct device {
    int id;
    ls_replica *replica;
    cudaStream_t stream; /* the replica's */
    void *rows;          /* on this device: its chunk's outputs, then their gradients, sample-major */
    cudaEvent_t done;
    size_t first, count; /* its chunk of the step under way */
} device;

typedef struct dp {
    size_t device_count;
    device *devices;
    size_t param_count, classes, element;
    ls_dtype dtype;
    size_t batch_count; /* of the last step */
    bool has_targets;   /* its batch had float targets */
    ls_step_graph graph;
    cudaEvent_t start, loss_done;
    ls_counters counters;
    /* on the first device */
    ls_loss *loss;
    void *rows;             /* [max_batch][classes], sample-major: gathered outputs, then their gradients */
    void *logits, *dlogits; /* the same in the platform's layout */
    ls_upload answers;      /* to all of the batch: */
    int32_t *labels;        /* [max_batch] */
    float *targets;         /* [max_batch][classes], of a data set that has some */
    void *incoming;         /* [param_count]: the gradients of another device */
} dp;

static size_t dp_ranks(size_t devices) {
    (void)devices;
    return 1;
}

/* Copies between devices on stream, counted. */
static ls_rc copy_between(dp *d, void *to, int to_device, const void *from, int from_device, size_t bytes,
                          cudaStream_t stream) {
    d->counters.peer_copies++;
    d->counters.peer_copy_bytes += bytes;
    LS_CUDA(cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream));
    return LS_OK;
}

static void *row(const dp *d, void *rows, size_t sample) {
    return (char *)rows + sample * d->classes * d->element;
}

/* Opening. */

/* Lets two devices copy directly where the hardware can; copies go through the host otherwise. */
static ls_rc enable_peer(int from, int to) {
    int possible = 0;
    if (from == to) {
        return LS_OK; /* shared: a copy on one device */
    }
    LS_CUDA(cudaDeviceCanAccessPeer(&possible, from, to));
    if (!possible) {
        return LS_OK;
    }
    LS_CUDA(cudaSetDevice(from));
    cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError(); /* an earlier run of this process enabled it: clears the recorded error */
        return LS_OK;
    }
    LS_CUDA(status);
    return LS_OK;
}

static ls_rc open_device(dp *d, const ls_run *run, const ls_model *model, size_t chunk, size_t index, int id) {
    device *dev = &d->devices[index];
    dev->id = id;
    LS_TRY(ls_setup_replica(run, model, id, chunk, &dev->replica));
    dev->stream = ls_replica_stream(dev->replica);
    /* Each device draws masks of its own, and only the first one's buffers count: what the others add to theirs is lost, as in
     * PyTorch, where replicas are made anew for every step. */
    ls_replica_set_masks(dev->replica, run->seed, index);
    LS_CUDA(cudaMalloc(&dev->rows, chunk * d->classes * d->element));
    LS_CUDA(cudaEventCreateWithFlags(&dev->done, cudaEventDisableTiming));
    if (index > 0) {
        LS_TRY(enable_peer(id, d->devices[0].id));
        LS_TRY(enable_peer(d->devices[0].id, id));
    }
    return LS_OK;
}

/* What only the first device has. */
static ls_rc open_first(dp *d, const ls_run *run, size_t max_batch) {
    size_t activations = ls_activation_count(max_batch, d->classes) * d->element;
    LS_CUDA(cudaSetDevice(d->devices[0].id));
    LS_CUDA(cudaEventCreateWithFlags(&d->start, cudaEventDisableTiming));
    LS_CUDA(cudaEventCreateWithFlags(&d->loss_done, cudaEventDisableTiming));
    LS_CUDA(cudaMalloc(&d->rows, max_batch * d->classes * d->element));
    LS_CUDA(cudaMalloc(&d->logits, activations));
    LS_CUDA(cudaMalloc(&d->dlogits, activations));
    size_t labels = max_batch * sizeof *d->labels, targets = max_batch * d->classes * sizeof *d->targets;
    LS_CUDA(cudaMalloc((void **)&d->labels, labels));
    LS_CUDA(cudaMalloc((void **)&d->targets, targets));
    LS_TRY(ls_upload_open(&d->answers, d->devices[0].stream, ls_replica_input_stream(d->devices[0].replica),
                          ls_upload_room(labels) + ls_upload_room(targets)));
    LS_CUDA(cudaMalloc(&d->incoming, d->param_count * d->element));
    LS_TRY(ls_loss_open(&run->loss, d->dtype, d->classes, max_batch, d->devices[0].stream, &d->loss));
    return ls_setup_initial(d->devices[0].replica, run->seed);
}

static ls_rc open_all(dp *d, const ls_run *run, const ls_rank *rank, const ls_model *model, size_t max_batch) {
    d->devices = ls_calloc(run->devices, sizeof *d->devices, "the devices of dp");
    if (d->devices == NULL) {
        return LS_DEVICE_FAILED;
    }
    d->device_count = run->devices;
    size_t chunk = ls_chunk_size(max_batch, run->devices);
    for (size_t i = 0; i < run->devices; i++) {
        int id = 0;
        LS_TRY(ls_devices_place(run, (size_t)rank->device + i, &id));
        LS_TRY(open_device(d, run, model, chunk, i, id));
    }
    return open_first(d, run, max_batch);
}

static void dp_close(void *self) {
    dp *d = self;
    if (d == NULL) {
        return;
    }
    /* Clean-up goes on after errors: what failed has been printed by the call that failed first. */
    ls_rc failed = LS_DEVICE_FAILED;
    for (size_t i = 0; i < d->device_count; i++) {
        device *dev = &d->devices[i];
        if (dev->replica != NULL) {
            (void)cudaSetDevice(dev->id);
            (void)cudaStreamSynchronize(dev->stream);
        }
    }
    ls_step_graph_close(&d->graph);
    for (size_t i = d->device_count; i-- > 0;) {
        device *dev = &d->devices[i];
        if (dev->replica == NULL) {
            continue;
        }
        (void)cudaSetDevice(dev->id);
        if (i == 0) {
            ls_loss_close(d->loss);
            ls_upload_close(&d->answers, &failed);
            (void)cudaFree(d->incoming);
            (void)cudaFree(d->labels);
            (void)cudaFree(d->targets);
            (void)cudaFree(d->dlogits);
            (void)cudaFree(d->logits);
            (void)cudaFree(d->rows);
            if (d->loss_done != NULL) {
                (void)cudaEventDestroy(d->loss_done);
            }
            if (d->start != NULL) {
                (void)cudaEventDestroy(d->start);
            }
        }
        if (dev->done != NULL) {
            (void)cudaEventDestroy(dev->done);
        }
        (void)cudaFree(dev->rows);
        ls_replica_close(dev->replica);
    }
    free(d->devices);
    free(d);
}

static ls_rc dp_open(const ls_run *run, const ls_rank *rank, const ls_model *model, size_t max_batch, void **self) {
    *self = NULL;
    dp *d = ls_calloc(1, sizeof *d, "DataParallel");
    if (d == NULL) {
        return LS_DEVICE_FAILED;
    }
    d->dtype = run->dtype;
    d->element = ls_dtype_size(run->dtype);
    d->param_count = model->param_count;
    d->classes = model->classes;
    ls_rc rc = open_all(d, run, rank, model, max_batch);
    if (rc != LS_OK) {
        dp_close(d);
        return rc;
    }
    ls_step_graph_open(&d->graph, run, max_batch);
    *self = d;
    return LS_OK;
}

/* A step. */

/* The parameters of the first device to another. */
static ls_rc copy_parameters(dp *d, device *dev) {
    LS_RANGE("parameters");
    device *first = &d->devices[0];
    if (LS_MUTANT(parameters_not_copied) && dev == &d->devices[1]) {
        return LS_OK;
    }
    LS_TRY(copy_between(d, ls_replica_params(dev->replica), dev->id, ls_replica_params(first->replica), first->id,
                        d->param_count * d->element, dev->stream));
    double drift = LS_MUTANT(drift_1e_3) ? 1e-3 : LS_MUTANT(drift_1e_5) ? 1e-5 : LS_MUTANT(drift_1e_6) ? 1e-6 : 0;
    if (drift != 0 && dev == &d->devices[1]) {
        LS_CUDA(ls_kernel_scale(dev->stream, d->dtype, d->param_count, 1 + drift, ls_replica_params(dev->replica)));
    }
    return LS_OK;
}

/* Scatters the batch: each device gets its chunk, the first one the answers to all of it. */
static ls_rc scatter(dp *d, const ls_batch *batch) {
    LS_RANGE("scatter");
    size_t features = ls_shape_features(ls_replica_model(d->devices[0].replica)->input);
    d->batch_count = batch->count;
    d->has_targets = batch->targets != NULL;
    for (size_t i = d->device_count; i-- > 0;) { /* the first device last: it stays current */
        device *dev = &d->devices[i];
        dev->count = ls_chunk(batch->count, d->device_count, i, &dev->first);
        size_t from = dev->first;
        if (LS_MUTANT(chunks_overlap) && from > 0 && dev->count > 0) {
            from--;
        }
        ls_batch chunk = ls_batch_part(batch, features, from, dev->count);
        LS_CUDA(cudaSetDevice(dev->id));
        LS_TRY(ls_replica_load(dev->replica, &chunk));
    }
    if (batch->count == 0) {
        return LS_OK;
    }
    const ls_upload_part parts[] = {
        {d->labels, batch->labels, batch->count * sizeof *d->labels},
        {d->targets, batch->targets, batch->count * d->classes * sizeof *d->targets},
    };
    return ls_upload_run(&d->answers, parts, d->has_targets ? 2 : 1);
}

/* Replicate, forward; outputs leave for the first device. A device without samples has no kernels to run. */
static ls_rc forward(dp *d) {
    device *first = &d->devices[0];
    LS_CUDA(cudaSetDevice(first->id));
    LS_CUDA(cudaEventRecord(d->start, first->stream));
    for (size_t i = 0; i < d->device_count; i++) {
        device *dev = &d->devices[i];
        LS_CUDA(cudaSetDevice(dev->id));
        LS_CUDA(cudaStreamWaitEvent(dev->stream, d->start, 0));
        LS_TRY(ls_replica_scale(dev->replica));
        if (i > 0 && dev->count > 0) {
            LS_TRY(copy_parameters(d, dev));
        }
        LS_TRY(ls_replica_forward(dev->replica, NULL));
        if (dev->count == 0) {
            continue;
        }
        void *gathered = row(d, d->rows, dev->first);
        LS_CUDA(ls_kernel_from_lanes(dev->stream, d->element, ls_lanes(), dev->count, d->classes,
                                     ls_replica_output(dev->replica), i == 0 ? gathered : dev->rows));
        if (i > 0) {
            LS_TRY(copy_between(d, gathered, first->id, dev->rows, dev->id, dev->count * d->classes * d->element,
                                dev->stream));
            LS_CUDA(cudaEventRecord(dev->done, dev->stream));
        }
    }
    return LS_OK;
}

/* One loss over the gathered outputs, on the first device. */
static ls_rc loss(dp *d) {
    LS_RANGE("loss");
    device *first = &d->devices[0];
    LS_CUDA(cudaSetDevice(first->id));
    for (size_t i = 1; i < d->device_count; i++) {
        if (d->devices[i].count > 0) {
            LS_CUDA(cudaStreamWaitEvent(first->stream, d->devices[i].done, 0));
        }
    }
    size_t count = d->batch_count;
    LS_CUDA(ls_kernel_to_lanes(first->stream, d->element, ls_lanes(), count, d->classes, d->rows, d->logits));
    LS_TRY(ls_loss_compute(d->loss, ls_lanes(), count, d->logits, d->labels, d->has_targets ? d->targets : NULL,
                           (double)count, d->dlogits));
    LS_CUDA(ls_kernel_from_lanes(first->stream, d->element, ls_lanes(), count, d->classes, d->dlogits, d->rows));
    LS_CUDA(cudaEventRecord(d->loss_done, first->stream));
    return LS_OK;
}

/* Every device fetches its output gradients and runs backward. */
static ls_rc backward(dp *d) {
    for (size_t i = 0; i < d->device_count; i++) {
        device *dev = &d->devices[i];
        LS_CUDA(cudaSetDevice(dev->id));
        if (dev->count > 0) {
            void *rows = row(d, d->rows, dev->first);
            if (i > 0) {
                LS_CUDA(cudaStreamWaitEvent(dev->stream, d->loss_done, 0));
                LS_TRY(copy_between(d, dev->rows, dev->id, rows, d->devices[0].id, dev->count * d->classes * d->element,
                                    dev->stream));
                rows = dev->rows;
            }
            if (LS_MUTANT(mean_of_means)) {
                size_t chunk = ls_chunk_size(d->batch_count, d->device_count);
                double used = (double)ls_chunk_size(d->batch_count, chunk);
                LS_CUDA(ls_kernel_scale(dev->stream, d->dtype, dev->count * d->classes,
                                        (double)d->batch_count / (used * (double)dev->count), rows));
            }
            LS_CUDA(ls_kernel_to_lanes(dev->stream, d->element, ls_lanes(), dev->count, d->classes, rows,
                                       ls_replica_output_grad(dev->replica)));
        }
        LS_TRY(ls_replica_backward(dev->replica, NULL));
        LS_CUDA(cudaEventRecord(dev->done, dev->stream));
    }
    return LS_OK;
}

/* Sums the gradients onto the first device, in device order. */
static ls_rc reduce(dp *d) {
    LS_RANGE("reduce");
    device *first = &d->devices[0];
    void *sum = ls_replica_grads(first->replica);
    ls_mutant_place place = {.model = ls_replica_model(first->replica),
                             .dtype = d->dtype,
                             .step = ls_replica_step(first->replica) - 1,
                             .stream = first->stream};
    LS_CUDA(cudaSetDevice(first->id));
    LS_TRY(ls_mutant_term(&place, 0, d->param_count, sum));
    for (size_t i = 1; i < d->device_count; i++) {
        device *dev = &d->devices[i];
        LS_CUDA(cudaStreamWaitEvent(first->stream, dev->done, 0));
        if (LS_MUTANT(idle_device_averaged) && dev->count == 0) {
            LS_CUDA(ls_kernel_scale(first->stream, d->dtype, d->param_count, 0.0 / (double)dev->count, sum));
        }
        if (dev->count == 0) {
            continue; /* zeros; waited for, so that the update ends the step of every device */
        }
        LS_TRY(copy_between(d, d->incoming, first->id, ls_replica_grads(dev->replica), dev->id,
                            d->param_count * d->element, first->stream));
        place.last = i == d->device_count - 1;
        LS_TRY(ls_mutant_term(&place, 0, d->param_count, d->incoming));
        LS_CUDA(ls_kernel_add(first->stream, d->dtype, d->param_count, d->incoming, sum));
    }
    if (LS_MUTANT(sum_divided)) {
        LS_CUDA(ls_kernel_scale(first->stream, d->dtype, d->param_count, ls_setup_share(d->device_count), sum));
    }
    return ls_mutant_sum(&place, 0, d->param_count, sum);
}

static ls_rc run_step(void *self) {
    dp *d = self;
    LS_TRY(forward(d));
    if (d->batch_count > 0) {
        LS_TRY(loss(d));
    }
    LS_TRY(backward(d));
    LS_TRY(reduce(d));
    return ls_replica_update(d->devices[0].replica);
}

/* A graph is launched into the first device's stream, and runs on all devices: it starts when every device has its chunk, and
 * the other devices' streams go on when it is over. */
static ls_rc launch(void *self, cudaGraphExec_t exec) {
    dp *d = self;
    device *first = &d->devices[0];
    for (size_t i = 1; i < d->device_count; i++) {
        device *dev = &d->devices[i];
        LS_CUDA(cudaSetDevice(dev->id));
        LS_CUDA(cudaEventRecord(dev->done, dev->stream));
    }
    LS_CUDA(cudaSetDevice(first->id));
    for (size_t i = 1; i < d->device_count; i++) {
        LS_CUDA(cudaStreamWaitEvent(first->stream, d->devices[i].done, 0));
    }
    LS_CUDA(cudaGraphLaunch(exec, first->stream));
    LS_CUDA(cudaEventRecord(d->start, first->stream));
    for (size_t i = 1; i < d->device_count; i++) {
        LS_CUDA(cudaStreamWaitEvent(d->devices[i].stream, d->start, 0));
    }
    return LS_OK;
}

static void replayed(void *self) {
    dp *d = self;
    for (size_t i = 0; i < d->device_count; i++) {
        ls_replica_replayed(d->devices[i].replica, i == 0);
    }
    ls_loss_replayed(d->loss, d->batch_count);
}

static ls_rc dp_step(void *self, const ls_batch *batch, size_t global_count) {
    (void)global_count; /* the batch is the global batch */
    dp *d = self;
    LS_RANGE_NUMBERED("step", ls_replica_step(d->devices[0].replica));
    ls_step_parts parts = {.self = d,
                           .stream = d->devices[0].stream,
                           .run = run_step,
                           .replayed = replayed,
                           .launch = launch,
                           .counters = &d->counters};
    LS_TRY(scatter(d, batch));
    return ls_step_graph_run(&d->graph, &parts, batch->count);
}

/* Results. */

static ls_rc dp_synchronize(void *self) {
    LS_RANGE("wait");
    dp *d = self;
    for (size_t i = d->device_count; i-- > 0;) { /* the first device last: it stays current */
        LS_CUDA(cudaSetDevice(d->devices[i].id));
        LS_CUDA(cudaStreamSynchronize(d->devices[i].stream));
    }
    return LS_OK;
}

static ls_rc dp_loss(void *self, double *mean) {
    dp *d = self;
    *mean = 0.0;
    if (d->batch_count == 0) {
        return LS_OK;
    }
    return ls_loss_read(d->loss, mean);
}

static ls_rc dp_gradients(void *self, void *flat) {
    return ls_replica_read_grads(((dp *)self)->devices[0].replica, flat);
}

static ls_rc dp_parameters(void *self, void *flat) {
    return ls_replica_read_params(((dp *)self)->devices[0].replica, flat);
}

static ls_rc dp_sum(void *self, double *values, size_t count) {
    (void)self;
    (void)values; /* a sum over one rank */
    (void)count;
    return LS_OK;
}

static ls_replica *dp_replica(void *self, size_t index, size_t *count) {
    dp *d = self;
    if (count != NULL) {
        *count = d->device_count;
    }
    return index < d->device_count ? d->devices[index].replica : NULL;
}

static void dp_counters(void *self, ls_counters *out) {
    *out = ((dp *)self)->counters;
}

const ls_impl ls_impl_dp = {
    .name = "dp",
    .summary = "DataParallel: one process drives all devices, one loss over the gathered outputs",
    .capabilities = LS_CAP_MULTI_DEVICE | LS_CAP_GRAPH | LS_CAP_SHARED_DEVICES,
    .reduction = LS_REDUCTION_SUM,
    .ranks = dp_ranks,
    .open = dp_open,
    .step = dp_step,
    .synchronize = dp_synchronize,
    .loss = dp_loss,
    .gradients = dp_gradients,
    .parameters = dp_parameters,
    .sum = dp_sum,
    .replica = dp_replica,
    .counters = dp_counters,
    .close = dp_close,
};
