/* What the files of this folder share: the math of a stream, and the plans of a layer. */
#ifndef LS_GPU_VGPU_MATH_PLAN_H
#define LS_GPU_VGPU_MATH_PLAN_H

#include "gpu/layer_math.h"
#include "gpu/vgpu/math/direct.h"

struct ls_math {
    cudaStream_t stream;
    const direct_isa *isa;
    void *scratch; /* device memory of the im2col engine; NULL: none yet */
    size_t scratch_bytes;
};

/* How many units hold value. */
static inline size_t direct_units(size_t value, size_t unit) {
    return (value + unit - 1) / unit;
}

/* The smallest multiple of unit from value on. */
static inline size_t direct_round_up(size_t value, size_t unit) {
    return direct_units(value, unit) * unit;
}

/* The larger of equal parts of a whole, as few as may be, none larger than `most`; neither is 0. */
static inline size_t direct_equal_part(size_t whole, size_t most) {
    return direct_units(whole, direct_units(whole, most));
}

/* Zeroed memory on the bounds of cache lines, so that no vector lies in two of them; freed with free. NULL after one line. */
void *direct_memory(size_t count, size_t element, const char *what);

/* Plans of one convolution; the memory that they name belongs to them. */
typedef struct direct_plans {
    ls_conv_shape shape;
    ls_dtype dtype;
    size_t max_batch;
    direct_gather forward, backward_input;
    direct_correlation backward_params;
    direct_pool pool; /* with direct_plans_pool */
} direct_plans;

/* Makes the plans of a shape that has been checked; on failure nothing is left. */
ls_rc direct_plans_make(const direct_isa *isa, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch,
                        direct_plans *plans);
void direct_plans_free(direct_plans *plans);
/* Frees what gradients of parameters are computed with, when a pooling's are instead. */
void direct_correlation_free(direct_correlation *c);
/* Adds a pooling of windows of `side`, and a relu or not. The plans stay where they are from now on. */
ls_rc direct_plans_pool(const direct_isa *isa, direct_plans *plans, size_t side, int relu);

/* Plans the gradients behind a pooling whose sizes are set. What there is after a failure goes with direct_sparse_free. */
ls_rc direct_sparse_make(const direct_isa *isa, const ls_conv_shape *shape, size_t element, direct_pool *pool);
void direct_sparse_free(direct_pool *pool);

/* Plans of one linear layer; the memory that they name belongs to them. */
typedef struct direct_linear {
    ls_dtype dtype;
    size_t max_batch, in, out;
    direct_product forward, backward_input, backward_params,
        rest;        /* rest: columns beyond the last whole panel of features */
    void *turned;    /* some features of x by samples: [panels][max_batch rounded up to 16][columns] */
    void *turned_dy; /* dy by samples: [max_batch rounded up to 16][rest.a_term] */
    void *corner;    /* the gradient of the rest: [out][columns] */
} direct_linear;

ls_rc direct_linear_make(const direct_isa *isa, size_t in, size_t out, ls_dtype dtype, size_t max_batch,
                         direct_linear *plans);
void direct_linear_free(direct_linear *plans);

/* x, dy: activations of `blocks` blocks of 16; the rest as in gpu/layer_math.h. */
void direct_linear_forward(const direct_isa *isa, const direct_linear *plans, size_t blocks, const void *x,
                           const void *weight, const void *bias, void *y);
void direct_linear_backward_input(const direct_isa *isa, const direct_linear *plans, size_t blocks, const void *dy,
                                  const void *weight, void *dx);
void direct_linear_backward_params(const direct_isa *isa, const direct_linear *plans, size_t blocks, const void *x,
                                   const void *dy, void *dweight, void *dbias);

/* Output channels or rows computed together: the group that wastes least in the last, not full one; with equal waste the
 * larger, which uses the registers best. */
size_t direct_group(size_t outputs);

#endif
