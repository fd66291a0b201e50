#include "gpu/kernels/kernel.h"

/* PyTorch's torch.optim.SGD without dampening and Nesterov's rule (torch/optim/sgd.py). */
template <typename T> LS_KERNEL sgd_plain(size_t count, T *param, const T *grad, T lr, T weight_decay) {
    LS_GRID_STRIDE(i, count) {
        param[i] -= lr * (grad[i] + weight_decay * param[i]);
    }
}

/* The first step copies the gradient into the velocity, whatever it held. */
template <typename T> LS_KERNEL sgd_first(size_t count, T *param, const T *grad, T *velocity, T lr, T weight_decay) {
    LS_GRID_STRIDE(i, count) {
        T step = grad[i] + weight_decay * param[i];
        velocity[i] = step;
        param[i] -= lr * step;
    }
}

template <typename T>
LS_KERNEL sgd_momentum(size_t count, T *param, const T *grad, T *velocity, T lr, T momentum, T weight_decay) {
    LS_GRID_STRIDE(i, count) {
        T step = momentum * velocity[i] + (grad[i] + weight_decay * param[i]);
        velocity[i] = step;
        param[i] -= lr * step;
    }
}

template <typename T>
static cudaError_t sgd(cudaStream_t stream, size_t count, void *param, const void *grad, void *velocity, double lr,
                       double momentum, double weight_decay, int first) {
    T *w = static_cast<T *>(param);
    const T *g = static_cast<const T *>(grad);
    T *v = static_cast<T *>(velocity);
    T rate = static_cast<T>(lr);
    T decay = static_cast<T>(weight_decay);
    if (momentum == 0) {
        return LS_LAUNCH(sgd_plain<T>, count, stream, count, w, g, rate, decay);
    }
    if (first) {
        return LS_LAUNCH(sgd_first<T>, count, stream, count, w, g, v, rate, decay);
    }
    T friction = static_cast<T>(momentum);
    return LS_LAUNCH(sgd_momentum<T>, count, stream, count, w, g, v, rate, friction, decay);
}

cudaError_t ls_kernel_sgd(cudaStream_t stream, ls_dtype dtype, size_t count, void *param, const void *grad,
                          void *velocity, double lr, double momentum, double weight_decay, int first) {
    return LS_BY_DTYPE(dtype, sgd, stream, count, param, grad, velocity, lr, momentum, weight_decay, first);
}
