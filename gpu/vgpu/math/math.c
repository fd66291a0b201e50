/* The layer math of vgpu: opening it on a stream, and what the im2col engine needs of it. */
#include <stdlib.h>

#include "gpu/layer_engine.h"
#include "gpu/vgpu/math/plan.h"

size_t ls_lanes(void) {
    return DIRECT_LANES;
}

size_t ls_activation_count(size_t batch, size_t features) {
    return (batch + DIRECT_LANES - 1) / DIRECT_LANES * DIRECT_LANES * features;
}

ls_rc ls_math_open(cudaStream_t stream, ls_math **out) {
    *out = NULL;
    const direct_isa *isa = direct_isa_select();
    if (isa == NULL) {
        return LS_BAD_INPUT;
    }
    ls_math *math = ls_calloc(1, sizeof *math, "layer math");
    if (math == NULL) {
        return LS_DEVICE_FAILED;
    }
    math->stream = stream;
    math->isa = isa;
    *out = math;
    return LS_OK;
}

void ls_math_close(ls_math *math) {
    if (math == NULL) {
        return;
    }
    (void)ls_cuda_check(cudaFree(math->scratch), "cudaFree(scratch)", __FILE__, __LINE__);
    free(math);
}

/* Every mode: the direct engine has one algorithm for each shape. */
bool ls_math_mode_is_exact(ls_math_mode mode) {
    (void)mode;
    return true;
}

const char *ls_math_description(void) {
    if (ls_math_get_mode() == LS_MATH_IM2COL) {
        return "im2col and GEMM, plain loops";
    }
    const direct_isa *isa = direct_isa_select();
    return isa != NULL ? isa->description : "none";
}

cudaStream_t ls_math_stream(const ls_math *math) {
    return math->stream;
}

/* The second-level cache and some of the third. */
size_t ls_math_scratch_target(void) {
    return (size_t)4 << 20;
}

/* cudaFree waits for the device, so nothing still uses the old one. */
ls_rc ls_math_reserve_scratch(ls_math *math, size_t bytes) {
    if (bytes <= math->scratch_bytes) {
        return LS_OK;
    }
    void *old = math->scratch;
    math->scratch = NULL;
    math->scratch_bytes = 0;
    LS_CUDA(cudaFree(old));
    LS_CUDA(cudaMalloc(&math->scratch, bytes));
    math->scratch_bytes = bytes;
    return LS_OK;
}

void *ls_math_scratch(const ls_math *math) {
    return math->scratch;
}
