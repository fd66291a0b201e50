/* The loss over a batch on one device, on its own so that DataParallel can compute it over gathered outputs. */
#ifndef LS_REFERENCE_LOSS_H
#define LS_REFERENCE_LOSS_H

#include <stdint.h>

#include "gpu/gpu.h"

typedef enum ls_loss_kind {
    LS_LOSS_CROSS_ENTROPY = 0, /* CrossEntropyLoss on logits and labels */
    LS_LOSS_MSE,  /* MSELoss of all outputs; without float targets the target is the label's one-hot vector */
    LS_LOSS_RMSE, /* its square root, over the batch */
    LS_LOSS_KIND_COUNT
} ls_loss_kind;

typedef enum ls_loss_reduction {
    LS_LOSS_MEAN = 0, /* over samples; mse: over samples and outputs */
    LS_LOSS_SUM,
    LS_LOSS_REDUCTION_COUNT
} ls_loss_reduction;

typedef struct ls_loss_options {
    ls_loss_kind kind;
    ls_loss_reduction reduction;
    double label_smoothing; /* of cross entropy, 0..1 */
} ls_loss_options;

/* "cross-entropy", "mse", "rmse"; "mean", "sum". */
const char *ls_loss_name(ls_loss_kind kind);
const char *ls_loss_reduction_name(ls_loss_reduction reduction);

/* The loss from the sum of its terms over samples: a term is a sample's cross entropy, or the sum over its outputs of
 * (output - target)^2. outputs: values a sample. */
double ls_loss_value(const ls_loss_options *options, double sum, double samples, size_t outputs);

typedef struct ls_loss ls_loss;

/* Buffers for max_batch samples of `classes` outputs on the current device. */
ls_rc ls_loss_open(const ls_loss_options *options, ls_dtype dtype, size_t classes, size_t max_batch,
                   cudaStream_t stream, ls_loss **out);
void ls_loss_close(ls_loss *loss);

/* logits and dlogits: [ceil(batch/lanes)][classes][lanes]; labels, and targets ([batch][classes], or NULL: one-hot vectors of
 * the labels), on the device. Asynchronous. dlogits: the loss's gradient, of which samples is the number that a mean is over
 * (the batch's count; unused by a sum); NULL for evaluation. */
ls_rc ls_loss_compute(ls_loss *loss, size_t lanes, size_t batch, const void *logits, const int32_t *labels,
                      const float *targets, double samples, void *dlogits);
/* Takes note that a captured compute over so many samples has been launched with a graph. */
void ls_loss_replayed(ls_loss *loss, size_t batch);
/* Sum of the last batch's terms; waits for the stream. */
ls_rc ls_loss_read_sum(ls_loss *loss, double *sum);
/* The loss of the last batch, 0 without samples; waits for the stream. */
ls_rc ls_loss_read(ls_loss *loss, double *value);

#endif
