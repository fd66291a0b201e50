#include "reference/replica.h"

#include <stdlib.h>

#include "gpu/base/mutant.h"
#include "reference/cleanup.h"
#include "reference/replica_internal.h"

/* Which layers the passes of another compute. The faults of single layers need them apart. */
static void plan_fusion(ls_replica *replica) {
    const ls_model *model = replica->model;
    if (LS_MUTANT(tie_takes_last) || LS_MUTANT(relu_lets_through)) {
        return;
    }
    for (size_t i = 0; i < model->layer_count; i += 1 + replica->fused[i]) {
        const ls_layer_ops *ops = ls_layer_ops_of(model->layers[i].kind);
        replica->fused[i] = ops->fuses != NULL ? ops->fuses(&model->layers[i], model->layer_count - 1 - i) : 0;
        for (size_t k = 1; k <= replica->fused[i]; k++) {
            replica->follows[i + k] = true;
        }
    }
}

/* Gives boundaries their slots. A layer may write over its input unless the layer that made it still needs it for its
 * backward pass, or it is the model's input. */
static void plan_slots(ls_replica *replica) {
    const ls_model *model = replica->model;
    bool output_needed = true; /* by the layer that wrote the slot last */
    replica->slot_count = 1;
    for (size_t i = 0; i < model->layer_count; i++) {
        const ls_layer_ops *ops = ls_layer_ops_of(model->layers[i].kind);
        bool share = replica->follows[i] || ops->identity || (ops->in_place && !output_needed);
        replica->slot_of[i + 1] = share ? replica->slot_of[i] : replica->slot_count++;
        if (!ops->identity) {
            output_needed = ops->needs_output;
        }
    }
}

static ls_rc allocate_slots(ls_replica *replica) {
    const ls_model *model = replica->model;
    size_t largest = 0;
    for (size_t b = 0; b <= model->layer_count; b++) {
        if (b < model->layer_count && replica->follows[b]) { /* values that lie nowhere */
            continue;
        }
        size_t slot = replica->slot_of[b];
        ls_shape shape = b == 0 ? model->input : model->layers[b - 1].out;
        size_t count = ls_activation_count(replica->options.max_batch, ls_shape_features(shape));
        if (b > 0 && count > largest) {
            largest = count;
        }
        if (replica->slots[slot] == NULL) { /* boundaries that share a slot have the same number of features */
            LS_CUDA(cudaMalloc(&replica->slots[slot], count * ls_dtype_size(replica->options.dtype)));
        }
    }
    size_t bytes = largest * ls_dtype_size(replica->options.dtype);
    LS_CUDA(cudaMalloc(&replica->grad_slots[0], bytes));
    LS_CUDA(cudaMalloc(&replica->grad_slots[1], bytes));
    size_t output = ls_activation_count(replica->options.max_batch, model->classes);
    LS_CUDA(cudaMalloc(&replica->output_grad, output * ls_dtype_size(replica->options.dtype)));
    return LS_OK;
}

static ls_rc allocate_plain(void **pointer, size_t bytes) {
    LS_CUDA(cudaMalloc(pointer, bytes));
    return LS_OK;
}

static void release_plain(void *pointer, ls_rc *rc) {
    LS_CLOSE(*rc, cudaFree(pointer));
}

static const ls_device_memory plain_memory = {allocate_plain, release_plain};

static ls_rc allocate_flat(ls_replica *replica) {
    size_t bytes = replica->model->param_count * ls_dtype_size(replica->options.dtype);
    size_t states = ls_optimizer_state_count(&replica->options.optimizer);
    void **flat[2 + LS_OPTIMIZER_MAX_STATES] = {&replica->params, &replica->grads};
    for (size_t k = 0; k < states; k++) {
        flat[2 + k] = &replica->optimizer_state[k];
    }
    for (size_t i = 0; i < 2 + states; i++) {
        const ls_device_memory *memory = flat[i] == &replica->grads ? replica->options.grad_memory : &plain_memory;
        LS_TRY(memory->allocate(flat[i], bytes));
        LS_CUDA(cudaMemsetAsync(*flat[i], 0, bytes, replica->stream));
    }
    if (replica->options.replays) {
        void *memory = NULL;
        LS_CUDA(cudaMalloc(&memory, sizeof *replica->live));
        replica->live = memory;
    }
    return LS_OK;
}

static ls_rc allocate_evaluation(ls_replica *replica) {
    size_t max_batch = replica->options.max_batch;
    void *memory = NULL;
    LS_CUDA(cudaMalloc(&memory, max_batch));
    replica->correct = memory;
    LS_CUDA(cudaMallocHost(&memory, max_batch));
    replica->host_correct = memory;
    return LS_OK;
}

static ls_rc open_layers(ls_replica *replica) {
    const ls_model *model = replica->model;
    size_t max_batch = replica->options.max_batch;
    for (size_t i = 0; i < model->layer_count; i++) {
        const ls_layer *layer = &model->layers[i];
        const ls_layer_ops *ops = ls_layer_ops_of(layer->kind);
        if (ops->wants_index) {
            void *memory = NULL;
            LS_CUDA(cudaMalloc(&memory, ls_activation_count(max_batch, ls_shape_features(layer->out))));
            replica->index[i] = memory;
        }
        if (ops->open != NULL) {
            LS_TRY(ops->open(replica->math, layer, replica->options.dtype, max_batch, &replica->states[i]));
            replica->state_open[i] = true;
        }
    }
    for (size_t i = 0; i < model->layer_count; i++) {
        if (replica->fused[i] > 0) {
            const ls_layer *layer = &model->layers[i];
            LS_TRY(ls_layer_ops_of(layer->kind)
                       ->attach(replica->states[i], layer, replica->fused[i], replica->index[i + 1],
                                replica->slots[replica->slot_of[i + 1]]));
        }
    }
    return LS_OK;
}

static ls_rc open_all(ls_replica *replica) {
    const ls_model *model = replica->model;
    const ls_replica_options *options = &replica->options;
    LS_CUDA(cudaStreamCreateWithFlags(&replica->stream, cudaStreamNonBlocking));
    LS_TRY(ls_math_open(replica->stream, &replica->math));
    plan_fusion(replica);
    plan_slots(replica);
    LS_TRY(allocate_flat(replica));
    LS_TRY(allocate_slots(replica));
    LS_TRY(ls_replica_input_open(replica));
    LS_TRY(allocate_evaluation(replica));
    LS_TRY(ls_replica_buffers_open(replica));
    LS_TRY(open_layers(replica));
    LS_TRY(ls_loss_open(&options->loss, options->dtype, model->classes, options->max_batch, replica->stream,
                        &replica->loss));
    LS_TRY(ls_loss_open(&options->loss, options->dtype, model->classes, options->max_batch, replica->stream,
                        &replica->test_loss));
    if (options->capture) {
        LS_TRY(ls_replica_capture_open(replica));
    }
    LS_CUDA(cudaStreamSynchronize(replica->stream));
    return LS_OK;
}

ls_rc ls_replica_open(const ls_model *model, const ls_replica_options *options, ls_replica **out) {
    if (options->max_batch == 0) {
        return ls_fail(LS_BAD_INPUT, "largest batch of a replica: expected at least 1, found 0");
    }
    LS_CUDA(cudaSetDevice(options->device)); /* first: without it there is nothing to close */
    ls_replica *replica = ls_calloc(1, sizeof *replica, "a replica");
    if (replica == NULL) {
        return LS_DEVICE_FAILED;
    }
    replica->model = model;
    replica->options = *options;
    replica->options.grad_memory = options->grad_memory != NULL ? options->grad_memory : &plain_memory;
    replica->lr = options->lr;
    replica->lanes = ls_lanes();
    replica->poison = ls_platform_wants_poison();
    while (model->layers[replica->first_param_layer].weight == SIZE_MAX) {
        replica->first_param_layer++; /* ls_model_resolve refuses a model without parameters */
    }
    ls_rc rc = open_all(replica);
    if (rc != LS_OK) {
        ls_replica_close(replica);
        return rc;
    }
    *out = replica;
    return LS_OK;
}

static void close_layers(ls_replica *replica, ls_rc *rc) {
    for (size_t i = 0; i < replica->model->layer_count; i++) {
        if (replica->state_open[i]) {
            ls_layer_ops_of(replica->model->layers[i].kind)->close(replica->states[i]);
        }
        LS_CLOSE(*rc, cudaFree(replica->index[i]));
    }
    for (size_t s = 0; s < replica->slot_count; s++) {
        LS_CLOSE(*rc, cudaFree(replica->slots[s]));
    }
}

static void close_buffers(ls_replica *replica, ls_rc *rc) {
    void *device[] = {replica->params,        replica->correct,     replica->grad_slots[0],
                      replica->grad_slots[1], replica->output_grad, replica->live};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) {
        LS_CLOSE(*rc, cudaFree(device[i]));
    }
    for (size_t k = 0; k < LS_OPTIMIZER_MAX_STATES; k++) {
        LS_CLOSE(*rc, cudaFree(replica->optimizer_state[k]));
    }
    replica->options.grad_memory->release(replica->grads, rc);
    LS_CLOSE(*rc, cudaFreeHost(replica->host_correct));
}

void ls_replica_close(ls_replica *replica) {
    if (replica == NULL) {
        return;
    }
    ls_rc rc = LS_OK;
    LS_CLOSE(rc, cudaSetDevice(replica->options.device));
    if (replica->stream != NULL) {
        LS_CLOSE(rc, cudaStreamSynchronize(replica->stream));
    }
    ls_replica_capture_close(replica, &rc);
    ls_loss_close(replica->loss);
    ls_loss_close(replica->test_loss);
    close_layers(replica, &rc);
    close_buffers(replica, &rc);
    ls_replica_input_close(replica, &rc);
    ls_replica_buffers_close(replica, &rc);
    if (replica->math != NULL) {
        ls_math_close(replica->math);
    }
    if (replica->stream != NULL) {
        LS_CLOSE(rc, cudaStreamDestroy(replica->stream));
    }
    free(replica);
}

void *ls_replica_params(ls_replica *replica) {
    return replica->params;
}

void *ls_replica_grads(ls_replica *replica) {
    return replica->grads;
}

void *ls_replica_output(ls_replica *replica) {
    return replica->slots[replica->slot_of[replica->model->layer_count]];
}

void *ls_replica_output_grad(ls_replica *replica) {
    return replica->output_grad;
}

cudaStream_t ls_replica_stream(ls_replica *replica) {
    return replica->stream;
}

cudaStream_t ls_replica_input_stream(ls_replica *replica) {
    return replica->copies;
}

const ls_model *ls_replica_model(const ls_replica *replica) {
    return replica->model;
}

ls_dtype ls_replica_dtype(const ls_replica *replica) {
    return replica->options.dtype;
}

int ls_replica_device(const ls_replica *replica) {
    return replica->options.device;
}

size_t ls_replica_batch_count(const ls_replica *replica) {
    return replica->batch;
}

const ls_optimizer_options *ls_replica_optimizer(const ls_replica *replica) {
    return &replica->options.optimizer;
}

void *ls_replica_optimizer_state(ls_replica *replica, size_t k) {
    return k < LS_OPTIMIZER_MAX_STATES ? replica->optimizer_state[k] : NULL;
}

uint64_t ls_replica_optimizer_step(const ls_replica *replica) {
    return replica->optimizer_steps;
}

void ls_replica_optimizer_set_step(ls_replica *replica, uint64_t steps) {
    replica->optimizer_steps = steps;
}

void ls_replica_set_lr(ls_replica *replica, double lr) {
    replica->lr = lr;
}
