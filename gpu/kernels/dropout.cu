/* Masks come from a counter-based generator, so that a value's fate follows from its place alone: Philox4x32-10 (Salmon,
 * Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011), key = seed, counter = (feature/4, sample,
 * step, stream); word feature%4 is the value's. */
#include "gpu/kernels/kernel.h"

LS_DEVICE uint32_t high_product(uint32_t a, uint32_t b) {
    return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}

struct philox_words {
    uint32_t w[4];
};

LS_DEVICE philox_words philox(uint32_t key0, uint32_t key1, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    const uint32_t multiplier0 = 0xD2511F53u;
    const uint32_t multiplier1 = 0xCD9E8D57u;
    for (int round = 0; round < 10; round++) {
        uint32_t high0 = high_product(multiplier0, c0);
        uint32_t high1 = high_product(multiplier1, c2);
        uint32_t low0 = multiplier0 * c0;
        uint32_t low1 = multiplier1 * c2;
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9E3779B9u; /* the golden ratio and sqrt(3)-1, as the paper has them */
        key1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

/* A value is kept where its word is at most last. */
template <typename T, size_t L>
LS_KERNEL dropout_forward(size_t blocks, size_t features, ls_dropout_key key, uint32_t last, T scale, const T *x, T *y,
                          uint8_t *keep) {
    const uint32_t key0 = static_cast<uint32_t>(key.seed);
    const uint32_t key1 = static_cast<uint32_t>(key.seed >> 32);
    const uint32_t step = key.live != nullptr ? static_cast<uint32_t>(key.live->mask_step) : key.step;
    LS_GRID_STRIDE_2D(block, blocks, group, (features + 3) / 4) {
        uint32_t words[4][L];
        LS_LANES(l, L) {
            philox_words out = philox(key0, key1, static_cast<uint32_t>(group), static_cast<uint32_t>(block * L + l),
                                      step, key.stream);
            words[0][l] = out.w[0];
            words[1][l] = out.w[1];
            words[2][l] = out.w[2];
            words[3][l] = out.w[3];
        }
        size_t first = group * 4;
        size_t count = features - first < 4 ? features - first : 4;
        for (size_t k = 0; k < count; k++) {
            size_t at = (block * features + first + k) * L;
            LS_LANES(l, L) {
                T value = x[at + l] * scale;
                bool kept = words[k][l] <= last;
                y[at + l] = kept ? value : T(0);
                keep[at + l] = kept ? 1 : 0;
            }
        }
    }
}

template <typename T> LS_KERNEL dropout_backward(size_t count, T scale, const uint8_t *keep, const T *dy, T *dx) {
    LS_GRID_STRIDE(i, count) {
        T gradient = dy[i] * scale;
        dx[i] = keep[i] != 0 ? gradient : T(0);
    }
}

/* With probability (last+1)/2^32, which is 1-p to 2^-33. */
static uint32_t last_kept(double p) {
    double kept = (1 - p) * 4294967296.0;
    return kept >= 4294967295.5 ? 0xFFFFFFFFu : kept <= 1 ? 0 : static_cast<uint32_t>(kept + 0.5) - 1;
}

template <typename T, size_t L>
static cudaError_t forward(cudaStream_t stream, size_t batch, size_t features, double p, const ls_dropout_key &given,
                           const void *x, void *y, uint8_t *keep) {
    size_t blocks = (batch + L - 1) / L;
    ls_dropout_key key = given;
    uint32_t last = last_kept(p);
    T scale = static_cast<T>(1 / (1 - p));
    return LS_LAUNCH((dropout_forward<T, L>), blocks * ((features + 3) / 4), stream, blocks, features, key, last, scale,
                     static_cast<const T *>(x), static_cast<T *>(y), keep);
}

template <typename T>
static cudaError_t backward(cudaStream_t stream, size_t count, double p, const uint8_t *keep, const void *dy,
                            void *dx) {
    T scale = static_cast<T>(1 / (1 - p));
    return LS_LAUNCH(dropout_backward<T>, count, stream, count, scale, keep, static_cast<const T *>(dy),
                     static_cast<T *>(dx));
}

cudaError_t ls_kernel_dropout_forward(cudaStream_t stream, ls_dtype dtype, size_t lanes, size_t batch, size_t features,
                                      double p, ls_dropout_key key, const void *x, void *y, uint8_t *keep) {
    if (!(p >= 0) || p >= 1 || features >= (static_cast<size_t>(1) << 34)) {
        return cudaErrorInvalidValue;
    }
    size_t values = ls_lane_values(lanes, batch, features);
    LS_ACCESS(LS_READS(x, values * ls_dtype_size(dtype)), LS_WRITES(y, values * ls_dtype_size(dtype)),
              LS_WRITES(keep, values), LS_READS(key.live, sizeof *key.live));
    return LS_BY_DTYPE_LANES(dtype, lanes, forward, stream, batch, features, p, key, x, y, keep);
}

cudaError_t ls_kernel_dropout_backward(cudaStream_t stream, ls_dtype dtype, size_t count, double p, const uint8_t *keep,
                                       const void *dy, void *dx) {
    if (!(p >= 0) || p >= 1) {
        return cudaErrorInvalidValue;
    }
    LS_ACCESS(LS_READS(keep, count), LS_READS(dy, count * ls_dtype_size(dtype)),
              LS_WRITES(dx, count * ls_dtype_size(dtype)));
    return LS_BY_DTYPE(dtype, backward, stream, count, p, keep, dy, dx);
}
