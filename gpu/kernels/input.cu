#include "gpu/kernels/kernel.h"

/* ToTensor divides bytes by 255 in float32; floats stay as they are. */
LS_DEVICE float scaled(uint8_t pixel) {
    return static_cast<float>(pixel) / 255.0f;
}

LS_DEVICE float scaled(float value) {
    return value;
}

/* Normalize subtracts and divides in float32; each step is rounded. Without it mean 0 and deviation 1 change no bit. */
template <typename T, size_t L, typename S>
LS_KERNEL input_kernel(size_t batch, size_t features, const S *samples, ls_input_scale scale, T *x) {
    LS_GRID_STRIDE_2D(block, (batch + L - 1) / L, f, features) {
        size_t used = batch - block * L < L ? batch - block * L : L;
        const S *source = samples + block * L * features + f;
        T *target = x + (block * features + f) * L;
        size_t channel = scale.channels > 1 ? f / scale.plane : 0;
        float mean = scale.channels > 0 ? scale.mean[channel] : 0.0f;
        float std = scale.channels > 0 ? scale.std[channel] : 1.0f;
        S value[L] = {};
        for (size_t l = 0; l < used; l++) {
            value[l] = source[l * features];
        }
        LS_LANES(l, L) {
            target[l] = static_cast<T>((scaled(value[l]) - mean) / std);
        }
        for (size_t l = used; l < L; l++) {
            target[l] = T(0);
        }
    }
}

/* The same for bytes where 16 samples lie side by side: there are only 256 values a channel, and looking them up is much
 * cheaper than two divisions. With one channel or none, `plane` is all features. */
template <typename T, size_t L>
LS_KERNEL pixel_kernel(size_t batch, size_t features, size_t plane, const uint8_t *pixels, ls_input_scale scale, T *x) {
    for (size_t first = 0; first < features; first += plane) {
        float mean = scale.channels > 0 ? scale.mean[first / plane] : 0.0f;
        float std = scale.channels > 0 ? scale.std[first / plane] : 1.0f;
        T value_of[256];
        LS_LANES(pixel, 256) {
            value_of[pixel] = static_cast<T>((scaled(static_cast<uint8_t>(pixel)) - mean) / std);
        }
        size_t count = features - first < plane ? features - first : plane;
        LS_GRID_STRIDE_2D(block, (batch + L - 1) / L, f, count) {
            size_t used = batch - block * L < L ? batch - block * L : L;
            const uint8_t *source = pixels + block * L * features + first + f;
            T *target = x + (block * features + first + f) * L;
            for (size_t l = 0; l < used; l++) {
                target[l] = value_of[source[l * features]];
            }
            for (size_t l = used; l < L; l++) {
                target[l] = T(0);
            }
        }
    }
}

template <typename T, size_t L>
static cudaError_t pixels_of(cudaStream_t stream, size_t batch, size_t features, const uint8_t *pixels,
                             const ls_input_scale &scale, void *x) {
    if constexpr (L > 1) { /* the table is on the stack; GPUs have one lane and do not launch it */
        size_t plane = scale.channels > 1 ? scale.plane : features;
        return LS_LAUNCH((pixel_kernel<T, L>), batch * features, stream, batch, features, plane, pixels, scale,
                         static_cast<T *>(x));
    }
    return LS_LAUNCH((input_kernel<T, L, uint8_t>), batch * features, stream, batch, features, pixels, scale,
                     static_cast<T *>(x));
}

template <typename T, size_t L>
static cudaError_t values_of(cudaStream_t stream, size_t batch, size_t features, const float *values,
                             const ls_input_scale &scale, void *x) {
    return LS_LAUNCH((input_kernel<T, L, float>), batch * features, stream, batch, features, values, scale,
                     static_cast<T *>(x));
}

/* Every channel that the kernel will look up must have its place. */
static bool in_range(size_t features, const ls_input_scale &scale) {
    return scale.channels <= 1 ||
           (scale.channels <= LS_INPUT_MAX_CHANNELS && scale.plane != 0 && features <= scale.plane * scale.channels);
}

cudaError_t ls_kernel_input(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t features,
                            const uint8_t *pixels, const ls_input_scale *scale, void *x) {
    if (!in_range(features, *scale)) {
        return cudaErrorInvalidValue;
    }
    LS_ACCESS(LS_READS(pixels, batch * features * sizeof *pixels),
              LS_WRITES(x, ls_lane_values(lanes, batch, features) * ls_dtype_size(dtype)));
    return LS_BY_DTYPE_LANES(dtype, lanes, pixels_of, stream, batch, features, pixels, *scale, x);
}

cudaError_t ls_kernel_input_values(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t features,
                                   const float *values, const ls_input_scale *scale, void *x) {
    if (!in_range(features, *scale)) {
        return cudaErrorInvalidValue;
    }
    LS_ACCESS(LS_READS(values, batch * features * sizeof *values),
              LS_WRITES(x, ls_lane_values(lanes, batch, features) * ls_dtype_size(dtype)));
    return LS_BY_DTYPE_LANES(dtype, lanes, values_of, stream, batch, features, values, *scale, x);
}
