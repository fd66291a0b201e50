#include "gpu/kernels/kernel.h"

/* torch.argmax: the first largest wins, and the first NaN over everything. */
template <typename T, size_t L>
LS_KERNEL accuracy_kernel(size_t batch, size_t classes, const T *logits, const int32_t *labels, uint8_t *correct) {
    LS_GRID_STRIDE(n, batch) {
        const T *z = logits + n / L * classes * L + n % L;
        size_t best = 0;
        for (size_t c = 1; c < classes; c++) {
            T value = z[c * L];
            T top = z[best * L];
            if (value > top || (value != value && top == top)) {
                best = c;
            }
        }
        correct[n] = labels[n] >= 0 && static_cast<size_t>(labels[n]) == best ? 1 : 0;
    }
}

template <typename T, size_t L>
static cudaError_t accuracy(cudaStream_t stream, size_t batch, size_t classes, const void *logits,
                            const int32_t *labels, uint8_t *correct) {
    return LS_LAUNCH((accuracy_kernel<T, L>), batch, stream, batch, classes, static_cast<const T *>(logits), labels,
                     correct);
}

cudaError_t ls_kernel_accuracy(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t classes,
                               const void *logits, const int32_t *labels, uint8_t *correct) {
    LS_ACCESS(LS_READS(logits, ls_lane_values(lanes, batch, classes) * ls_dtype_size(dtype)),
              LS_READS(labels, batch * sizeof *labels), LS_WRITES(correct, batch * sizeof *correct));
    return LS_BY_DTYPE_LANES(dtype, lanes, accuracy, stream, batch, classes, logits, labels, correct);
}
