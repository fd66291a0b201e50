#include "gpu/kernels/kernel.h"

struct window_shape {
    ls_window w;
    size_t blocks, out_height, out_width;
};

/* An item is a value of `columns`; taps in the padding are zeros. */
template <typename T, size_t L> LS_KERNEL im2col_kernel(window_shape s, const T *x, T *columns) {
    const ls_window w = s.w;
    const size_t taps = w.channels * w.kernel_height * w.kernel_width;
    LS_GRID_STRIDE_2D(row, taps * s.blocks * s.out_height, ox, s.out_width) {
        size_t block = row / s.out_height % s.blocks;
        size_t tap = row / s.out_height / s.blocks;
        size_t channel = tap / w.kernel_width / w.kernel_height;
        size_t iy = row % s.out_height * w.stride + tap / w.kernel_width % w.kernel_height; /* in the padded image */
        size_t ix = ox * w.stride + tap % w.kernel_width;
        bool inside = iy >= w.padding && iy - w.padding < w.height && ix >= w.padding && ix - w.padding < w.width;
        size_t pixel = inside ? (iy - w.padding) * w.width + ix - w.padding : 0;
        const T *from = x + ((block * w.channels + channel) * w.height * w.width + pixel) * L;
        T *to = columns + (row * s.out_width + ox) * L;
        LS_LANES(l, L) {
            to[l] = inside ? from[l] : T(0);
        }
    }
}

/* Each input gathers from the windows that hold it, so that nothing is added in an order that can change. */
template <typename T, size_t L> LS_KERNEL col2im_kernel(window_shape s, const T *columns, T *dx) {
    const ls_window w = s.w;
    LS_GRID_STRIDE_2D(row, s.blocks * w.channels * w.height, column, w.width) {
        size_t iy = row % w.height + w.padding; /* in the padded image */
        size_t ix = column + w.padding;
        size_t channel = row / w.height % w.channels;
        size_t block = row / w.height / w.channels;
        T sum[L];
        LS_LANES(l, L) {
            sum[l] = 0;
        }
        for (size_t ky = 0; ky < w.kernel_height && ky <= iy; ky++) {
            size_t oy = (iy - ky) / w.stride;
            if (oy * w.stride != iy - ky || oy >= s.out_height) {
                continue;
            }
            for (size_t kx = 0; kx < w.kernel_width && kx <= ix; kx++) {
                size_t ox = (ix - kx) / w.stride;
                if (ox * w.stride != ix - kx || ox >= s.out_width) {
                    continue;
                }
                size_t tap = (channel * w.kernel_height + ky) * w.kernel_width + kx;
                const T *from = columns + (((tap * s.blocks + block) * s.out_height + oy) * s.out_width + ox) * L;
                LS_LANES(l, L) {
                    sum[l] += from[l];
                }
            }
        }
        LS_LANES(l, L) {
            dx[(row * w.width + column) * L + l] = sum[l];
        }
    }
}

/* False for a window that does not fit. */
static bool make_shape(const ls_window *w, size_t lanes, size_t batch, window_shape *s) {
    if (lanes == 0 || w->stride == 0 || w->kernel_height == 0 || w->kernel_width == 0 ||
        w->kernel_height > w->height + 2 * w->padding || w->kernel_width > w->width + 2 * w->padding) {
        return false;
    }
    s->w = *w;
    s->blocks = (batch + lanes - 1) / lanes;
    s->out_height = (w->height + 2 * w->padding - w->kernel_height) / w->stride + 1;
    s->out_width = (w->width + 2 * w->padding - w->kernel_width) / w->stride + 1;
    return true;
}

/* Values of `columns` and of the image. */
static inline size_t column_values(const window_shape &s, size_t lanes) {
    return s.w.channels * s.w.kernel_height * s.w.kernel_width * s.blocks * s.out_height * s.out_width * lanes;
}

static inline size_t image_values(const window_shape &s, size_t lanes) {
    return s.blocks * s.w.channels * s.w.height * s.w.width * lanes;
}

template <typename T, size_t L>
static cudaError_t im2col(cudaStream_t stream, const window_shape &shape, const void *x, void *columns) {
    window_shape s = shape;
    return LS_LAUNCH((im2col_kernel<T, L>), column_values(s, 1), stream, s, static_cast<const T *>(x),
                     static_cast<T *>(columns));
}

template <typename T, size_t L>
static cudaError_t col2im(cudaStream_t stream, const window_shape &shape, const void *columns, void *dx) {
    window_shape s = shape;
    return LS_LAUNCH((col2im_kernel<T, L>), image_values(s, 1), stream, s, static_cast<const T *>(columns),
                     static_cast<T *>(dx));
}

cudaError_t ls_kernel_im2col(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, const ls_window *window,
                             const void *x, void *columns) {
    window_shape s;
    if (!make_shape(window, lanes, batch, &s)) {
        return cudaErrorInvalidValue;
    }
    LS_ACCESS(LS_READS(x, image_values(s, lanes) * ls_dtype_size(dtype)),
              LS_WRITES(columns, column_values(s, lanes) * ls_dtype_size(dtype)));
    return LS_BY_DTYPE_LANES(dtype, lanes, im2col, stream, s, x, columns);
}

cudaError_t ls_kernel_col2im(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, const ls_window *window,
                             const void *columns, void *dx) {
    window_shape s;
    if (!make_shape(window, lanes, batch, &s)) {
        return cudaErrorInvalidValue;
    }
    LS_ACCESS(LS_READS(columns, column_values(s, lanes) * ls_dtype_size(dtype)),
              LS_WRITES(dx, image_values(s, lanes) * ls_dtype_size(dtype)));
    return LS_BY_DTYPE_LANES(dtype, lanes, col2im, stream, s, columns, dx);
}
