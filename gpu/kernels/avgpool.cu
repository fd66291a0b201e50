#include "gpu/kernels/kernel.h"

struct pool_shape {
    size_t height, width, kernel, stride, out_height, out_width;
};

template <typename T, size_t L> LS_KERNEL avgpool_forward(size_t planes, pool_shape shape, const T *x, T *y) {
    const T window_size = static_cast<T>(shape.kernel * shape.kernel);
    LS_GRID_STRIDE_2D(row, planes * shape.out_height, column, shape.out_width) {
        size_t top_row = row / shape.out_height * shape.height + row % shape.out_height * shape.stride;
        const T *window = x + (top_row * shape.width + column * shape.stride) * L;
        T sum[L];
        LS_LANES(l, L) {
            sum[l] = 0;
        }
        for (size_t ky = 0; ky < shape.kernel; ky++) {
            for (size_t kx = 0; kx < shape.kernel; kx++) {
                LS_LANES(l, L) {
                    sum[l] += window[(ky * shape.width + kx) * L + l];
                }
            }
        }
        LS_LANES(l, L) {
            y[(row * shape.out_width + column) * L + l] = sum[l] / window_size;
        }
    }
}

/* Each input gathers from the windows that hold it, so that nothing is added in an order that can change. */
template <typename T, size_t L> LS_KERNEL avgpool_backward(size_t planes, pool_shape shape, const T *dy, T *dx) {
    const size_t kernel = shape.kernel;
    const size_t stride = shape.stride;
    const T window_size = static_cast<T>(kernel * kernel);
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
                const T *from = dy + ((plane + oy) * shape.out_width + ox) * L;
                LS_LANES(l, L) {
                    sum[l] += from[l];
                }
            }
        }
        LS_LANES(l, L) {
            dx[(row * shape.width + ix) * L + l] = sum[l] / window_size;
        }
    }
}

/* Values of an output. */
static inline size_t pool_outputs(size_t planes, size_t lanes, const pool_shape &shape) {
    return planes * lanes * shape.out_height * shape.out_width;
}

/* False for a window that does not fit. */
static bool make_shape(size_t height, size_t width, size_t kernel, size_t stride, pool_shape *shape) {
    if (kernel == 0 || stride == 0 || kernel > height || kernel > width) {
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
static cudaError_t forward(cudaStream_t stream, size_t planes, const pool_shape &shape, const void *x, void *y) {
    pool_shape s = shape;
    return LS_LAUNCH((avgpool_forward<T, L>), planes * s.out_height * s.out_width, stream, planes, s,
                     static_cast<const T *>(x), static_cast<T *>(y));
}

template <typename T, size_t L>
static cudaError_t backward(cudaStream_t stream, size_t planes, const pool_shape &shape, const void *dy, void *dx) {
    pool_shape s = shape;
    return LS_LAUNCH((avgpool_backward<T, L>), planes * s.height * s.width, stream, planes, s,
                     static_cast<const T *>(dy), static_cast<T *>(dx));
}

cudaError_t ls_kernel_avgpool_forward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t channels,
                                      size_t height, size_t width, size_t kernel, size_t pool_stride, const void *x,
                                      void *y) {
    pool_shape shape;
    if (lanes == 0 || !make_shape(height, width, kernel, pool_stride, &shape)) {
        return cudaErrorInvalidValue;
    }
    size_t planes = (batch + lanes - 1) / lanes * channels;
    LS_ACCESS(LS_READS(x, planes * lanes * height * width * ls_dtype_size(dtype)),
              LS_WRITES(y, pool_outputs(planes, lanes, shape) * ls_dtype_size(dtype)));
    return LS_BY_DTYPE_LANES(dtype, lanes, forward, stream, planes, shape, x, y);
}

cudaError_t ls_kernel_avgpool_backward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t channels,
                                       size_t height, size_t width, size_t kernel, size_t pool_stride, const void *dy,
                                       void *dx) {
    pool_shape shape;
    if (lanes == 0 || !make_shape(height, width, kernel, pool_stride, &shape)) {
        return cudaErrorInvalidValue;
    }
    size_t planes = (batch + lanes - 1) / lanes * channels;
    LS_ACCESS(LS_READS(dy, pool_outputs(planes, lanes, shape) * ls_dtype_size(dtype)),
              LS_WRITES(dx, planes * lanes * height * width * ls_dtype_size(dtype)));
    return LS_BY_DTYPE_LANES(dtype, lanes, backward, stream, planes, shape, dy, dx);
}
