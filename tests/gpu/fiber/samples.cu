#include "tests/gpu/fiber/samples.h"

#include "gpu/kernels/kernel.h"

LS_KERNEL tree_sum_kernel(sample_variant variant, const float *in, float *out) {
    LS_SHARED_DYNAMIC(float, partial);
    partial[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    if (variant == SAMPLE_OTHER_FAULT && threadIdx.x >= blockDim.x / 2) {
        return;
    }
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            partial[threadIdx.x] += partial[threadIdx.x + half];
        }
        if (variant != SAMPLE_FAULT) {
            __syncthreads();
        }
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = partial[0];
    }
}

LS_KERNEL reverse_kernel(sample_variant variant, const float *in, float *out) {
    LS_SHARED(float, tile, 64);
    const unsigned first = blockIdx.x * blockDim.x;
    if (variant != SAMPLE_OTHER_FAULT || threadIdx.x != 5) {
        tile[threadIdx.x] = in[first + threadIdx.x];
    }
    __syncthreads();
    unsigned from = blockDim.x - 1 - threadIdx.x;
    out[first + threadIdx.x] = tile[variant == SAMPLE_FAULT ? from + 1 : from];
}

LS_KERNEL barrier_kernel(sample_variant variant) {
    if (variant == SAMPLE_FAULT && threadIdx.x == 3) {
        return;
    }
    if (variant == SAMPLE_OTHER_FAULT && threadIdx.x % 2 == 1) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

LS_KERNEL copy_kernel(size_t count, const float *in, float *out) {
    LS_GRID_STRIDE(i, count) {
        out[i] = in[i];
    }
}

LS_KERNEL warp_sum_kernel(sample_variant variant, const float *in, float *out) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned rest = blockDim.x - threadIdx.x / 32 * 32;
    const unsigned lanes = rest < 32 && variant != SAMPLE_FAULT ? rest : 32;
    const unsigned mask = 0xFFFFFFFFu >> (32 - lanes);
    float sum = in[threadIdx.x];
    if (variant == SAMPLE_OTHER_FAULT && lane == 2) {
        __syncthreads();
    }
    for (unsigned step = 1; step < lanes; step++) {
        float other = __shfl_sync(mask, in[threadIdx.x], static_cast<int>((lane + step) % lanes));
        sum += other;
    }
    if (lane == 0) {
        out[threadIdx.x / 32] = sum;
    }
}

LS_KERNEL syncwarp_sum_kernel(sample_variant variant, const float *in, float *out) {
    LS_SHARED(float, partial, 32);
    partial[threadIdx.x] = in[threadIdx.x];
    for (unsigned half = 16; half > 0; half /= 2) {
        if (variant != SAMPLE_FAULT) {
            __syncwarp();
        }
        if (threadIdx.x < half) {
            partial[threadIdx.x] += partial[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        *out = partial[0];
    }
}

LS_KERNEL histogram_kernel(sample_variant variant, const unsigned *values, unsigned *counts) {
    LS_SHARED(unsigned, own, 4);
    if (threadIdx.x < 4) {
        own[threadIdx.x] = 0;
    }
    __syncthreads();
    unsigned value = values[blockIdx.x * blockDim.x + threadIdx.x];
    if (variant == SAMPLE_OTHER_FAULT) {
        own[value] += 1;
    } else {
        atomicAdd(&own[value], 1u);
    }
    if (variant != SAMPLE_FAULT) {
        __syncthreads();
    }
    if (threadIdx.x < 4) {
        atomicAdd(&counts[threadIdx.x], static_cast<unsigned>(own[threadIdx.x]));
    }
}

LS_KERNEL operations_kernel(sample_variant variant, double *out) {
    const unsigned all = 0xFFFFFFFFu;
    const unsigned lane = threadIdx.x % 32;
    const int odd = (lane ^ 5) % 2 == 1;
    const double value = lane * 1.5;
    const unsigned mask = variant == SAMPLE_FAULT && lane == 1 ? all - 2 : all;
    out += static_cast<size_t>(threadIdx.x) * SAMPLE_OPERATIONS;
    out[0] = __shfl_sync(mask, value, 7);
    out[1] = __shfl_sync(all, value, 3, 8);
    out[2] = __shfl_up_sync(all, value, 2);
    out[3] = __shfl_down_sync(all, value, 3, 16);
    out[4] = __shfl_xor_sync(all, static_cast<float>(value), 9);
    out[5] = __shfl_xor_sync(all, static_cast<int>(lane), 12, 8);
    out[6] = __ballot_sync(all, odd);
    out[7] = __any_sync(all, lane == 31);
    out[8] = __all_sync(all, odd);
    out[9] = __all_sync(all, lane < 32);
}

cudaError_t sample_tree_sum(sample_variant variant, unsigned blocks, size_t elements, const float *in, float *out) {
    return LS_START(tree_sum_kernel, blocks, elements * sizeof(float), 0, variant, in, out);
}

cudaError_t sample_reverse(sample_variant variant, unsigned blocks, const float *in, float *out) {
    return LS_START(reverse_kernel, blocks, 0, 0, variant, in, out);
}

cudaError_t sample_barrier(sample_variant variant) {
    return LS_START(barrier_kernel, 1, 0, 0, variant);
}

cudaError_t sample_copy(sample_variant variant, size_t count, const float *in, float *out) {
    return LS_LAUNCH(copy_kernel, count, 0, variant == SAMPLE_FAULT ? count - 1 : count, in, out);
}

cudaError_t sample_warp_sum(sample_variant variant, const float *in, float *out) {
    return LS_LAUNCH_BLOCK(warp_sum_kernel, 0, variant, in, out);
}

cudaError_t sample_syncwarp_sum(sample_variant variant, const float *in, float *out) {
    return LS_LAUNCH_BLOCK(syncwarp_sum_kernel, 0, variant, in, out);
}

cudaError_t sample_histogram(sample_variant variant, unsigned blocks, const unsigned *values, unsigned *counts) {
    return LS_START(histogram_kernel, blocks, 0, 0, variant, values, counts);
}

cudaError_t sample_operations(sample_variant variant, double *out) {
    return LS_LAUNCH_BLOCK(operations_kernel, 0, variant, out);
}
