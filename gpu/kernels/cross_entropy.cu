#include "gpu/kernels/softmax.h"

/* One sample: loss = log(sum exp(z - max)) - sum_c q_c*(z_c - max), and dlogits = (softmax - q)/denominator, with q_c = keep
 * for the label and `share` more for every class (keep 1, share 0: the label alone). A label outside 0..classes-1 makes the
 * loss and the gradient of its sample NaN, so that it cannot pass unseen. */
template <typename T, size_t L>
LS_DEVICE void cross_entropy_sample(size_t classes, const T *z, int32_t label, T keep, T share, T denominator, T *loss,
                                    T *dz) {
    size_t target = label >= 0 ? static_cast<size_t>(label) : classes;
    T top = ls_largest(z, L, classes);
    T sum = ls_exp_sum(z, L, classes, top);
    T log_sum = ls_log(sum);
    T value = target < classes ? log_sum - (z[target * L] - top) : static_cast<T>(NAN);
    if (share > 0) {
        T all = 0;
        for (size_t c = 0; c < classes; c++) {
            all += log_sum - (z[c * L] - top);
        }
        value = keep * value + share * all;
    }
    *loss = value;
    if (dz == NULL) {
        return;
    }
    for (size_t c = 0; c < classes; c++) {
        T softmax = ls_exp(z[c * L] - top) / sum;
        T onehot = target < classes ? static_cast<T>(c == target ? 1 : 0) : static_cast<T>(NAN);
        dz[c * L] = (softmax - (keep * onehot + share)) / denominator;
    }
}

template <typename T, size_t L>
LS_KERNEL cross_entropy_kernel(size_t batch, size_t samples, size_t classes, const T *logits, const int32_t *labels,
                               T keep, T share, T denominator, T *losses, T *dlogits) {
    LS_GRID_STRIDE(n, samples) {
        size_t first = n / L * classes * L + n % L;
        T *dz = dlogits == NULL ? NULL : dlogits + first;
        if (n < batch) {
            cross_entropy_sample<T, L>(classes, logits + first, labels[n], keep, share, denominator, losses + n, dz);
        } else if (dz != NULL) {
            for (size_t c = 0; c < classes; c++) {
                dz[c * L] = 0;
            }
        }
    }
}

template <typename T, size_t L>
static cudaError_t cross_entropy(cudaStream_t stream, size_t batch, size_t classes, const void *logits,
                                 const int32_t *labels, double smoothing, double denominator, void *losses,
                                 void *dlogits) {
    if (classes == 0) {
        return cudaErrorInvalidValue;
    }
    size_t samples = (batch + L - 1) / L * L;
    return LS_LAUNCH((cross_entropy_kernel<T, L>), samples, stream, batch, samples, classes,
                     static_cast<const T *>(logits), labels, static_cast<T>(1 - smoothing),
                     static_cast<T>(smoothing / static_cast<double>(classes)), static_cast<T>(denominator),
                     static_cast<T *>(losses), static_cast<T *>(dlogits));
}

cudaError_t ls_kernel_cross_entropy(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t classes,
                                    const void *logits, const int32_t *labels, double smoothing, double denominator,
                                    void *losses, void *dlogits) {
    size_t bytes = ls_lane_values(lanes, batch, classes) * ls_dtype_size(dtype);
    LS_ACCESS(LS_READS(logits, bytes), LS_READS(labels, batch * sizeof *labels),
              LS_WRITES(losses, batch * ls_dtype_size(dtype)), LS_WRITES(dlogits, bytes));
    return LS_BY_DTYPE_LANES(dtype, lanes, cross_entropy, stream, batch, classes, logits, labels, smoothing,
                             denominator, losses, dlogits);
}
