#include "gpu/kernels/kernel.h"

template <typename T> LS_KERNEL channels_first_kernel(ls_channels s, const T *from, T *to) {
    LS_GRID_STRIDE_2D(row, s.channels * s.blocks, p, s.plane) {
        to[row * s.plane + p] = from[(row % s.blocks * s.channels + row / s.blocks) * s.plane + p];
    }
}

template <typename T> LS_KERNEL channels_second_kernel(ls_channels s, const T *from, const T *bias, T *to) {
    LS_GRID_STRIDE_2D(row, s.blocks * s.channels, p, s.plane) {
        size_t channel = row % s.channels;
        T value = from[(channel * s.blocks + row / s.channels) * s.plane + p];
        to[row * s.plane + p] = bias != nullptr ? value + bias[channel] : value;
    }
}

template <typename T> LS_KERNEL bias_kernel(ls_channels s, const T *bias, T *y) {
    LS_GRID_STRIDE_2D(row, s.blocks * s.channels, p, s.plane) {
        y[row * s.plane + p] += bias[row % s.channels];
    }
}

/* A block of threads for each channel, added in double in an order that the sizes fix. */
template <typename T> LS_KERNEL channel_sums_kernel(ls_channels s, const T *values, T *sums) {
    LS_BLOCK_ROWS(channel, s.channels) {
        double own = 0;
        LS_BLOCK_STRIDE(i, s.blocks * s.plane) {
            own += static_cast<double>(values[(i / s.plane * s.channels + channel) * s.plane + i % s.plane]);
        }
        double total = ls_block_sum(own);
        if (ls_first_thread()) {
            sums[channel] = static_cast<T>(total);
        }
    }
}

static inline size_t values_of(const ls_channels &s) {
    return s.blocks * s.channels * s.plane;
}

template <typename T>
static cudaError_t channels_first(cudaStream_t stream, const ls_channels &shape, const void *from, void *to) {
    ls_channels s = shape;
    return LS_LAUNCH(channels_first_kernel<T>, values_of(s), stream, s, static_cast<const T *>(from),
                     static_cast<T *>(to));
}

template <typename T>
static cudaError_t channels_second(cudaStream_t stream, const ls_channels &shape, const void *from, const void *bias,
                                   void *to) {
    ls_channels s = shape;
    return LS_LAUNCH(channels_second_kernel<T>, values_of(s), stream, s, static_cast<const T *>(from),
                     static_cast<const T *>(bias), static_cast<T *>(to));
}

template <typename T>
static cudaError_t bias_add(cudaStream_t stream, const ls_channels &shape, const void *bias, void *y) {
    ls_channels s = shape;
    return LS_LAUNCH(bias_kernel<T>, values_of(s), stream, s, static_cast<const T *>(bias), static_cast<T *>(y));
}

template <typename T>
static cudaError_t channel_sums(cudaStream_t stream, const ls_channels &shape, const void *values, void *sums) {
    ls_channels s = shape;
    return LS_LAUNCH_ROWS(channel_sums_kernel<T>, s.channels, stream, s, static_cast<const T *>(values),
                          static_cast<T *>(sums));
}

cudaError_t ls_kernel_channels_first(cudaStream_t stream, ls_dtype dtype, const ls_channels *shape, const void *from,
                                     void *to) {
    LS_ACCESS(LS_READS(from, values_of(*shape) * ls_dtype_size(dtype)),
              LS_WRITES(to, values_of(*shape) * ls_dtype_size(dtype)));
    return LS_BY_DTYPE(dtype, channels_first, stream, *shape, from, to);
}

cudaError_t ls_kernel_channels_second(cudaStream_t stream, ls_dtype dtype, const ls_channels *shape, const void *from,
                                      const void *bias, void *to) {
    LS_ACCESS(LS_READS(from, values_of(*shape) * ls_dtype_size(dtype)),
              LS_READS(bias, shape->channels * ls_dtype_size(dtype)),
              LS_WRITES(to, values_of(*shape) * ls_dtype_size(dtype)));
    return LS_BY_DTYPE(dtype, channels_second, stream, *shape, from, bias, to);
}

cudaError_t ls_kernel_bias(cudaStream_t stream, ls_dtype dtype, const ls_channels *shape, const void *bias, void *y) {
    LS_ACCESS(LS_READS(bias, shape->channels * ls_dtype_size(dtype)),
              LS_UPDATES(y, values_of(*shape) * ls_dtype_size(dtype)));
    return LS_BY_DTYPE(dtype, bias_add, stream, *shape, bias, y);
}

cudaError_t ls_kernel_channel_sums(cudaStream_t stream, ls_dtype dtype, const ls_channels *shape, const void *values,
                                   void *sums) {
    if (shape->channels == 0) {
        return cudaErrorInvalidValue;
    }
    LS_ACCESS(LS_READS(values, values_of(*shape) * ls_dtype_size(dtype)),
              LS_WRITES(sums, shape->channels * ls_dtype_size(dtype)));
    return LS_BY_DTYPE(dtype, channel_sums, stream, *shape, values, sums);
}
