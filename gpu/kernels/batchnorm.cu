#include "gpu/kernels/kernel.h"

/* All arithmetic is in double: the sums need it, and what is left of float32 is the one rounding of each result. */

template <typename T> struct running {
    T *mean, *var;
    int64_t *tracked;
    double momentum;
};

/* Samples of a block. */
template <size_t L> LS_DEVICE size_t used_lanes(size_t batch, size_t block) {
    return batch - block * L < L ? batch - block * L : L;
}

template <size_t L> LS_DEVICE double total_of(const double *own) {
    double total = 0;
    for (size_t l = 0; l < L; l++) {
        total += own[l];
    }
    return ls_block_sum(total);
}

/* Two passes, mean first, so that a variance far below the square of the mean keeps its digits. */
template <typename T, size_t L>
LS_KERNEL batchnorm_statistics(ls_batchnorm_shape s, double eps, const T *x, double *mean, double *invstd,
                               running<T> run) {
    const size_t blocks = (s.batch + L - 1) / L;
    const double count = static_cast<double>(s.batch * s.plane);
    LS_BLOCK_ROWS(c, s.channels) {
        double sums[L];
        double squares[L];
        LS_LANES(l, L) {
            sums[l] = 0;
            squares[l] = 0;
        }
        LS_BLOCK_STRIDE(i, blocks * s.plane) {
            size_t block = i / s.plane;
            const T *at = x + ((block * s.channels + c) * s.plane + i % s.plane) * L;
            size_t used = used_lanes<L>(s.batch, block);
            LS_LANES(l, L) {
                double value = static_cast<double>(at[l]);
                sums[l] += l < used ? value : 0;
            }
        }
        double m = total_of<L>(sums) / count;
        LS_BLOCK_STRIDE(i, blocks * s.plane) {
            size_t block = i / s.plane;
            const T *at = x + ((block * s.channels + c) * s.plane + i % s.plane) * L;
            size_t used = used_lanes<L>(s.batch, block);
            LS_LANES(l, L) {
                double d = static_cast<double>(at[l]) - m;
                squares[l] += l < used ? d * d : 0;
            }
        }
        double square = total_of<L>(squares);
        if (ls_first_thread()) {
            mean[c] = m;
            invstd[c] = 1 / sqrt(square / count + eps);
            if (run.mean != nullptr) {
                double keep = 1 - run.momentum;
                run.mean[c] = static_cast<T>(keep * static_cast<double>(run.mean[c]) + run.momentum * m);
                run.var[c] =
                    static_cast<T>(keep * static_cast<double>(run.var[c]) + run.momentum * (square / (count - 1)));
                if (c == 0) {
                    *run.tracked += 1;
                }
            }
        }
    }
}

template <typename T>
LS_KERNEL batchnorm_running(size_t channels, double eps, const T *running_mean, const T *running_var, double *mean,
                            double *invstd) {
    LS_GRID_STRIDE(c, channels) {
        mean[c] = static_cast<double>(running_mean[c]);
        invstd[c] = 1 / sqrt(static_cast<double>(running_var[c]) + eps);
    }
}

template <typename T, size_t L>
LS_KERNEL batchnorm_forward(ls_batchnorm_shape s, const double *mean, const double *invstd, const T *weight,
                            const T *bias, const T *x, T *y) {
    LS_GRID_STRIDE_2D(row, (s.batch + L - 1) / L * s.channels, p, s.plane) {
        size_t c = row % s.channels;
        size_t used = used_lanes<L>(s.batch, row / s.channels);
        size_t at = (row * s.plane + p) * L;
        double m = mean[c];
        double factor = invstd[c] * static_cast<double>(weight[c]);
        double shift = static_cast<double>(bias[c]);
        LS_LANES(l, L) {
            double value = (static_cast<double>(x[at + l]) - m) * factor + shift;
            y[at + l] = l < used ? static_cast<T>(value) : T(0);
        }
    }
}

/* Padded lanes of dy hold zeros and those of x finite values, so the sums need no mask. */
template <typename T, size_t L>
LS_KERNEL batchnorm_backward_params(ls_batchnorm_shape s, const double *mean, const double *invstd, const T *x,
                                    const T *dy, double *sums, T *dweight, T *dbias) {
    const size_t blocks = (s.batch + L - 1) / L;
    LS_BLOCK_ROWS(c, s.channels) {
        double plain[L];
        double products[L];
        double m = mean[c];
        LS_LANES(l, L) {
            plain[l] = 0;
            products[l] = 0;
        }
        LS_BLOCK_STRIDE(i, blocks * s.plane) {
            size_t at = ((i / s.plane * s.channels + c) * s.plane + i % s.plane) * L;
            LS_LANES(l, L) {
                double gradient = static_cast<double>(dy[at + l]);
                plain[l] += gradient;
                products[l] += gradient * (static_cast<double>(x[at + l]) - m);
            }
        }
        double sum = total_of<L>(plain);
        double product = total_of<L>(products) * invstd[c];
        if (ls_first_thread()) {
            sums[2 * c] = sum;
            sums[2 * c + 1] = product;
            dbias[c] = static_cast<T>(sum);
            dweight[c] = static_cast<T>(product);
        }
    }
}

template <typename T, size_t L>
LS_KERNEL batchnorm_backward_input(ls_batchnorm_shape s, const double *mean, const double *invstd, const double *sums,
                                   const T *weight, const T *x, const T *dy, T *dx) {
    const double count = static_cast<double>(s.batch * s.plane);
    LS_GRID_STRIDE_2D(row, (s.batch + L - 1) / L * s.channels, p, s.plane) {
        size_t c = row % s.channels;
        size_t used = used_lanes<L>(s.batch, row / s.channels);
        size_t at = (row * s.plane + p) * L;
        double m = mean[c];
        double inverse = invstd[c];
        double factor = inverse * static_cast<double>(weight[c]);
        double plain = sums[2 * c] / count;
        double slope = sums[2 * c + 1] / count * inverse;
        LS_LANES(l, L) {
            double value =
                factor * (static_cast<double>(dy[at + l]) - plain - (static_cast<double>(x[at + l]) - m) * slope);
            dx[at + l] = l < used ? static_cast<T>(value) : T(0);
        }
    }
}

static inline size_t activation_bytes(ls_dtype dtype, const ls_batchnorm_shape *s) {
    return ls_lane_values(s->lanes, s->batch, s->channels * s->plane) * ls_dtype_size(dtype);
}

static bool usable(const ls_batchnorm_shape *s) {
    return s->lanes > 0 && s->batch > 0 && s->channels > 0 && s->plane > 0;
}

template <typename T, size_t L>
static cudaError_t statistics(cudaStream_t stream, const ls_batchnorm_shape *shape, double eps, double momentum,
                              const void *x, double *mean, double *invstd, void *running_mean, void *running_var,
                              int64_t *tracked) {
    ls_batchnorm_shape s = *shape;
    running<T> run = {static_cast<T *>(running_mean), static_cast<T *>(running_var), tracked, momentum};
    return LS_LAUNCH_ROWS((batchnorm_statistics<T, L>), s.channels, stream, s, eps, static_cast<const T *>(x), mean,
                          invstd, run);
}

template <typename T>
static cudaError_t from_running(cudaStream_t stream, size_t channels, double eps, const void *running_mean,
                                const void *running_var, double *mean, double *invstd) {
    return LS_LAUNCH(batchnorm_running<T>, channels, stream, channels, eps, static_cast<const T *>(running_mean),
                     static_cast<const T *>(running_var), mean, invstd);
}

template <typename T, size_t L>
static cudaError_t forward(cudaStream_t stream, const ls_batchnorm_shape *shape, const double *mean,
                           const double *invstd, const void *weight, const void *bias, const void *x, void *y) {
    ls_batchnorm_shape s = *shape;
    return LS_LAUNCH((batchnorm_forward<T, L>), (s.batch + L - 1) / L * s.channels * s.plane, stream, s, mean, invstd,
                     static_cast<const T *>(weight), static_cast<const T *>(bias), static_cast<const T *>(x),
                     static_cast<T *>(y));
}

template <typename T, size_t L>
static cudaError_t backward_params(cudaStream_t stream, const ls_batchnorm_shape *shape, const double *mean,
                                   const double *invstd, const void *x, const void *dy, double *sums, void *dweight,
                                   void *dbias) {
    ls_batchnorm_shape s = *shape;
    return LS_LAUNCH_ROWS((batchnorm_backward_params<T, L>), s.channels, stream, s, mean, invstd,
                          static_cast<const T *>(x), static_cast<const T *>(dy), sums, static_cast<T *>(dweight),
                          static_cast<T *>(dbias));
}

template <typename T, size_t L>
static cudaError_t backward_input(cudaStream_t stream, const ls_batchnorm_shape *shape, const double *mean,
                                  const double *invstd, const double *sums, const void *weight, const void *x,
                                  const void *dy, void *dx) {
    ls_batchnorm_shape s = *shape;
    return LS_LAUNCH((batchnorm_backward_input<T, L>), (s.batch + L - 1) / L * s.channels * s.plane, stream, s, mean,
                     invstd, sums, static_cast<const T *>(weight), static_cast<const T *>(x),
                     static_cast<const T *>(dy), static_cast<T *>(dx));
}

cudaError_t ls_kernel_batchnorm_statistics(cudaStream_t stream, ls_dtype dtype, const ls_batchnorm_shape *shape,
                                           double eps, double momentum, const void *x, double *mean, double *invstd,
                                           void *running_mean, void *running_var, int64_t *tracked) {
    if (!usable(shape) || (running_mean != nullptr && shape->batch * shape->plane < 2)) {
        return cudaErrorInvalidValue;
    }
    LS_ACCESS(LS_READS(x, activation_bytes(dtype, shape)), LS_WRITES(mean, shape->channels * sizeof *mean),
              LS_WRITES(invstd, shape->channels * sizeof *invstd),
              LS_UPDATES(running_mean, shape->channels * ls_dtype_size(dtype)),
              LS_UPDATES(running_var, running_mean == nullptr ? 0 : shape->channels * ls_dtype_size(dtype)),
              LS_UPDATES(tracked, running_mean == nullptr ? 0 : sizeof *tracked));
    return LS_BY_DTYPE_LANES(dtype, shape->lanes, statistics, stream, shape, eps, momentum, x, mean, invstd,
                             running_mean, running_var, tracked);
}

cudaError_t ls_kernel_batchnorm_running(cudaStream_t stream, ls_dtype dtype, size_t channels, double eps,
                                        const void *running_mean, const void *running_var, double *mean,
                                        double *invstd) {
    LS_ACCESS(LS_READS(running_mean, channels * ls_dtype_size(dtype)),
              LS_READS(running_var, channels * ls_dtype_size(dtype)), LS_WRITES(mean, channels * sizeof *mean),
              LS_WRITES(invstd, channels * sizeof *invstd));
    return LS_BY_DTYPE(dtype, from_running, stream, channels, eps, running_mean, running_var, mean, invstd);
}

cudaError_t ls_kernel_batchnorm_forward(cudaStream_t stream, ls_dtype dtype, const ls_batchnorm_shape *shape,
                                        const double *mean, const double *invstd, const void *weight, const void *bias,
                                        const void *x, void *y) {
    if (!usable(shape)) {
        return cudaErrorInvalidValue;
    }
    LS_ACCESS(LS_READS(mean, shape->channels * sizeof *mean), LS_READS(invstd, shape->channels * sizeof *invstd),
              LS_READS(weight, shape->channels * ls_dtype_size(dtype)),
              LS_READS(bias, shape->channels * ls_dtype_size(dtype)), LS_READS(x, activation_bytes(dtype, shape)),
              LS_WRITES(y, activation_bytes(dtype, shape)));
    return LS_BY_DTYPE_LANES(dtype, shape->lanes, forward, stream, shape, mean, invstd, weight, bias, x, y);
}

cudaError_t ls_kernel_batchnorm_backward_params(cudaStream_t stream, ls_dtype dtype, const ls_batchnorm_shape *shape,
                                                const double *mean, const double *invstd, const void *x, const void *dy,
                                                double *sums, void *dweight, void *dbias) {
    if (!usable(shape)) {
        return cudaErrorInvalidValue;
    }
    LS_ACCESS(LS_READS(mean, shape->channels * sizeof *mean), LS_READS(invstd, shape->channels * sizeof *invstd),
              LS_READS(x, activation_bytes(dtype, shape)), LS_READS(dy, activation_bytes(dtype, shape)),
              LS_WRITES(sums, 2 * shape->channels * sizeof *sums),
              LS_WRITES(dweight, shape->channels * ls_dtype_size(dtype)),
              LS_WRITES(dbias, shape->channels * ls_dtype_size(dtype)));
    return LS_BY_DTYPE_LANES(dtype, shape->lanes, backward_params, stream, shape, mean, invstd, x, dy, sums, dweight,
                             dbias);
}

cudaError_t ls_kernel_batchnorm_backward_input(cudaStream_t stream, ls_dtype dtype, const ls_batchnorm_shape *shape,
                                               const double *mean, const double *invstd, const double *sums,
                                               const void *weight, const void *x, const void *dy, void *dx) {
    if (!usable(shape)) {
        return cudaErrorInvalidValue;
    }
    LS_ACCESS(LS_READS(mean, shape->channels * sizeof *mean), LS_READS(invstd, shape->channels * sizeof *invstd),
              LS_READS(sums, 2 * shape->channels * sizeof *sums),
              LS_READS(weight, shape->channels * ls_dtype_size(dtype)), LS_READS(x, activation_bytes(dtype, shape)),
              LS_READS(dy, activation_bytes(dtype, shape)), LS_WRITES(dx, activation_bytes(dtype, shape)));
    return LS_BY_DTYPE_LANES(dtype, shape->lanes, backward_input, stream, shape, mean, invstd, sums, weight, x, dy, dx);
}
