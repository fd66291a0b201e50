#include "gpu/kernels/kernel.h"

/* Both test y <= 0, as PyTorch does: a NaN is passed on and so is its gradient. */
template <typename T> LS_KERNEL relu_forward(size_t count, const T *x, T *y) {
    LS_GRID_STRIDE(i, count) {
        y[i] = x[i] <= T(0) ? T(0) : x[i];
    }
}

template <typename T> LS_KERNEL relu_backward(size_t count, const T *y, const T *dy, T *dx) {
    LS_GRID_STRIDE(i, count) {
        T gradient = dy[i]; /* loaded whatever y is, so that the loop vectorises without masks */
        dx[i] = y[i] <= T(0) ? T(0) : gradient;
    }
}

template <typename T> static cudaError_t forward(cudaStream_t stream, size_t count, const void *x, void *y) {
    return LS_LAUNCH(relu_forward<T>, count, stream, count, static_cast<const T *>(x), static_cast<T *>(y));
}

template <typename T>
static cudaError_t backward(cudaStream_t stream, size_t count, const void *y, const void *dy, void *dx) {
    return LS_LAUNCH(relu_backward<T>, count, stream, count, static_cast<const T *>(y), static_cast<const T *>(dy),
                     static_cast<T *>(dx));
}

cudaError_t ls_kernel_relu_forward(cudaStream_t stream, ls_dtype dtype, size_t count, const void *x, void *y) {
    LS_ACCESS(LS_READS(x, count * ls_dtype_size(dtype)), LS_WRITES(y, count * ls_dtype_size(dtype)));
    return LS_BY_DTYPE(dtype, forward, stream, count, x, y);
}

cudaError_t ls_kernel_relu_backward(cudaStream_t stream, ls_dtype dtype, size_t count, const void *y, const void *dy,
                                    void *dx) {
    LS_ACCESS(LS_READS(y, count * ls_dtype_size(dtype)), LS_READS(dy, count * ls_dtype_size(dtype)),
              LS_WRITES(dx, count * ls_dtype_size(dtype)));
    return LS_BY_DTYPE(dtype, backward, stream, count, y, dy, dx);
}
