#include "gpu/kernels/kernel.h"

/* ToTensor divides by 255 in float32, Normalize subtracts and divides in float32; each step is rounded. */
template <typename T, size_t L>
LS_KERNEL input_kernel(size_t batch, size_t features, const uint8_t *pixels, int normalize, float mean, float std,
                       T *x) {
    LS_GRID_STRIDE_2D(block, (batch + L - 1) / L, f, features) {
        size_t used = batch - block * L < L ? batch - block * L : L;
        const uint8_t *source = pixels + block * L * features + f;
        T *target = x + (block * features + f) * L;
        float value[L] = {};
        for (size_t l = 0; l < used; l++) {
            value[l] = static_cast<float>(source[l * features]);
        }
        LS_LANES(l, L) {
            float scaled = value[l] / 255.0f;
            target[l] = static_cast<T>(normalize ? (scaled - mean) / std : scaled);
        }
        for (size_t l = used; l < L; l++) {
            target[l] = T(0);
        }
    }
}

template <typename T, size_t L>
static cudaError_t input(cudaStream_t stream, size_t batch, size_t features, const uint8_t *pixels, int normalize,
                         float mean, float std, void *x) {
    return LS_LAUNCH((input_kernel<T, L>), batch * features, stream, batch, features, pixels, normalize, mean, std,
                     static_cast<T *>(x));
}

cudaError_t ls_kernel_input(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t features,
                            const uint8_t *pixels, int normalize, float mean, float std, void *x) {
    return LS_BY_DTYPE_LANES(dtype, lanes, input, stream, batch, features, pixels, normalize, mean, std, x);
}
