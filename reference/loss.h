/* The loss over a batch on one device, on its own so that DataParallel can compute it over gathered outputs. */
#ifndef LS_REFERENCE_LOSS_H
#define LS_REFERENCE_LOSS_H

#include <stdint.h>

#include "gpu/gpu.h"

typedef struct ls_loss ls_loss;

/* Buffers for max_batch samples of `classes` logits on the current device. */
ls_rc ls_loss_open(ls_dtype dtype, size_t classes, size_t max_batch, cudaStream_t stream, ls_loss **out);
void ls_loss_close(ls_loss *loss);

/* logits and dlogits: [ceil(batch/lanes)][classes][lanes]; labels on the device. Asynchronous. dlogits =
 * (softmax - onehot)/denominator; NULL for evaluation. */
ls_rc ls_loss_compute(ls_loss *loss, size_t lanes, size_t batch, const void *logits, const int32_t *labels,
                      double denominator, void *dlogits);
/* Sum of the last batch's losses; waits for the stream. */
ls_rc ls_loss_read_sum(ls_loss *loss, double *sum);

#endif
