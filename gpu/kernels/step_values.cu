#include "gpu/kernels/kernel.h"

/* The values travel in the launch itself: there is no host memory that must wait for the device. */
LS_KERNEL step_values_kernel(ls_step_values values, ls_step_values *to) {
    if (ls_first_thread()) {
        *to = values;
    }
}

cudaError_t ls_kernel_step_values(cudaStream_t stream, const ls_step_values *values, ls_step_values *to) {
    ls_step_values v = *values;
    LS_ACCESS(LS_WRITES(to, sizeof *to));
    return LS_LAUNCH_BLOCK(step_values_kernel, stream, v, to);
}
