/* A replica of a model on one device: parameters, one flat gradient buffer in ready order, activations, and the passes.
 * Nothing here knows how ranks communicate. All calls but open, close and the host copies are asynchronous on the
 * replica's stream; the current device of the calling thread must be the replica's. */
#ifndef LS_REFERENCE_REPLICA_H
#define LS_REFERENCE_REPLICA_H

#include "gpu/gpu.h"
#include "reference/model.h"

/* A batch on the host. The memory must stay unchanged until the step that uses it has finished (see ls_batcher). */
typedef struct ls_batch {
    size_t count;          /* samples; may be 0 for a rank without work */
    const uint8_t *pixels; /* [count][features] */
    const int32_t *labels; /* [count] */
    const size_t *indices; /* [count] into the data set */
} ls_batch;

typedef struct ls_replica_options {
    ls_dtype dtype;
    int device;
    size_t max_batch;
    bool normalize;
    double mean, std;
    bool capture; /* keep copies of local gradients and decisions for verification */
} ls_replica_options;

/* Called on the host while backward is being enqueued. grad_ready(self, k): the kernels that produce the gradient of
 * ready position k have just been enqueued on the replica's stream. Each may be NULL. */
typedef struct ls_hooks {
    void *self;
    ls_rc (*before_forward)(void *self);
    ls_rc (*grad_ready)(void *self, size_t ready_position);
} ls_hooks;

typedef struct ls_replica ls_replica;

/* Makes options->device current and leaves it so. model must outlive the replica. Parameters, gradients and velocity start
 * as zeros. */
ls_rc ls_replica_open(const ls_model *model, const ls_replica_options *options, ls_replica **out);
void ls_replica_close(ls_replica *replica);

/* Parameters from float32 initial values in ready order (widened for float64). Synchronous. */
ls_rc ls_replica_init(ls_replica *replica, const float *flat);

/* Copies a batch to the device and normalises it there. */
ls_rc ls_replica_input(ls_replica *replica, const ls_batch *batch);
/* Forward pass of the batch last given. */
ls_rc ls_replica_forward(ls_replica *replica, const ls_hooks *hooks);
/* Cross entropy of the forward's output against the batch's labels, and its gradient with respect to the output:
 * (softmax - onehot)/denominator; denominator = batch count for the mean over this batch. */
ls_rc ls_replica_loss(ls_replica *replica, double denominator);
/* Backward pass from ls_replica_output_grad. Gradients are written, not accumulated. Without samples they are zeros. */
ls_rc ls_replica_backward(ls_replica *replica, const ls_hooks *hooks);
/* One SGD launch over the flat buffers (ls_kernel_sgd). The first call after open starts the momentum buffer. */
ls_rc ls_replica_sgd(ls_replica *replica, double lr, double momentum, double weight_decay);

/* Device pointers; flat buffers in ready order, activations in the platform's layout. */
void *ls_replica_params(ls_replica *replica);
void *ls_replica_grads(ls_replica *replica);
void *ls_replica_output(ls_replica *replica);
void *ls_replica_output_grad(ls_replica *replica);
cudaStream_t ls_replica_stream(ls_replica *replica);
const ls_model *ls_replica_model(const ls_replica *replica);
ls_dtype ls_replica_dtype(const ls_replica *replica);
int ls_replica_device(const ls_replica *replica);
size_t ls_replica_batch_count(const ls_replica *replica);

/* Host values of the last step; these wait for the stream. loss: sum of the batch's losses as of ls_replica_loss
 * (divide by the count for the mean). The flat copies hold param_count values of dtype. */
ls_rc ls_replica_read_loss_sum(ls_replica *replica, double *sum);
ls_rc ls_replica_read_params(ls_replica *replica, void *flat);
ls_rc ls_replica_read_grads(ls_replica *replica, void *flat);

/* The momentum buffer, flat as the parameters, and whether an update has started it; for checkpoints. They wait for the
 * stream. */
ls_rc ls_replica_read_velocity(ls_replica *replica, void *flat, bool *started);
ls_rc ls_replica_write_velocity(ls_replica *replica, const void *flat, bool started);
/* Parameters from param_count values of dtype in ready order. Synchronous. */
ls_rc ls_replica_write_params(ls_replica *replica, const void *flat);

/* With options.capture: the local gradient of each parameter as it was when grad_ready was called (before any
 * communication), and the decisions of the last forward ([count][decisions_per_sample] bytes, model order). They wait for
 * the stream. */
ls_rc ls_replica_read_captured_grads(ls_replica *replica, void *flat);
ls_rc ls_replica_read_decisions(ls_replica *replica, uint8_t *decisions);

/* Forward only, in batches, over the given samples of a data set held in host memory: adds the sum of losses and the
 * number of right answers. Synchronous. The activations are overwritten; gradients, captures and the loss of the last step
 * stay. */
ls_rc ls_replica_evaluate(ls_replica *replica, const ls_batch *samples, double *loss_sum, double *correct);

#endif
