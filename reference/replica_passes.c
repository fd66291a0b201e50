/* The passes of a training step. */
#include "gpu/base/mutant.h"
#include "gpu/range.h"
#include "reference/mutant_faults.h"
#include "reference/replica_internal.h"

ls_layer_pass ls_replica_pass(const ls_replica *replica, size_t layer, size_t batch) {
    const ls_layer *l = &replica->model->layers[layer];
    ls_layer_pass pass = {.stream = replica->stream,
                          .dtype = replica->options.dtype,
                          .lanes = replica->lanes,
                          .batch = batch,
                          .x = replica->slots[replica->slot_of[layer]],
                          .y = replica->slots[replica->slot_of[layer + 1]],
                          .training = replica->training,
                          .seed = replica->seed,
                          .step = replica->step,
                          .live = replica->live,
                          .rank = replica->rank,
                          .layer = layer,
                          .index = replica->index[layer]};
    if (l->weight != SIZE_MAX) {
        size_t weight = replica->model->params[l->weight].offset;
        pass.weight = ls_replica_at(replica, replica->params, weight);
        pass.dweight = ls_replica_at(replica, replica->grads, weight);
    }
    if (l->bias != SIZE_MAX) {
        size_t bias = replica->model->params[l->bias].offset;
        pass.bias = ls_replica_at(replica, replica->params, bias);
        pass.dbias = ls_replica_at(replica, replica->grads, bias);
    }
    if (l->buffer != SIZE_MAX) {
        const ls_buffer *buffers = &replica->model->buffers[l->buffer];
        pass.running_mean = ls_replica_at(replica, replica->buffers, buffers[0].offset);
        pass.running_var = ls_replica_at(replica, replica->buffers, buffers[1].offset);
        pass.tracked = replica->tracked + buffers[2].offset;
    }
    return pass;
}

ls_rc ls_replica_run_forward(ls_replica *replica, size_t batch) {
    for (size_t i = 0; i < replica->model->layer_count && batch > 0; i += 1 + replica->fused[i]) {
        const ls_layer *layer = &replica->model->layers[i];
        ls_layer_pass pass = ls_replica_pass(replica, i, batch);
        if (LS_MUTANT(silent_tf32) && layer->weight != SIZE_MAX) {
            LS_TRY(ls_mutant_round(pass.stream, pass.dtype, replica->slots[replica->slot_of[i]],
                                   ls_activation_count(batch, ls_shape_features(layer->in)), 11, -126));
        }
        LS_TRY(ls_layer_ops_of(layer->kind)->forward(replica->states[i], layer, &pass));
    }
    return LS_OK;
}

/* The last step's gradients have had their last use, the update or a copy to another device, and whoever wanted to read them has
 * done so: what still uses them gets NaN. */
static ls_rc poison_grads(ls_replica *replica) {
    size_t bytes = replica->model->param_count * ls_dtype_size(replica->options.dtype);
    LS_CUDA(cudaMemsetAsync(replica->grads, 0xFF, bytes, replica->stream));
    return LS_OK;
}

ls_rc ls_replica_forward(ls_replica *replica, const ls_hooks *hooks) {
    LS_RANGE("forward");
    if (replica->poison && replica->training) {
        LS_TRY(poison_grads(replica));
    }
    if (hooks != NULL && hooks->before_forward != NULL) {
        LS_TRY(hooks->before_forward(hooks->self));
    }
    LS_TRY(ls_replica_run_forward(replica, replica->batch));
    replica->step += replica->training ? 1 : 0;
    return replica->options.capture ? ls_replica_capture_forward(replica, replica->batch) : LS_OK;
}

ls_rc ls_replica_loss(ls_replica *replica, double denominator) {
    LS_RANGE("loss");
    return ls_loss_compute(replica->loss, replica->lanes, replica->batch, ls_replica_output(replica), replica->labels,
                           replica->targets, denominator, replica->output_grad);
}

/* Tells of a gradient whose kernels have just been enqueued. */
static ls_rc tell_ready(ls_replica *replica, const ls_hooks *hooks, size_t ready_position) {
    if (replica->options.capture) {
        LS_TRY(ls_replica_capture_grad(replica, ready_position));
    }
    if (hooks != NULL && hooks->grad_ready != NULL) {
        LS_TRY(hooks->grad_ready(hooks->self, ready_position));
    }
    return LS_OK;
}

/* The gradients of a layer's parameters, which are neighbours in the flat buffer. */
static ls_rc backward_params(const ls_replica *replica, const ls_layer *layer, void *state, const ls_layer_pass *pass) {
    const ls_param *weight = &replica->model->params[layer->weight];
    void *kept = NULL;
    if (LS_MUTANT(gradient_not_zeroed)) {
        LS_TRY(ls_mutant_keep(pass->stream, pass->dtype, pass->dweight, weight->count, &kept));
    }
    LS_TRY(ls_layer_ops_of(layer->kind)->backward_params(state, layer, pass));
    if (LS_MUTANT(gradient_not_zeroed)) {
        LS_TRY(ls_mutant_add_kept(pass->stream, pass->dtype, pass->dweight, weight->count, kept));
    }
    if (LS_MUTANT(taps_transposed) && layer->kind == LS_LAYER_CONV && replica->rank == 1) {
        LS_TRY(ls_mutant_transpose(pass->stream, pass->dtype, pass->dweight, weight->count, layer->kernel));
    }
    return LS_OK;
}

/* The gradient of boundary b's values. */
static void *grad_of(const ls_replica *replica, size_t boundary) {
    size_t slot = replica->slot_of[boundary];
    if (slot == replica->slot_of[replica->model->layer_count]) {
        return replica->output_grad;
    }
    return replica->grad_slots[slot % 2]; /* slots are numbered along the layers, so neighbours differ */
}

/* Without samples every gradient is zero, and still becomes ready in order. */
static ls_rc backward_nothing(ls_replica *replica, const ls_hooks *hooks) {
    size_t bytes = replica->model->param_count * ls_dtype_size(replica->options.dtype);
    LS_CUDA(cudaMemsetAsync(replica->grads, 0, bytes, replica->stream));
    for (size_t k = 0; k < replica->model->param_tensors; k++) {
        LS_TRY(tell_ready(replica, hooks, k));
    }
    return LS_OK;
}

ls_rc ls_replica_backward(ls_replica *replica, const ls_hooks *hooks) {
    LS_RANGE("backward");
    if (replica->batch == 0) {
        return backward_nothing(replica, hooks);
    }
    size_t ready = 0;
    for (size_t i = replica->model->layer_count; i-- > replica->first_param_layer;) {
        const ls_layer *layer = &replica->model->layers[i];
        const ls_layer_ops *ops = ls_layer_ops_of(layer->kind);
        if (replica->follows[i]) {
            continue;
        }
        ls_layer_pass pass = ls_replica_pass(replica, i, replica->batch);
        pass.dy = grad_of(replica, i + 1);
        if (layer->weight != SIZE_MAX) { /* before the input's gradient, so that its reduction can start sooner */
            LS_TRY(backward_params(replica, layer, replica->states[i], &pass));
            for (size_t k = 0; k < ls_layer_params(layer); k++) { /* a layer's are neighbours in ready order */
                LS_TRY(tell_ready(replica, hooks, ready++));
            }
        }
        if (i > replica->first_param_layer) {
            pass.dx = grad_of(replica, i);
            LS_TRY(ops->backward_input(replica->states[i], layer, &pass));
        }
    }
    return LS_OK;
}

/* Parameters that one rank has to itself. */
static ls_rc drift(const ls_replica *replica) {
    double size = LS_MUTANT(drift_1e_3) ? 1e-3 : LS_MUTANT(drift_1e_5) ? 1e-5 : LS_MUTANT(drift_1e_6) ? 1e-6 : 0;
    if (size != 0 && replica->rank == 1) {
        LS_CUDA(ls_kernel_scale(replica->stream, replica->options.dtype, replica->model->param_count, 1 + size,
                                replica->params));
    }
    return LS_OK;
}

ls_rc ls_replica_update(ls_replica *replica) {
    LS_RANGE("update");
    const ls_optimizer_options *options = &replica->options.optimizer;
    ls_optimizer_options undecayed;
    ls_optimizer_step step = {.stream = replica->stream,
                              .dtype = replica->options.dtype,
                              .count = replica->model->param_count,
                              .param = replica->params,
                              .grad = replica->grads,
                              .state = replica->optimizer_state,
                              .steps = replica->optimizer_steps,
                              .lr = replica->lr,
                              .live = replica->live};
    if (LS_MUTANT(momentum_lost) && replica->rank == 1) {
        LS_CUDA(cudaMemsetAsync(step.state[0], 0, step.count * ls_dtype_size(step.dtype), step.stream));
    }
    if (LS_MUTANT(weight_decay_forgotten)) {
        undecayed = *options;
        undecayed.weight_decay = 0;
        options = &undecayed;
    }
    LS_CUDA(ls_optimizer_of(options)->step(options, &step));
    replica->optimizer_steps++;
    return drift(replica);
}
