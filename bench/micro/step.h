/* What a step of training computes, and something to train on: for measurements that read no data set. */
#ifndef LS_BENCH_MICRO_STEP_H
#define LS_BENCH_MICRO_STEP_H

#include "impls/run.h"
#include "reference/model.h"
#include "reference/replica.h"

/* The seed networks and the one of the same shape with 20, 50 and 500 channels (431,080 parameters). */
typedef struct ls_micro_model {
    const char *label;
    const char *model; /* as --model takes it */
} ls_micro_model;

/* Ended by a NULL label. */
extern const ls_micro_model ls_micro_models[];

/* A run of the model by default options. */
void ls_micro_step_run(const char *model, ls_dtype dtype, size_t batch, ls_run *run);

/* A batch of random pixels and labels, the same for the same seed. Owned: ls_micro_batch_free. */
typedef struct ls_micro_batch {
    ls_batch batch;
    void *memory;
} ls_micro_batch;
ls_rc ls_micro_batch_make(const ls_model *model, size_t count, size_t seed, ls_micro_batch *out);
void ls_micro_batch_free(ls_micro_batch *batch);

/* Floating-point operations of a layer's forward pass over one sample, a multiply-add being two; 0 for layers without
 * weights of conv or linear. The passes to its parameters and to its input take as many each. */
double ls_micro_layer_flops(const ls_layer *layer, const ls_model *model);

/* Those of forward and backward of one sample that nothing avoids: three times the forward pass, less the first layer's gradient with
 * respect to the input, which nobody needs, and less the products with gradients that are zero for every input: behind a
 * max-pooling of windows side by side those of all outputs but one of a window, whoever computes them. */
double ls_micro_step_flops(const ls_model *model);

#endif
