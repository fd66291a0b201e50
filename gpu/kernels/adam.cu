#include "gpu/kernels/root.h"

/* PyTorch's torch.optim.Adam and AdamW (torch/optim/adam.py, adamw.py, single-tensor path): which of the two lies in the
 * scalars alone. */
template <typename T> struct adam_scalars {
    T sign;          /* -1 to maximise */
    T shrink, decay; /* AdamW: 1 - lr*weight_decay and 0; Adam: 1 and weight_decay */
    T beta1, keep1;  /* keep: 1 - beta */
    T beta2, keep2;
    T root2, eps; /* root2: sqrt(1 - beta2^step) */
    T step_size;  /* -lr/(1 - beta1^step) */
};

/* torch.maximum: not-a-number wins. */
template <typename T> LS_DEVICE T adam_larger(T a, T b) {
    return a > b || a != a ? a : b;
}

/* The scalars of the step that runs. */
template <typename T> LS_DEVICE adam_scalars<T> adam_of_step(adam_scalars<T> s, const ls_step_values *live) {
    if (live != nullptr) {
        s.shrink = static_cast<T>(live->scalar[0]);
        s.root2 = static_cast<T>(live->scalar[1]);
        s.step_size = static_cast<T>(live->scalar[2]);
    }
    return s;
}

/* m, v: exp_avg, exp_avg_sq; top: max_exp_avg_sq. */
template <typename T, bool amsgrad>
LS_KERNEL adam_kernel(size_t count, T *param, const T *grad, T *m, T *v, T *top, adam_scalars<T> given,
                      const ls_step_values *live) {
    const adam_scalars<T> s = adam_of_step(given, live);
    LS_GRID_STRIDE(i, count) {
        T w = param[i] * s.shrink;
        T g = s.sign * grad[i] + s.decay * w;
        T mean = m[i] * s.beta1 + s.keep1 * g;
        T square = v[i] * s.beta2 + s.keep2 * g * g;
        m[i] = mean;
        v[i] = square;
        if (amsgrad) {
            square = adam_larger(top[i], square);
            top[i] = square;
        }
        param[i] = w + s.step_size * mean / (ls_root(square) / s.root2 + s.eps);
    }
}

template <typename T>
static cudaError_t adam(cudaStream_t stream, size_t count, void *param, const void *grad, void *mean, void *square,
                        void *top, const ls_adam *o) {
    adam_scalars<T> s;
    double scalar[LS_STEP_SCALARS];
    ls_adam_live(o, scalar);
    s.sign = static_cast<T>(o->maximize ? -1 : 1);
    s.shrink = static_cast<T>(scalar[0]);
    s.decay = static_cast<T>(o->decoupled ? 0 : o->weight_decay);
    s.beta1 = static_cast<T>(o->beta1);
    s.keep1 = static_cast<T>(1 - o->beta1);
    s.beta2 = static_cast<T>(o->beta2);
    s.keep2 = static_cast<T>(1 - o->beta2);
    s.root2 = static_cast<T>(scalar[1]);
    s.eps = static_cast<T>(o->eps);
    s.step_size = static_cast<T>(scalar[2]);
    T *w = static_cast<T *>(param);
    const T *g = static_cast<const T *>(grad);
    T *m = static_cast<T *>(mean);
    T *v = static_cast<T *>(square);
    T *t = static_cast<T *>(top);
    const ls_step_values *live = o->live;
    return o->amsgrad ? LS_LAUNCH((adam_kernel<T, true>), count, stream, count, w, g, m, v, t, s, live)
                      : LS_LAUNCH((adam_kernel<T, false>), count, stream, count, w, g, m, v, t, s, live);
}

cudaError_t ls_kernel_adam(cudaStream_t stream, ls_dtype dtype, size_t count, void *param, const void *grad,
                           void *exp_avg, void *exp_avg_sq, void *max_exp_avg_sq, const ls_adam *options) {
    size_t bytes = count * ls_dtype_size(dtype);
    LS_ACCESS(LS_UPDATES(param, bytes), LS_READS(grad, bytes), LS_UPDATES(exp_avg, bytes),
              LS_UPDATES(exp_avg_sq, bytes), LS_UPDATES(max_exp_avg_sq, options->amsgrad ? bytes : 0),
              LS_READS(options->live, sizeof *options->live));
    return LS_BY_DTYPE(dtype, adam, stream, count, param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, options);
}
