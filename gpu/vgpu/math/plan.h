/* What the files of this folder share: the math of a stream, and a convolution's plans. */
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

/* Plans of one convolution; the memory that they name belongs to them. */
typedef struct direct_plans {
    ls_dtype dtype;
    size_t max_batch;
    direct_gather forward, backward_input;
    direct_correlation backward_params;
} direct_plans;

/* Makes the plans of a shape that has been checked; on failure nothing is left. */
ls_rc direct_plans_make(const direct_isa *isa, const ls_conv_shape *shape, ls_dtype dtype, size_t max_batch,
                        direct_plans *plans);
void direct_plans_free(direct_plans *plans);

#endif
