#include "gpu/kernels/root.h"

/* The target of value c of sample n: as given, or the one-hot vector of its label. A label outside 0..values-1 makes the
 * sample's loss and gradient NaN, so that it cannot pass unseen. */
template <typename T>
LS_DEVICE T mse_target(size_t n, size_t c, size_t values, const int32_t *labels, const float *targets) {
    if (targets != NULL) {
        return static_cast<T>(targets[n * values + c]);
    }
    int32_t label = labels[n];
    if (label < 0 || static_cast<size_t>(label) >= values) {
        return static_cast<T>(NAN);
    }
    return static_cast<T>(static_cast<size_t>(label) == c ? 1 : 0);
}

template <typename T, size_t L>
LS_KERNEL mse_kernel(size_t batch, size_t samples, size_t values, const T *y, const int32_t *labels,
                     const float *targets, T scale, T *losses, T *dy) {
    LS_GRID_STRIDE(n, samples) {
        size_t first = n / L * values * L + n % L;
        T sum = 0;
        for (size_t c = 0; c < values; c++) {
            T difference = n < batch ? y[first + c * L] - mse_target<T>(n, c, values, labels, targets) : 0;
            sum += difference * difference;
            if (dy != NULL) {
                dy[first + c * L] = scale * difference;
            }
        }
        if (n < batch) {
            losses[n] = sum;
        }
    }
}

/* The root's derivative: 1/(2*root). */
template <typename T> LS_KERNEL rmse_kernel(size_t count, const double *sum, double denominator, T *dy) {
    double root = ls_root(*sum / denominator);
    T scale = static_cast<T>(1 / (2 * root));
    LS_GRID_STRIDE(i, count) {
        dy[i] *= scale;
    }
}

template <typename T, size_t L>
static cudaError_t mse(cudaStream_t stream, size_t batch, size_t values, const void *y, const int32_t *labels,
                       const float *targets, double denominator, void *losses, void *dy) {
    if (values == 0) {
        return cudaErrorInvalidValue;
    }
    size_t samples = (batch + L - 1) / L * L;
    return LS_LAUNCH((mse_kernel<T, L>), samples, stream, batch, samples, values, static_cast<const T *>(y), labels,
                     targets, static_cast<T>(2 / denominator), static_cast<T *>(losses), static_cast<T *>(dy));
}

template <typename T>
static cudaError_t rmse(cudaStream_t stream, size_t count, const double *sum, double denominator, void *dy) {
    return LS_LAUNCH(rmse_kernel<T>, count, stream, count, sum, denominator, static_cast<T *>(dy));
}

cudaError_t ls_kernel_mse(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t values, const void *y,
                          const int32_t *labels, const float *targets, double denominator, void *losses, void *dy) {
    size_t bytes = ls_lane_values(lanes, batch, values) * ls_dtype_size(dtype);
    LS_ACCESS(LS_READS(y, bytes), LS_READS(labels, targets == NULL ? batch * sizeof *labels : 0),
              LS_READS(targets, batch * values * sizeof *targets), LS_WRITES(losses, batch * ls_dtype_size(dtype)),
              LS_WRITES(dy, bytes));
    return LS_BY_DTYPE_LANES(dtype, lanes, mse, stream, batch, values, y, labels, targets, denominator, losses, dy);
}

cudaError_t ls_kernel_rmse(cudaStream_t stream, ls_dtype dtype, size_t count, const double *sum, double denominator,
                           void *dy) {
    LS_ACCESS(LS_READS(sum, sizeof *sum), LS_UPDATES(dy, count * ls_dtype_size(dtype)));
    return LS_BY_DTYPE(dtype, rmse, stream, count, sum, denominator, dy);
}
