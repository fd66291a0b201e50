#include "gpu/kernels/kernel.h"

template <typename T> LS_KERNEL scale_kernel(size_t count, T factor, T *y) {
    LS_GRID_STRIDE(i, count) {
        y[i] *= factor;
    }
}

template <typename T> LS_KERNEL add_kernel(size_t count, const T *x, T *y) {
    LS_GRID_STRIDE(i, count) {
        y[i] += x[i];
    }
}

template <typename T> static cudaError_t scale(cudaStream_t stream, size_t count, double factor, void *y) {
    return LS_LAUNCH(scale_kernel<T>, count, stream, count, static_cast<T>(factor), static_cast<T *>(y));
}

template <typename T> static cudaError_t add(cudaStream_t stream, size_t count, const void *x, void *y) {
    return LS_LAUNCH(add_kernel<T>, count, stream, count, static_cast<const T *>(x), static_cast<T *>(y));
}

cudaError_t ls_kernel_scale(cudaStream_t stream, ls_dtype dtype, size_t count, double factor, void *y) {
    LS_ACCESS(LS_UPDATES(y, count * ls_dtype_size(dtype)));
    return LS_BY_DTYPE(dtype, scale, stream, count, factor, y);
}

cudaError_t ls_kernel_add(cudaStream_t stream, ls_dtype dtype, size_t count, const void *x, void *y) {
    LS_ACCESS(LS_READS(x, count * ls_dtype_size(dtype)), LS_UPDATES(y, count * ls_dtype_size(dtype)));
    return LS_BY_DTYPE(dtype, add, stream, count, x, y);
}
