#include "reference/loss.h"

#include <math.h>
#include <stdlib.h>

#include "gpu/base/mutant.h"
#include "gpu/kernels/kernels.h"
#include "reference/cleanup.h"

const char *ls_loss_name(ls_loss_kind kind) {
    static const char *const names[LS_LOSS_KIND_COUNT] = {"cross-entropy", "mse", "rmse"};
    return names[kind];
}

const char *ls_loss_reduction_name(ls_loss_reduction reduction) {
    return reduction == LS_LOSS_SUM ? "sum" : "mean";
}

/* What the sum of terms is divided by. */
static double denominator_of(const ls_loss_options *options, double samples, size_t outputs) {
    if (options->reduction == LS_LOSS_SUM) {
        return 1;
    }
    return options->kind == LS_LOSS_CROSS_ENTROPY ? samples : samples * (double)outputs;
}

double ls_loss_value(const ls_loss_options *options, double sum, double samples, size_t outputs) {
    double value = sum / denominator_of(options, samples, outputs);
    return options->kind == LS_LOSS_RMSE ? sqrt(value) : value;
}

struct ls_loss {
    ls_loss_options options;
    ls_dtype dtype;
    size_t classes, max_batch;
    cudaStream_t stream;
    size_t batch;     /* of the last compute */
    void *losses;     /* device, [max_batch] of dtype */
    double *sum;      /* device */
    double *host_sum; /* pinned */
};

static ls_rc allocate(ls_loss *loss) {
    LS_CUDA(cudaMalloc(&loss->losses, loss->max_batch * ls_dtype_size(loss->dtype)));
    void *memory = NULL;
    LS_CUDA(cudaMalloc(&memory, sizeof *loss->sum));
    loss->sum = memory;
    LS_CUDA(cudaMallocHost(&memory, sizeof *loss->host_sum));
    loss->host_sum = memory;
    return LS_OK;
}

ls_rc ls_loss_open(const ls_loss_options *options, ls_dtype dtype, size_t classes, size_t max_batch,
                   cudaStream_t stream, ls_loss **out) {
    ls_loss *loss = ls_calloc(1, sizeof *loss, "a loss");
    if (loss == NULL) {
        return LS_DEVICE_FAILED;
    }
    *loss =
        (ls_loss){.options = *options, .dtype = dtype, .classes = classes, .max_batch = max_batch, .stream = stream};
    ls_rc rc = allocate(loss);
    if (rc != LS_OK) {
        ls_loss_close(loss);
        return rc;
    }
    *out = loss;
    return LS_OK;
}

void ls_loss_close(ls_loss *loss) {
    if (loss == NULL) {
        return;
    }
    ls_rc rc = LS_OK;
    LS_CLOSE(rc, cudaFree(loss->losses));
    LS_CLOSE(rc, cudaFree(loss->sum));
    LS_CLOSE(rc, cudaFreeHost(loss->host_sum));
    free(loss);
}

static ls_rc compute_squares(ls_loss *loss, size_t lanes, const void *outputs, const int32_t *labels,
                             const float *targets, double denominator, void *gradient) {
    LS_CUDA(ls_kernel_mse(loss->stream, loss->dtype, lanes, loss->batch, loss->classes, outputs, labels, targets,
                          denominator, loss->losses, gradient));
    if (loss->options.kind == LS_LOSS_RMSE && gradient != NULL) {
        size_t count = (loss->batch + lanes - 1) / lanes * lanes * loss->classes;
        LS_CUDA(ls_kernel_sum(loss->stream, loss->dtype, loss->batch, loss->losses, loss->sum));
        LS_CUDA(ls_kernel_rmse(loss->stream, loss->dtype, count, loss->sum, denominator, gradient));
    }
    return LS_OK;
}

ls_rc ls_loss_compute(ls_loss *loss, size_t lanes, size_t batch, const void *logits, const int32_t *labels,
                      const float *targets, double samples, void *dlogits) {
    if (batch > loss->max_batch) {
        return ls_fail(LS_BAD_INPUT, "batch of the loss: expected at most %zu samples, found %zu", loss->max_batch,
                       batch);
    }
    loss->batch = batch;
    if (batch == 0) {
        return LS_OK;
    }
    double denominator = denominator_of(&loss->options, samples, loss->classes);
    if (LS_MUTANT(mean_over_one_more)) {
        denominator += 1;
    }
    if (loss->options.kind != LS_LOSS_CROSS_ENTROPY) {
        return compute_squares(loss, lanes, logits, labels, targets, denominator, dlogits);
    }
    LS_CUDA(ls_kernel_cross_entropy(loss->stream, loss->dtype, lanes, batch, loss->classes, logits, labels,
                                    loss->options.label_smoothing, denominator, loss->losses, dlogits));
    return LS_OK;
}

void ls_loss_replayed(ls_loss *loss, size_t batch) {
    loss->batch = batch;
}

ls_rc ls_loss_read_sum(ls_loss *loss, double *sum) {
    *sum = 0.0;
    if (loss->batch == 0) {
        return LS_OK;
    }
    LS_CUDA(ls_kernel_sum(loss->stream, loss->dtype, loss->batch, loss->losses, loss->sum));
    LS_CUDA(cudaMemcpyAsync(loss->host_sum, loss->sum, sizeof *loss->sum, cudaMemcpyDeviceToHost, loss->stream));
    LS_CUDA(cudaStreamSynchronize(loss->stream));
    *sum = *loss->host_sum;
    return LS_OK;
}

ls_rc ls_loss_read(ls_loss *loss, double *value) {
    *value = 0.0;
    if (loss->batch == 0) {
        return LS_OK;
    }
    LS_TRY(ls_loss_read_sum(loss, value));
    *value = ls_loss_value(&loss->options, *value, (double)loss->batch, loss->classes);
    return LS_OK;
}
