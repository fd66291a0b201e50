#include "gpu/kernels/softmax.h"

/* y = x - max - log(sum exp(x - max)). Lanes beyond the batch are computed too: their logits are finite, so is y. */
template <typename T, size_t L> LS_KERNEL log_softmax_forward(size_t samples, size_t classes, const T *x, T *y) {
    LS_GRID_STRIDE(n, samples) {
        size_t first = n / L * classes * L + n % L;
        T top = ls_largest(x + first, L, classes);
        T log_sum = ls_log(ls_exp_sum(x + first, L, classes, top));
        for (size_t c = 0; c < classes; c++) {
            y[first + c * L] = (x[first + c * L] - top) - log_sum;
        }
    }
}

template <typename T, size_t L>
LS_KERNEL log_softmax_backward(size_t samples, size_t classes, const T *y, const T *dy, T *dx) {
    LS_GRID_STRIDE(n, samples) {
        size_t first = n / L * classes * L + n % L;
        T sum = 0;
        for (size_t c = 0; c < classes; c++) {
            sum += dy[first + c * L];
        }
        for (size_t c = 0; c < classes; c++) {
            dx[first + c * L] = dy[first + c * L] - ls_exp(y[first + c * L]) * sum;
        }
    }
}

template <typename T, size_t L>
static cudaError_t forward(cudaStream_t stream, size_t batch, size_t classes, const void *x, void *y) {
    size_t samples = (batch + L - 1) / L * L;
    return LS_LAUNCH((log_softmax_forward<T, L>), samples * classes == 0 ? 0 : samples, stream, samples, classes,
                     static_cast<const T *>(x), static_cast<T *>(y));
}

template <typename T, size_t L>
static cudaError_t backward(cudaStream_t stream, size_t batch, size_t classes, const void *y, const void *dy,
                            void *dx) {
    size_t samples = (batch + L - 1) / L * L;
    return LS_LAUNCH((log_softmax_backward<T, L>), samples, stream, samples, classes, static_cast<const T *>(y),
                     static_cast<const T *>(dy), static_cast<T *>(dx));
}

cudaError_t ls_kernel_log_softmax_forward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch,
                                          size_t classes, const void *x, void *y) {
    size_t bytes = ls_lane_values(lanes, batch, classes) * ls_dtype_size(dtype);
    LS_ACCESS(LS_READS(x, bytes), LS_WRITES(y, bytes));
    return LS_BY_DTYPE_LANES(dtype, lanes, forward, stream, batch, classes, x, y);
}

cudaError_t ls_kernel_log_softmax_backward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch,
                                           size_t classes, const void *y, const void *dy, void *dx) {
    size_t bytes = ls_lane_values(lanes, batch, classes) * ls_dtype_size(dtype);
    LS_ACCESS(LS_READS(y, bytes), LS_READS(dy, bytes), LS_WRITES(dx, bytes));
    return LS_BY_DTYPE_LANES(dtype, lanes, backward, stream, batch, classes, y, dy, dx);
}
