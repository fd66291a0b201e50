/* What verification needs of a step, kept by the replica itself and not by the implementation that is judged. */
#include <string.h>

#include "reference/cleanup.h"
#include "reference/replica_internal.h"

ls_rc ls_replica_capture_open(ls_replica *replica) {
    const ls_model *model = replica->model;
    size_t max_batch = replica->options.max_batch;
    size_t largest = 0;
    for (size_t i = 0; i < model->layer_count; i++) {
        largest = model->layers[i].decisions > largest ? model->layers[i].decisions : largest;
    }
    size_t grad_bytes = model->param_count * ls_dtype_size(replica->options.dtype);
    LS_CUDA(cudaMalloc(&replica->captured_grads, grad_bytes));
    LS_CUDA(cudaMemsetAsync(replica->captured_grads, 0, grad_bytes, replica->stream));
    void *memory = NULL;
    size_t input = max_batch * ls_shape_features(model->input);
    LS_CUDA(cudaMalloc(&replica->captured_input, input * ls_dtype_size(replica->options.dtype)));
    LS_CUDA(cudaMalloc(&memory, max_batch * sizeof *replica->captured_labels));
    replica->captured_labels = memory;
    if (model->decisions_per_sample > 0) {
        LS_CUDA(cudaMalloc(&memory, ls_activation_count(max_batch, largest)));
        replica->lane_decisions = memory;
        LS_CUDA(cudaMalloc(&memory, max_batch * model->decisions_per_sample));
        replica->decisions = memory;
        LS_CUDA(cudaMallocHost(&memory, max_batch * model->decisions_per_sample));
        replica->host_decisions = memory;
    }
    return LS_OK;
}

void ls_replica_capture_close(ls_replica *replica, ls_rc *rc) {
    LS_CLOSE(*rc, cudaFree(replica->captured_grads));
    LS_CLOSE(*rc, cudaFree(replica->lane_decisions));
    LS_CLOSE(*rc, cudaFree(replica->decisions));
    LS_CLOSE(*rc, cudaFreeHost(replica->host_decisions));
    LS_CLOSE(*rc, cudaFree(replica->captured_input));
    LS_CLOSE(*rc, cudaFree(replica->captured_labels));
    LS_CLOSE(*rc, cudaFree(replica->captured_targets));
}

ls_rc ls_replica_capture_grad(ls_replica *replica, size_t ready_position) {
    const ls_param *param = &replica->model->params[replica->model->ready[ready_position]];
    LS_CUDA(cudaMemcpyAsync(ls_replica_at(replica, replica->captured_grads, param->offset),
                            ls_replica_at(replica, replica->grads, param->offset),
                            param->count * ls_dtype_size(replica->options.dtype), cudaMemcpyDeviceToDevice,
                            replica->stream));
    return LS_OK;
}

/* Room for a full batch's targets, made when the first ones come. */
static ls_rc reserve_targets(ls_replica *replica) {
    if (replica->captured_targets != NULL && replica->captured_target_count == replica->target_count) {
        return LS_OK;
    }
    void *memory = NULL;
    LS_CUDA(cudaFree(replica->captured_targets)); /* waits for the device */
    replica->captured_targets = NULL;
    LS_CUDA(cudaMalloc(&memory, replica->options.max_batch * replica->target_count * sizeof(float)));
    replica->captured_targets = memory;
    replica->captured_target_count = replica->target_count;
    return LS_OK;
}

/* The model's input keeps its slot until the next batch comes (plan_slots), so what lies there after the forward pass is what
 * the layers read. */
static ls_rc capture_input(ls_replica *replica, size_t batch) {
    if (batch == 0) {
        return LS_OK;
    }
    LS_CUDA(ls_kernel_from_lanes(replica->stream, ls_dtype_size(replica->options.dtype), replica->lanes, batch,
                                 ls_shape_features(replica->model->input), replica->slots[0], replica->captured_input));
    LS_CUDA(cudaMemcpyAsync(replica->captured_labels, replica->labels, batch * sizeof *replica->labels,
                            cudaMemcpyDeviceToDevice, replica->stream));
    if (replica->targets != NULL) {
        LS_TRY(reserve_targets(replica));
        LS_CUDA(cudaMemcpyAsync(replica->captured_targets, replica->targets,
                                batch * replica->target_count * sizeof *replica->targets, cudaMemcpyDeviceToDevice,
                                replica->stream));
    }
    return LS_OK;
}

ls_rc ls_replica_capture_forward(ls_replica *replica, size_t batch) {
    replica->captured_batch = batch;
    LS_TRY(capture_input(replica, batch));
    for (size_t i = 0; i < replica->model->layer_count && batch > 0; i++) {
        const ls_layer *layer = &replica->model->layers[i];
        if (layer->decisions == 0) {
            continue;
        }
        const ls_layer_ops *ops = ls_layer_ops_of(layer->kind);
        const uint8_t *from = replica->index[i];
        if (ops->decisions != NULL) {
            ls_layer_pass pass = ls_replica_pass(replica, i, batch);
            LS_TRY(ops->decisions(layer, &pass, replica->lane_decisions));
            from = replica->lane_decisions;
        }
        LS_CUDA(ls_kernel_from_lanes(replica->stream, 1, replica->lanes, batch, layer->decisions, from,
                                     replica->decisions + replica->options.max_batch * layer->decision_offset));
    }
    return LS_OK;
}

ls_rc ls_replica_read_captured_grads(ls_replica *replica, void *flat) {
    if (!replica->options.capture) {
        return ls_fail(LS_BAD_INPUT, "captured gradients: the replica was opened without capture");
    }
    size_t bytes = replica->model->param_count * ls_dtype_size(replica->options.dtype);
    LS_CUDA(cudaMemcpyAsync(flat, replica->captured_grads, bytes, cudaMemcpyDeviceToHost, replica->stream));
    LS_CUDA(cudaStreamSynchronize(replica->stream));
    return LS_OK;
}

ls_rc ls_replica_read_decisions(ls_replica *replica, uint8_t *decisions) {
    if (!replica->options.capture) {
        return ls_fail(LS_BAD_INPUT, "captured decisions: the replica was opened without capture");
    }
    const ls_model *model = replica->model;
    size_t batch = replica->captured_batch;
    size_t max_batch = replica->options.max_batch;
    if (batch == 0 || model->decisions_per_sample == 0) {
        return LS_OK;
    }
    LS_CUDA(cudaMemcpyAsync(replica->host_decisions, replica->decisions, max_batch * model->decisions_per_sample,
                            cudaMemcpyDeviceToHost, replica->stream));
    LS_CUDA(cudaStreamSynchronize(replica->stream));
    for (size_t i = 0; i < model->layer_count; i++) {
        const ls_layer *layer = &model->layers[i];
        for (size_t n = 0; n < batch && layer->decisions > 0; n++) {
            memcpy(decisions + n * model->decisions_per_sample + layer->decision_offset,
                   replica->host_decisions + max_batch * layer->decision_offset + n * layer->decisions,
                   layer->decisions);
        }
    }
    return LS_OK;
}

ls_rc ls_replica_read_inputs(ls_replica *replica, void *inputs, int32_t *labels, float *targets) {
    if (!replica->options.capture) {
        return ls_fail(LS_BAD_INPUT, "captured inputs: the replica was opened without capture");
    }
    size_t batch = replica->captured_batch;
    size_t bytes = batch * ls_shape_features(replica->model->input) * ls_dtype_size(replica->options.dtype);
    if (batch == 0) {
        return LS_OK;
    }
    LS_CUDA(cudaMemcpyAsync(inputs, replica->captured_input, bytes, cudaMemcpyDeviceToHost, replica->stream));
    LS_CUDA(cudaMemcpyAsync(labels, replica->captured_labels, batch * sizeof *labels, cudaMemcpyDeviceToHost,
                            replica->stream));
    if (replica->captured_target_count > 0) {
        LS_CUDA(cudaMemcpyAsync(targets, replica->captured_targets,
                                batch * replica->captured_target_count * sizeof *targets, cudaMemcpyDeviceToHost,
                                replica->stream));
    }
    LS_CUDA(cudaStreamSynchronize(replica->stream));
    return LS_OK;
}
