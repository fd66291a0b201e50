#include "gpu/kernels/root.h"

/* PyTorch's torch.optim.RMSprop (torch/optim/rmsprop.py, single-tensor path). */
template <typename T> struct rmsprop_scalars {
    T sign; /* -1 to maximise */
    T lr, momentum, decay;
    T alpha, keep; /* keep: 1 - alpha */
    T eps;
};

/* v, mean, velocity: square_avg, grad_avg, momentum_buffer. */
template <typename T, bool centered, bool momentum>
LS_KERNEL rmsprop_kernel(size_t count, T *param, const T *grad, T *v, T *mean, T *velocity, rmsprop_scalars<T> s,
                         const ls_step_values *live) {
    const T lr = live != nullptr ? static_cast<T>(live->scalar[0]) : s.lr;
    LS_GRID_STRIDE(i, count) {
        T g = s.sign * grad[i] + s.decay * param[i];
        T square = v[i] * s.alpha + s.keep * g * g;
        v[i] = square;
        if (centered) {
            T average = mean[i] * s.alpha + s.keep * g;
            mean[i] = average;
            square -= average * average;
        }
        T root = ls_root(square) + s.eps;
        if (momentum) {
            T next = velocity[i] * s.momentum + g / root;
            velocity[i] = next;
            param[i] -= lr * next;
        } else {
            param[i] -= lr * g / root;
        }
    }
}

template <typename T>
static cudaError_t rmsprop(cudaStream_t stream, size_t count, void *param, const void *grad, void *square, void *mean,
                           void *velocity, const ls_rmsprop *o) {
    rmsprop_scalars<T> s;
    s.sign = static_cast<T>(o->maximize ? -1 : 1);
    s.lr = static_cast<T>(o->lr);
    s.momentum = static_cast<T>(o->momentum);
    s.decay = static_cast<T>(o->weight_decay);
    s.alpha = static_cast<T>(o->alpha);
    s.keep = static_cast<T>(1 - o->alpha);
    s.eps = static_cast<T>(o->eps);
    T *w = static_cast<T *>(param);
    const T *g = static_cast<const T *>(grad);
    T *v = static_cast<T *>(square);
    T *m = static_cast<T *>(mean);
    T *b = static_cast<T *>(velocity);
    const ls_step_values *live = o->live;
    if (o->momentum == 0) {
        return o->centered ? LS_LAUNCH((rmsprop_kernel<T, true, false>), count, stream, count, w, g, v, m, b, s, live)
                           : LS_LAUNCH((rmsprop_kernel<T, false, false>), count, stream, count, w, g, v, m, b, s, live);
    }
    return o->centered ? LS_LAUNCH((rmsprop_kernel<T, true, true>), count, stream, count, w, g, v, m, b, s, live)
                       : LS_LAUNCH((rmsprop_kernel<T, false, true>), count, stream, count, w, g, v, m, b, s, live);
}

cudaError_t ls_kernel_rmsprop(cudaStream_t stream, ls_dtype dtype, size_t count, void *param, const void *grad,
                              void *square_avg, void *grad_avg, void *momentum_buffer, const ls_rmsprop *options) {
    size_t bytes = count * ls_dtype_size(dtype);
    LS_ACCESS(LS_UPDATES(param, bytes), LS_READS(grad, bytes), LS_UPDATES(square_avg, bytes),
              LS_UPDATES(grad_avg, options->centered ? bytes : 0),
              LS_UPDATES(momentum_buffer, options->momentum == 0 ? 0 : bytes),
              LS_READS(options->live, sizeof *options->live));
    return LS_BY_DTYPE(dtype, rmsprop, stream, count, param, grad, square_avg, grad_avg, momentum_buffer, options);
}
