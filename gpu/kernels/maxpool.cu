#include "gpu/kernels/kernel.h"

/* An integer as wide as T, so that choosing a value and choosing its index vectorise alike. */
template <typename T> struct index_of;
template <> struct index_of<float> { typedef int32_t type; };
template <> struct index_of<double> { typedef int64_t type; };

struct pool_shape {
    size_t height, width, kernel, stride, out_height, out_width;
};

/* K and S: kernel and stride when the compiler knows them, 0 when only the shape does. A value is taken when it is larger
 * than all before it or NaN, which is PyTorch's rule: the first maximum wins, and the last NaN. */
template <typename T, size_t L, size_t K, size_t S>
LS_KERNEL maxpool_forward(size_t planes, pool_shape shape, const T *x, T *y, uint8_t *index) {
    typedef typename index_of<T>::type index_t;
    const size_t kernel = K > 0 ? K : shape.kernel;
    const size_t stride = S > 0 ? S : shape.stride;
    LS_GRID_STRIDE_2D(row, planes * shape.out_height, column, shape.out_width) {
        size_t top_row = row / shape.out_height * shape.height + row % shape.out_height * stride;
        const T *window = x + (top_row * shape.width + column * stride) * L;
        size_t out = (row * shape.out_width + column) * L;
        index_t chosen[L]; /* apart from the bytes, which would make all vectors as short as theirs */
        LS_LANES(l, L) {
            T top = window[l];
            index_t at = 0;
            for (size_t ky = 0; ky < kernel; ky++) {
                for (size_t kx = 0; kx < kernel; kx++) {
                    T value = window[(ky * shape.width + kx) * L + l];
                    bool take = (value > top) | (value != value);
                    top = take ? value : top;
                    at = take ? static_cast<index_t>(ky * kernel + kx) : at;
                }
            }
            y[out + l] = top;
            chosen[l] = at;
        }
        LS_LANES(l, L) {
            index[out + l] = static_cast<uint8_t>(chosen[l]);
        }
    }
}

/* Here and elsewhere a value is loaded before the choice that may drop it: a load under a condition does not vectorise.
 *
 * Each input gathers from the windows that hold it, so that nothing is added in an order that can change. */
template <typename T, size_t L>
LS_KERNEL maxpool_backward(size_t planes, pool_shape shape, const T *dy, const uint8_t *index, T *dx) {
    typedef typename index_of<T>::type index_t;
    const size_t kernel = shape.kernel;
    const size_t stride = shape.stride;
    LS_GRID_STRIDE_2D(row, planes * shape.height, ix, shape.width) {
        size_t iy = row % shape.height;
        size_t plane = row / shape.height * shape.out_height;
        size_t first_y = iy < kernel ? 0 : (iy - kernel) / stride + 1;
        size_t first_x = ix < kernel ? 0 : (ix - kernel) / stride + 1;
        T sum[L];
        LS_LANES(l, L) {
            sum[l] = 0;
        }
        for (size_t oy = first_y; oy < shape.out_height && oy * stride <= iy; oy++) {
            for (size_t ox = first_x; ox < shape.out_width && ox * stride <= ix; ox++) {
                size_t out = ((plane + oy) * shape.out_width + ox) * L;
                index_t wanted = static_cast<index_t>((iy - oy * stride) * kernel + ix - ox * stride);
                LS_LANES(l, L) {
                    T value = dy[out + l];
                    sum[l] += static_cast<index_t>(index[out + l]) == wanted ? value : T(0);
                }
            }
        }
        LS_LANES(l, L) {
            dx[(row * shape.width + ix) * L + l] = sum[l];
        }
    }
}

/* The same where windows of K do not overlap: an input lies in one window at most. */
template <typename T, size_t L, size_t K>
LS_KERNEL maxpool_backward_apart(size_t planes, pool_shape shape, const T *dy, const uint8_t *index, T *dx) {
    typedef typename index_of<T>::type index_t;
    LS_GRID_STRIDE_2D(row, planes * shape.height, ix, shape.width) {
        size_t oy = row % shape.height / K;
        size_t ox = ix / K;
        T *target = dx + (row * shape.width + ix) * L;
        if (oy >= shape.out_height || ox >= shape.out_width) {
            LS_LANES(l, L) {
                target[l] = 0;
            }
            continue;
        }
        size_t out = ((row / shape.height * shape.out_height + oy) * shape.out_width + ox) * L;
        index_t wanted = static_cast<index_t>(row % shape.height % K * K + ix % K);
        LS_LANES(l, L) {
            T value = dy[out + l];
            target[l] = static_cast<index_t>(index[out + l]) == wanted ? value : T(0);
        }
    }
}

/* Values of an output. */
static inline size_t pool_outputs(size_t planes, size_t lanes, const pool_shape &shape) {
    return planes * lanes * shape.out_height * shape.out_width;
}

/* False for a window that does not fit or that one byte cannot index. */
static bool make_shape(size_t height, size_t width, size_t kernel, size_t stride, pool_shape *shape) {
    if (kernel == 0 || kernel > 15 || stride == 0 || kernel > height || kernel > width) {
        return false;
    }
    shape->height = height;
    shape->width = width;
    shape->kernel = kernel;
    shape->stride = stride;
    shape->out_height = (height - kernel) / stride + 1;
    shape->out_width = (width - kernel) / stride + 1;
    return true;
}

template <typename T, size_t L>
static cudaError_t forward(cudaStream_t stream, size_t planes, const pool_shape &shape, const void *from, void *to,
                           uint8_t *index) {
    const T *x = static_cast<const T *>(from);
    T *y = static_cast<T *>(to);
    pool_shape s = shape;
    size_t count = planes * s.out_height * s.out_width;
    if (s.kernel == 2 && s.stride == 2) {
        return LS_LAUNCH((maxpool_forward<T, L, 2, 2>), count, stream, planes, s, x, y, index);
    }
    if (s.kernel == 3) {
        return LS_LAUNCH((maxpool_forward<T, L, 3, 0>), count, stream, planes, s, x, y, index);
    }
    return LS_LAUNCH((maxpool_forward<T, L, 0, 0>), count, stream, planes, s, x, y, index);
}

template <typename T, size_t L>
static cudaError_t backward(cudaStream_t stream, size_t planes, const pool_shape &shape, const void *from,
                            const uint8_t *index, void *to) {
    const T *dy = static_cast<const T *>(from);
    T *dx = static_cast<T *>(to);
    pool_shape s = shape;
    size_t count = planes * s.height * s.width;
    if (s.kernel == 2 && s.stride == 2) {
        return LS_LAUNCH((maxpool_backward_apart<T, L, 2>), count, stream, planes, s, dy, index, dx);
    }
    return LS_LAUNCH((maxpool_backward<T, L>), count, stream, planes, s, dy, index, dx);
}

cudaError_t ls_kernel_maxpool_forward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t channels,
                                      size_t height, size_t width, size_t kernel, size_t pool_stride, const void *x,
                                      void *y, uint8_t *index) {
    pool_shape shape;
    if (lanes == 0 || !make_shape(height, width, kernel, pool_stride, &shape)) {
        return cudaErrorInvalidValue;
    }
    size_t planes = (batch + lanes - 1) / lanes * channels;
    LS_ACCESS(LS_READS(x, planes * lanes * height * width * ls_dtype_size(dtype)),
              LS_WRITES(y, pool_outputs(planes, lanes, shape) * ls_dtype_size(dtype)),
              LS_WRITES(index, pool_outputs(planes, lanes, shape)));
    return LS_BY_DTYPE_LANES(dtype, lanes, forward, stream, planes, shape, x, y, index);
}

cudaError_t ls_kernel_maxpool_backward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t channels,
                                       size_t height, size_t width, size_t kernel, size_t pool_stride, const void *dy,
                                       const uint8_t *index, void *dx) {
    pool_shape shape;
    if (lanes == 0 || !make_shape(height, width, kernel, pool_stride, &shape)) {
        return cudaErrorInvalidValue;
    }
    size_t planes = (batch + lanes - 1) / lanes * channels;
    LS_ACCESS(LS_READS(dy, pool_outputs(planes, lanes, shape) * ls_dtype_size(dtype)),
              LS_READS(index, pool_outputs(planes, lanes, shape)),
              LS_WRITES(dx, planes * lanes * height * width * ls_dtype_size(dtype)));
    return LS_BY_DTYPE_LANES(dtype, lanes, backward, stream, planes, shape, dy, index, dx);
}
