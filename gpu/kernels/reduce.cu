#include "gpu/kernels/kernel.h"

/* One block: each thread adds every blockDim-th value, then the threads' sums are added as a tree; both orders are
 * fixed by count alone. */
template <typename T> LS_KERNEL sum_kernel(size_t count, const T *values, double *sum) {
    double own = 0;
    LS_BLOCK_STRIDE(i, count) {
        own += static_cast<double>(values[i]);
    }
    double total = ls_block_sum(own);
    if (ls_first_thread()) {
        *sum = total;
    }
}

template <typename T> static cudaError_t sum_of(cudaStream_t stream, size_t count, const void *values, double *sum) {
    return LS_LAUNCH_BLOCK(sum_kernel<T>, stream, count, static_cast<const T *>(values), sum);
}

cudaError_t ls_kernel_sum(cudaStream_t stream, ls_dtype dtype, size_t count, const void *values, double *sum) {
    LS_ACCESS(LS_READS(values, count * ls_dtype_size(dtype)), LS_WRITES(sum, sizeof *sum));
    return LS_BY_DTYPE(dtype, sum_of, stream, count, values, sum);
}
