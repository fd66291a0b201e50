/* The insides of a replica, shared by reference/replica*.c. */
#ifndef LS_REFERENCE_REPLICA_INTERNAL_H
#define LS_REFERENCE_REPLICA_INTERNAL_H

#include "reference/layers/layer.h"
#include "reference/loss.h"
#include "reference/replica.h"
#include "reference/upload.h"

/* Boundary b is the input of layer b and the output of layer b-1; its values lie in slot slot_of[b]. Layers that work in
 * place or move nothing have both boundaries in one slot. A gradient lives only from one layer to the one before, so two
 * buffers serve all slots in turn, but for the output's. */
struct ls_replica {
    const ls_model *model;
    ls_replica_options options;
    cudaStream_t stream;
    cudaStream_t copies; /* reads batches on the host; where the device has no copy engine `stream` itself */
    ls_math *math;
    size_t lanes;
    size_t first_param_layer; /* backward ends here, without an input gradient */

    void *params, *grads; /* [param_count], ready order */
    bool poison;          /* gradients become NaN when the step is over, see ls_platform_wants_poison */

    void *optimizer_state[LS_OPTIMIZER_MAX_STATES]; /* [param_count] each; NULL beyond what the optimizer keeps */
    uint64_t optimizer_steps;                       /* made so far */
    double lr;                                      /* of the steps to come */
    ls_step_values *live;                           /* device; NULL unless options.replays */

    ls_upload upload; /* of the batch */
    void *samples;    /* [max_batch][features] of bytes or of floats, as the last batch's */
    /* buffers and masks (replica_buffers.c) */
    void *buffers;    /* [buffer_count] */
    int64_t *tracked; /* [tracked_count] */
    bool training;
    uint64_t seed, step;
    size_t rank;

    int32_t *labels; /* [max_batch] */
    float *targets;  /* [max_batch][target_count]; NULL until a batch has some */
    size_t target_count;
    size_t batch; /* samples of the batch last given */
    bool floats;  /* which came as floats */

    size_t slot_count;
    size_t slot_of[LS_MODEL_MAX_LAYERS + 1];
    void *slots[LS_MODEL_MAX_LAYERS + 1];
    void *grad_slots[2];
    void *output_grad;
    uint8_t *index[LS_MODEL_MAX_LAYERS];
    size_t fused[LS_MODEL_MAX_LAYERS]; /* layers behind this one that its passes compute */
    bool follows[LS_MODEL_MAX_LAYERS]; /* one of those layers: its own passes are never run */
    void *states[LS_MODEL_MAX_LAYERS];
    bool state_open[LS_MODEL_MAX_LAYERS];

    ls_loss *loss;

    /* evaluation: apart from the training step's loss, so that it can still be read afterwards */
    ls_loss *test_loss;
    uint8_t *correct;      /* device, [max_batch] */
    uint8_t *host_correct; /* pinned */

    /* capture */
    void *captured_grads;    /* [param_count], ready order */
    uint8_t *lane_decisions; /* one layer's, in the platform's layout */
    uint8_t *decisions;      /* [layers with decisions][max_batch][decisions of the layer] */
    uint8_t *host_decisions; /* pinned, the same */
    size_t captured_batch;   /* samples of the forward pass whose decisions are held */
    void *captured_input;    /* [max_batch][features], as the layers read them, in PyTorch's layout */
    int32_t *captured_labels;
    float *captured_targets;      /* [max_batch][captured_target_count]; NULL until a batch has some */
    size_t captured_target_count; /* 0: the forward pass had none */
};

/* Address of element `offset` of a flat buffer. */
static inline void *ls_replica_at(const ls_replica *replica, void *flat, size_t offset) {
    return (char *)flat + offset * ls_dtype_size(replica->options.dtype);
}

/* The forward pass over `batch` samples whose pixels have been given; no hooks, no capture. */
ls_rc ls_replica_run_forward(ls_replica *replica, size_t batch);
/* Memory and streams of the batch. */
ls_rc ls_replica_input_open(ls_replica *replica);
void ls_replica_input_close(ls_replica *replica, ls_rc *rc); /* rc: see LS_CLOSE */
/* Copies samples to the device and normalises them there. */
ls_rc ls_replica_run_input(ls_replica *replica, const ls_batch *batch);
/* What a layer gets in a forward pass; y is that of the last layer which the pass computes. */
ls_layer_pass ls_replica_pass(const ls_replica *replica, size_t layer, size_t batch);

ls_rc ls_replica_buffers_open(ls_replica *replica);
void ls_replica_buffers_close(ls_replica *replica, ls_rc *rc); /* rc: see LS_CLOSE */

ls_rc ls_replica_capture_open(ls_replica *replica);
void ls_replica_capture_close(ls_replica *replica, ls_rc *rc); /* rc: see LS_CLOSE */
/* Keeps the gradient of a ready position as it is now, in stream order. */
ls_rc ls_replica_capture_grad(ls_replica *replica, size_t ready_position);
/* Gathers the decisions of the forward pass just enqueued, and what it had as inputs and answers. */
ls_rc ls_replica_capture_forward(ls_replica *replica, size_t batch);

#endif
