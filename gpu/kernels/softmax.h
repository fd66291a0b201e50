/* What log_softmax.cu and cross_entropy.cu share: the logits of one sample, `stride` elements apart. */
#ifndef LS_GPU_KERNELS_SOFTMAX_H
#define LS_GPU_KERNELS_SOFTMAX_H

#include "gpu/kernels/kernel.h"

LS_DEVICE float ls_exp(float x) {
    return expf(x);
}
LS_DEVICE double ls_exp(double x) {
    return exp(x);
}
LS_DEVICE float ls_log(float x) {
    return logf(x);
}
LS_DEVICE double ls_log(double x) {
    return log(x);
}

/* The largest of the values; NaN when one is NaN. */
template <typename T> LS_DEVICE T ls_largest(const T *z, size_t stride, size_t classes) {
    T top = z[0];
    for (size_t c = 1; c < classes; c++) {
        T value = z[c * stride];
        if (value > top || value != value) {
            top = value;
        }
    }
    return top;
}

/* sum_c exp(z_c - top): with top the largest value no term overflows and one of them is 1. */
template <typename T> LS_DEVICE T ls_exp_sum(const T *z, size_t stride, size_t classes, T top) {
    T sum = 0;
    for (size_t c = 0; c < classes; c++) {
        sum += ls_exp(z[c * stride] - top);
    }
    return sum;
}

#endif
