/* How each kind of layer runs on a device: one file a kind, listed in reference/layers/table.c. */
#ifndef LS_REFERENCE_LAYERS_LAYER_H
#define LS_REFERENCE_LAYERS_LAYER_H

#include "gpu/kernels/kernels.h"
#include "gpu/layer_math.h"
#include "reference/model.h"

/* What a layer gets in a pass. Device pointers; activations and their gradients in the platform's layout. */
typedef struct ls_layer_pass {
    cudaStream_t stream;
    ls_dtype dtype;
    size_t lanes;
    size_t batch; /* samples, at least 1 */
    const void *x;
    void *y;
    const void *dy; /* backward only, as the gradients below */
    void *dx;
    const void *weight, *bias;
    void *dweight, *dbias;
    bool training; /* false: evaluation */
    uint64_t seed; /* dropout: see ls_replica_set_masks */
    uint64_t step;
    const ls_step_values *live; /* NULL, or device memory that holds the step when the pass runs */
    size_t rank, layer;
    void *running_mean, *running_var; /* batchnorm's buffers */
    int64_t *tracked;
    uint8_t *index; /* one byte an output value, kept from forward to backward, where the kind wants it */
} ls_layer_pass;

/* Every call is asynchronous on the pass's stream; none allocates but open. */
typedef struct ls_layer_ops {
    bool identity;     /* the output is the input's memory; forward and backward_input do nothing */
    bool in_place;     /* forward may write over its input, backward_input over dy */
    bool needs_input;  /* backward reads x */
    bool needs_output; /* backward reads y */
    bool wants_index;  /* pass.index */
    /* Plans what depends on shape, dtype and largest batch; NULL where there is nothing to plan. The state is closed with
     * close before math. */
    ls_rc (*open)(ls_math *math, const ls_layer *layer, ls_dtype dtype, size_t max_batch, void **state);
    void (*close)(void *state);
    /* How many of the `count` layers behind this one the platform computes in the same pass; NULL: none. Then y and dy of this
     * layer's passes are those of the last of them, and attach, NULL without fuses, is called once after open. index: the
     * pooling's; y: where the passes' y will lie. */
    size_t (*fuses)(const ls_layer *layer, size_t count);
    ls_rc (*attach)(void *state, const ls_layer *layer, size_t fused, uint8_t *index, const void *y);
    ls_rc (*forward)(void *state, const ls_layer *layer, const ls_layer_pass *pass);
    ls_rc (*backward_input)(void *state, const ls_layer *layer, const ls_layer_pass *pass);
    /* Comes before backward_input; NULL without weights. dbias is NULL without a bias. */
    ls_rc (*backward_params)(void *state, const ls_layer *layer, const ls_layer_pass *pass);
    /* Writes the decisions of the forward pass, one byte a value in the platform's layout; NULL where pass.index holds them
     * or there are none. */
    ls_rc (*decisions)(const ls_layer *layer, const ls_layer_pass *pass, uint8_t *decisions);
} ls_layer_ops;

extern const ls_layer_ops ls_layer_conv;
extern const ls_layer_ops ls_layer_maxpool;
extern const ls_layer_ops ls_layer_relu;
extern const ls_layer_ops ls_layer_flatten;
extern const ls_layer_ops ls_layer_linear;
extern const ls_layer_ops ls_layer_log_softmax;
extern const ls_layer_ops ls_layer_avgpool;
extern const ls_layer_ops ls_layer_dropout;
extern const ls_layer_ops ls_layer_batchnorm;

const ls_layer_ops *ls_layer_ops_of(ls_layer_kind kind);

#endif
