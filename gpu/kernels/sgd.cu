#include "gpu/kernels/kernel.h"

/* PyTorch's torch.optim.SGD (torch/optim/sgd.py, single-tensor path). sign is -1 to maximise. */
template <typename T>
LS_KERNEL sgd_plain(size_t count, T *param, const T *grad, T sign, T given_lr, T weight_decay,
                    const ls_step_values *live) {
    const T lr = live != nullptr ? static_cast<T>(live->scalar[0]) : given_lr;
    LS_GRID_STRIDE(i, count) {
        param[i] -= lr * (sign * grad[i] + weight_decay * param[i]);
    }
}

/* The first step copies the gradient into the velocity, undamped and whatever it held. */
template <typename T, bool nesterov>
LS_KERNEL sgd_first(size_t count, T *param, const T *grad, T *velocity, T sign, T lr, T momentum, T weight_decay) {
    LS_GRID_STRIDE(i, count) {
        T step = sign * grad[i] + weight_decay * param[i];
        velocity[i] = step;
        param[i] -= lr * (nesterov ? step + momentum * step : step);
    }
}

/* keep: 1 - dampening. */
template <typename T, bool nesterov>
LS_KERNEL sgd_momentum(size_t count, T *param, const T *grad, T *velocity, T sign, T given_lr, T momentum, T keep,
                       T weight_decay, const ls_step_values *live) {
    const T lr = live != nullptr ? static_cast<T>(live->scalar[0]) : given_lr;
    LS_GRID_STRIDE(i, count) {
        T step = sign * grad[i] + weight_decay * param[i];
        T next = momentum * velocity[i] + keep * step;
        velocity[i] = next;
        param[i] -= lr * (nesterov ? step + momentum * next : next);
    }
}

template <typename T, bool nesterov>
static cudaError_t with_momentum(cudaStream_t stream, size_t count, T *w, const T *g, T *v, const ls_sgd *o) {
    T sign = static_cast<T>(o->maximize ? -1 : 1);
    T lr = static_cast<T>(o->lr);
    T momentum = static_cast<T>(o->momentum);
    T decay = static_cast<T>(o->weight_decay);
    if (o->first) {
        return LS_LAUNCH((sgd_first<T, nesterov>), count, stream, count, w, g, v, sign, lr, momentum, decay);
    }
    T keep = static_cast<T>(1 - o->dampening);
    const ls_step_values *live = o->live;
    return LS_LAUNCH((sgd_momentum<T, nesterov>), count, stream, count, w, g, v, sign, lr, momentum, keep, decay, live);
}

template <typename T>
static cudaError_t sgd(cudaStream_t stream, size_t count, void *param, const void *grad, void *velocity,
                       const ls_sgd *o) {
    T *w = static_cast<T *>(param);
    const T *g = static_cast<const T *>(grad);
    T *v = static_cast<T *>(velocity);
    if (o->momentum == 0) {
        T sign = static_cast<T>(o->maximize ? -1 : 1);
        T lr = static_cast<T>(o->lr);
        T decay = static_cast<T>(o->weight_decay);
        const ls_step_values *live = o->live;
        return LS_LAUNCH(sgd_plain<T>, count, stream, count, w, g, sign, lr, decay, live);
    }
    return o->nesterov ? with_momentum<T, true>(stream, count, w, g, v, o)
                       : with_momentum<T, false>(stream, count, w, g, v, o);
}

cudaError_t ls_kernel_sgd(cudaStream_t stream, ls_dtype dtype, size_t count, void *param, const void *grad,
                          void *velocity, const ls_sgd *options) {
    size_t state = options->momentum == 0 ? 0 : count * ls_dtype_size(dtype);
    LS_ACCESS(LS_UPDATES(param, count * ls_dtype_size(dtype)), LS_READS(grad, count * ls_dtype_size(dtype)),
              LS_UPDATES(velocity, options->first ? 0 : state), LS_WRITES(velocity, options->first ? state : 0),
              LS_READS(options->live, options->first && state != 0 ? 0 : sizeof *options->live));
    return LS_BY_DTYPE(dtype, sgd, stream, count, param, grad, velocity, options);
}
