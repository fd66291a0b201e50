/* A replica of a model on one device: parameters, one flat gradient buffer in ready order, activations, and the passes.
 * Nothing here knows how ranks communicate. All calls but open, close and the host copies are asynchronous on the
 * replica's stream; the current device of the calling thread must be the replica's. */
#ifndef LS_REFERENCE_REPLICA_H
#define LS_REFERENCE_REPLICA_H

#include "gpu/gpu.h"
#include "reference/loss.h"
#include "reference/model.h"
#include "reference/optimizer.h"

/* A batch on the host. The memory must stay unchanged until the step that uses it has finished (see ls_batcher). */
typedef struct ls_batch {
    size_t count;          /* samples; may be 0 for a rank without work */
    const uint8_t *pixels; /* [count][features], or NULL with values */
    const float *values;   /* [count][features], or NULL with pixels */
    const int32_t *labels; /* [count] */
    const float *targets;  /* [count][target_count], or NULL: none but the labels */
    size_t target_count;
    const size_t *indices; /* [count] into the data set */
} ls_batch;

/* The samples [first, first + count) of a batch, in the batch's own memory. features: of a sample. */
ls_batch ls_batch_part(const ls_batch *batch, size_t features, size_t first, size_t count);

/* Where a buffer on the current device comes from and goes. allocate prints one line when it fails and leaves NULL. release
 * prints its failure, and sets *rc to it, only when *rc is still LS_OK; NULL is well. */
typedef struct ls_device_memory {
    ls_rc (*allocate)(void **pointer, size_t bytes);
    void (*release)(void *pointer, ls_rc *rc);
} ls_device_memory;

typedef struct ls_replica_options {
    ls_dtype dtype;
    int device;
    size_t max_batch;
    ls_normalize normalize;
    ls_loss_options loss;
    ls_optimizer_options optimizer;
    double lr;                           /* learning rate, until ls_replica_set_lr */
    bool capture;                        /* keep copies of local gradients and decisions for verification */
    const ls_device_memory *grad_memory; /* of the flat gradient buffer; NULL: cudaMalloc and cudaFree */
    bool replays; /* steps are captured in a graph: learning rate and counters are read from device memory */
} ls_replica_options;

/* Called on the host while backward is being enqueued. grad_ready(self, k): the kernels that produce the gradient of
 * ready position k have just been enqueued on the replica's stream. Each may be NULL. */
typedef struct ls_hooks {
    void *self;
    ls_rc (*before_forward)(void *self);
    ls_rc (*grad_ready)(void *self, size_t ready_position);
} ls_hooks;

typedef struct ls_replica ls_replica;

/* Makes options->device current and leaves it so. model must outlive the replica. Parameters, gradients and the
 * optimizer's state start as zeros. */
ls_rc ls_replica_open(const ls_model *model, const ls_replica_options *options, ls_replica **out);
void ls_replica_close(ls_replica *replica);

/* Parameters from float32 initial values in ready order (widened for float64). Synchronous. */
ls_rc ls_replica_init(ls_replica *replica, const float *flat);

/* Copies a batch to the device, with its targets if it has any, and normalises its pixels or values there. */
ls_rc ls_replica_input(ls_replica *replica, const ls_batch *batch);
/* The same in two parts. What load does is another for every step: it copies the batch and, with options.replays, the learning
 * rate and the counters. All that follows in a step, from scale on, is the same for every batch of so many samples but for the
 * first step's update, and can be captured in a graph; replayed then takes note that the graph has been launched in place of the
 * calls from scale on, with (updated) or without the update. */
ls_rc ls_replica_load(ls_replica *replica, const ls_batch *batch);
ls_rc ls_replica_scale(ls_replica *replica);
void ls_replica_replayed(ls_replica *replica, bool updated);
/* Forward pass of the batch last given. */
ls_rc ls_replica_forward(ls_replica *replica, const ls_hooks *hooks);
/* The loss (options.loss) of the forward's output against the batch's labels, and its gradient with respect to the output.
 * denominator: the samples that a mean is over, the batch count for the mean over this batch; unused by a sum. */
ls_rc ls_replica_loss(ls_replica *replica, double denominator);
/* Backward pass from ls_replica_output_grad. Gradients are written, not accumulated. Without samples they are zeros. */
ls_rc ls_replica_backward(ls_replica *replica, const ls_hooks *hooks);
/* One step of the optimizer (options.optimizer) at the rate last set: one launch over the flat buffers. */
ls_rc ls_replica_update(ls_replica *replica);
/* The learning rate of the steps to come. Whoever runs the training loop sets it, for every replica. */
void ls_replica_set_lr(ls_replica *replica, double lr);

/* The optimizer's state: its options, buffer k (device pointer, param_count elements in ready order,
 * k < ls_optimizer_state_count(options)), and the steps made so far. */
const ls_optimizer_options *ls_replica_optimizer(const ls_replica *replica);
void *ls_replica_optimizer_state(ls_replica *replica, size_t k);
uint64_t ls_replica_optimizer_step(const ls_replica *replica);
void ls_replica_optimizer_set_step(ls_replica *replica, uint64_t steps);

/* Device pointers; flat buffers in ready order, activations in the platform's layout. */
void *ls_replica_params(ls_replica *replica);
void *ls_replica_grads(ls_replica *replica);
void *ls_replica_output(ls_replica *replica);
void *ls_replica_output_grad(ls_replica *replica);
cudaStream_t ls_replica_stream(ls_replica *replica);
/* The stream that reads a batch's host memory (for ls_batcher_used): one of its own where the device has a copy engine, so that
 * the copies run beside the kernels of the step before, else that of the replica. */
cudaStream_t ls_replica_input_stream(ls_replica *replica);
const ls_model *ls_replica_model(const ls_replica *replica);
ls_dtype ls_replica_dtype(const ls_replica *replica);
int ls_replica_device(const ls_replica *replica);
size_t ls_replica_batch_count(const ls_replica *replica);

/* Host values of the last step; these wait for the stream. loss_sum: sum of the batch's terms (ls_loss_value makes the loss
 * of it); loss: of the batch, 0 without samples. The flat copies hold param_count values of dtype. */
ls_rc ls_replica_read_loss(ls_replica *replica, double *loss);
ls_rc ls_replica_read_loss_sum(ls_replica *replica, double *sum);
ls_rc ls_replica_read_params(ls_replica *replica, void *flat);
ls_rc ls_replica_read_grads(ls_replica *replica, void *flat);

/* Buffer k of the optimizer's state between device and host, flat as the parameters; for checkpoints. They wait for the
 * stream. */
ls_rc ls_replica_read_optimizer_state(ls_replica *replica, size_t k, void *flat);
ls_rc ls_replica_write_optimizer_state(ls_replica *replica, size_t k, const void *flat);
/* Parameters from param_count values of dtype in ready order. Synchronous. */
ls_rc ls_replica_write_params(ls_replica *replica, const void *flat);

/* With options.capture: the local gradient of each parameter as it was when grad_ready was called (before any
 * communication), and the decisions of the last forward ([count][decisions_per_sample] bytes, model order). They wait for
 * the stream. */
ls_rc ls_replica_read_captured_grads(ls_replica *replica, void *flat);
ls_rc ls_replica_read_decisions(ls_replica *replica, uint8_t *decisions);
/* The inputs of the same forward pass as its layers read them, in PyTorch's layout ([count][features] of dtype), its labels
 * ([count]) and, where the batch had some, its targets ([count][target_count]; else targets is left alone). */
ls_rc ls_replica_read_inputs(ls_replica *replica, void *inputs, int32_t *labels, float *targets);

/* Forward only, in batches, over the given samples of a data set held in host memory: adds the sum of the loss's terms and
 * the number of right answers. Synchronous. The activations are overwritten; gradients, captures and the loss of the last step
 * stay. */
ls_rc ls_replica_evaluate(ls_replica *replica, const ls_batch *samples, double *loss_sum, double *correct);

#endif
