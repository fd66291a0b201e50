/* Between a replica and the host. */
#include <stdlib.h>

#include "reference/replica_buffers.h"
#include "reference/replica_internal.h"

ls_rc ls_replica_init(ls_replica *replica, const float *flat) {
    size_t count = replica->model->param_count;
    size_t bytes = count * ls_dtype_size(replica->options.dtype);
    double *wide = NULL;
    const void *from = flat;
    if (replica->options.dtype == LS_FLOAT64) {
        wide = ls_calloc(count, sizeof *wide, "initial values");
        if (wide == NULL) {
            return LS_DEVICE_FAILED;
        }
        for (size_t i = 0; i < count; i++) {
            wide[i] = flat[i];
        }
        from = wide;
    }
    /* On the replica's stream: the legacy stream of cudaMemcpy does not wait for a non-blocking one. */
    ls_rc rc = ls_cuda_check(cudaMemcpyAsync(replica->params, from, bytes, cudaMemcpyHostToDevice, replica->stream),
                             "cudaMemcpyAsync(params)", __FILE__, __LINE__);
    if (rc == LS_OK) {
        rc = ls_cuda_check(cudaStreamSynchronize(replica->stream), "cudaStreamSynchronize", __FILE__, __LINE__);
    }
    free(wide);
    return rc;
}

ls_rc ls_replica_read_loss(ls_replica *replica, double *loss) {
    return ls_loss_read(replica->loss, loss);
}

ls_rc ls_replica_read_loss_sum(ls_replica *replica, double *sum) {
    return ls_loss_read_sum(replica->loss, sum);
}

static ls_rc read_flat(ls_replica *replica, const void *device, void *flat) {
    size_t bytes = replica->model->param_count * ls_dtype_size(replica->options.dtype);
    LS_CUDA(cudaMemcpyAsync(flat, device, bytes, cudaMemcpyDeviceToHost, replica->stream));
    LS_CUDA(cudaStreamSynchronize(replica->stream));
    return LS_OK;
}

ls_rc ls_replica_read_params(ls_replica *replica, void *flat) {
    return read_flat(replica, replica->params, flat);
}

ls_rc ls_replica_read_grads(ls_replica *replica, void *flat) {
    return read_flat(replica, replica->grads, flat);
}

static ls_rc write_flat(ls_replica *replica, void *device, const void *flat) {
    size_t bytes = replica->model->param_count * ls_dtype_size(replica->options.dtype);
    LS_CUDA(cudaMemcpyAsync(device, flat, bytes, cudaMemcpyHostToDevice, replica->stream));
    LS_CUDA(cudaStreamSynchronize(replica->stream));
    return LS_OK;
}

ls_rc ls_replica_write_params(ls_replica *replica, const void *flat) {
    return write_flat(replica, replica->params, flat);
}

ls_rc ls_replica_read_optimizer_state(ls_replica *replica, size_t k, void *flat) {
    return read_flat(replica, ls_replica_optimizer_state(replica, k), flat);
}

ls_rc ls_replica_write_optimizer_state(ls_replica *replica, size_t k, const void *flat) {
    return write_flat(replica, ls_replica_optimizer_state(replica, k), flat);
}

/* One batch of an evaluation; the replica is not training. */
static ls_rc evaluate_batch(ls_replica *replica, const ls_batch *batch, double *loss_sum, double *correct) {
    double sum = 0.0;
    LS_TRY(ls_replica_run_input(replica, batch));
    LS_TRY(ls_replica_run_forward(replica, batch->count));
    LS_TRY(ls_loss_compute(replica->test_loss, replica->lanes, batch->count, ls_replica_output(replica),
                           replica->labels, replica->targets, 1.0, NULL));
    LS_CUDA(ls_kernel_accuracy(replica->stream, replica->options.dtype, replica->lanes, batch->count,
                               replica->model->classes, ls_replica_output(replica), replica->labels, replica->correct));
    LS_CUDA(cudaMemcpyAsync(replica->host_correct, replica->correct, batch->count, cudaMemcpyDeviceToHost,
                            replica->stream));
    LS_TRY(ls_loss_read_sum(replica->test_loss, &sum)); /* waits for the stream */
    *loss_sum += sum;
    for (size_t n = 0; n < batch->count; n++) {
        *correct += replica->host_correct[n];
    }
    return LS_OK;
}

ls_rc ls_replica_evaluate(ls_replica *replica, const ls_batch *samples, double *loss_sum, double *correct) {
    size_t features = ls_shape_features(replica->model->input);
    size_t max_batch = replica->options.max_batch;
    bool training = ls_replica_set_training(replica, false);
    ls_rc rc = LS_OK;
    for (size_t first = 0; first < samples->count && rc == LS_OK; first += max_batch) {
        size_t left = samples->count - first;
        ls_batch batch = ls_batch_part(samples, features, first, left < max_batch ? left : max_batch);
        rc = evaluate_batch(replica, &batch, loss_sum, correct);
    }
    ls_replica_set_training(replica, training);
    return rc;
}
