#include "gpu/kernels/kernel.h"

template <typename T> LS_KERNEL positive_kernel(size_t count, const T *x, uint8_t *positive) {
    LS_GRID_STRIDE(i, count) {
        positive[i] = x[i] > T(0) ? 1 : 0;
    }
}

template <typename T>
static cudaError_t positive_of(cudaStream_t stream, size_t count, const void *x, uint8_t *positive) {
    return LS_LAUNCH(positive_kernel<T>, count, stream, count, static_cast<const T *>(x), positive);
}

cudaError_t ls_kernel_positive(cudaStream_t stream, ls_dtype dtype, size_t count, const void *x, uint8_t *positive) {
    LS_ACCESS(LS_READS(x, count * ls_dtype_size(dtype)), LS_WRITES(positive, count));
    return LS_BY_DTYPE(dtype, positive_of, stream, count, x, positive);
}
