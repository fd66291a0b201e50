/* The layer math of vgpu: opening it on a stream. */
#include "gpu/vgpu/math/plan.h"

#include <stdlib.h>

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
    free(math);
}

const char *ls_math_description(void) {
    const direct_isa *isa = direct_isa_select();
    return isa != NULL ? isa->description : "none";
}
