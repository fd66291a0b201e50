#include "gpu/kernels/kernel.h"

template <typename T, size_t L> LS_KERNEL from_lanes_kernel(size_t batch, size_t features, const T *from, T *to) {
    LS_GRID_STRIDE_2D(n, batch, f, features) {
        to[n * features + f] = from[(n / L * features + f) * L + n % L];
    }
}

template <typename T, size_t L> LS_KERNEL to_lanes_kernel(size_t batch, size_t features, const T *from, T *to) {
    LS_GRID_STRIDE_2D(block, (batch + L - 1) / L, f, features) {
        size_t used = batch - block * L < L ? batch - block * L : L;
        const T *source = from + block * L * features + f;
        T *target = to + (block * features + f) * L;
        for (size_t l = 0; l < used; l++) {
            target[l] = source[l * features];
        }
        for (size_t l = used; l < L; l++) {
            target[l] = T(0);
        }
    }
}

template <typename T, size_t L>
static cudaError_t from_lanes(cudaStream_t stream, size_t batch, size_t features, const void *from, void *to) {
    return LS_LAUNCH((from_lanes_kernel<T, L>), batch * features, stream, batch, features, static_cast<const T *>(from),
                     static_cast<T *>(to));
}

template <typename T, size_t L>
static cudaError_t to_lanes(cudaStream_t stream, size_t batch, size_t features, const void *from, void *to) {
    return LS_LAUNCH((to_lanes_kernel<T, L>), batch * features, stream, batch, features, static_cast<const T *>(from),
                     static_cast<T *>(to));
}

#define BY_SIZE_LANES(launch, ...)                                 \
    (element_size == 1   ? BY_LANES(launch, uint8_t, __VA_ARGS__)  \
     : element_size == 4 ? BY_LANES(launch, uint32_t, __VA_ARGS__) \
     : element_size == 8 ? BY_LANES(launch, uint64_t, __VA_ARGS__) \
                         : cudaErrorInvalidValue)
#define BY_LANES(launch, T, ...) \
    (lanes == 16 ? launch<T, 16>(__VA_ARGS__) : lanes == 1 ? launch<T, 1>(__VA_ARGS__) : cudaErrorInvalidValue)

cudaError_t ls_kernel_from_lanes(cudaStream_t stream, size_t element_size, size_t lanes, size_t batch, size_t features,
                                 const void *from, void *to) {
    LS_ACCESS(LS_READS(from, ls_lane_values(lanes, batch, features) * element_size),
              LS_WRITES(to, batch * features * element_size));
    return BY_SIZE_LANES(from_lanes, stream, batch, features, from, to);
}

cudaError_t ls_kernel_to_lanes(cudaStream_t stream, size_t element_size, size_t lanes, size_t batch, size_t features,
                               const void *from, void *to) {
    LS_ACCESS(LS_READS(from, batch * features * element_size),
              LS_WRITES(to, ls_lane_values(lanes, batch, features) * element_size));
    return BY_SIZE_LANES(to_lanes, stream, batch, features, from, to);
}
