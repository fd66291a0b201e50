/* How a kernel is written and launched: the only place among the kernels that knows the platform.
 *
 * Under nvcc a kernel is a __global__ function and a launch is <<<>>>. Under a C++ compiler (vgpu, serial mode) a kernel
 * is a plain function of one thread in one block: its grid-stride loop becomes an ordinary loop that vectorises, compiled
 * for several instruction sets, and a launch queues it on the stream. The source of a kernel is the same for both. With
 * LS_FIBER defined a C++ compiler compiles what nvcc compiles, for tests: gpu/vgpu/fiber/fiber.h.
 *
 * Everything here has internal linkage, so that no copy made for one instruction set or file serves another. */
#ifndef LS_GPU_KERNELS_KERNEL_H
#define LS_GPU_KERNELS_KERNEL_H

#include <cuda_runtime.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/base/dtype.h"
#include "gpu/kernels/kernels.h"

/* launch<T>(...) of the dtype. */
#define LS_BY_DTYPE(dtype, launch, ...)                    \
    ((dtype) == LS_FLOAT64   ? launch<double>(__VA_ARGS__) \
     : (dtype) == LS_FLOAT32 ? launch<float>(__VA_ARGS__)  \
                             : cudaErrorInvalidValue)

/* launch<T, L>(...) of the dtype and the lanes; the platforms have 1 and 16 lanes. */
#define LS_BY_DTYPE_LANES(dtype, lanes, launch, ...)                     \
    ((lanes) == 16  ? LS_BY_DTYPE_LANES_(dtype, 16, launch, __VA_ARGS__) \
     : (lanes) == 1 ? LS_BY_DTYPE_LANES_(dtype, 1, launch, __VA_ARGS__)  \
                    : cudaErrorInvalidValue)
#define LS_BY_DTYPE_LANES_(dtype, L, launch, ...)             \
    ((dtype) == LS_FLOAT64   ? launch<double, L>(__VA_ARGS__) \
     : (dtype) == LS_FLOAT32 ? launch<float, L>(__VA_ARGS__)  \
                             : cudaErrorInvalidValue)

/* Values of an activation of `features` values a sample, padded lanes included; 0 for 0 lanes. */
static inline size_t ls_lane_values(size_t lanes, size_t batch, size_t features) {
    return lanes == 0 ? 0 : (batch + lanes - 1) / lanes * lanes * features;
}

#if defined(__CUDACC__) || defined(LS_FIBER)

#ifdef LS_FIBER
#include "gpu/vgpu/fiber/device.h" /* brings these four, and CUDA's own words */
#else

/* Threads of a block. Kernels are right for any number of them, up to 1024. */
namespace {
constexpr unsigned ls_block_threads = 256;
}

/* An array in the block's shared memory, unwritten at first; count is a constant. Accessed by index, by + and by &. */
#define LS_SHARED(T, name, count)                           __shared__ T name[count]

/* The shared memory that the launch asks for, as an array; one T for all kernels of a file. */
#define LS_SHARED_DYNAMIC(T, name)                          extern __shared__ T name[]

/* Launches a grid of blocks, each with shared_bytes of dynamic shared memory. */
#define LS_START(kernel, blocks, shared_bytes, stream, ...) ls_launch(kernel, blocks, shared_bytes, stream, __VA_ARGS__)

#endif

/* What the launch that follows reads and writes, in bytes: LS_ACCESS(LS_READS(x, bytes), LS_WRITES(y, bytes)), and
 * LS_UPDATES for both at once. vgpu can judge races by it (gpu/vgpu/access.h). */
#define LS_ACCESS(...)             ((void)sizeof(ls_no_access(__VA_ARGS__)))
#define LS_READS(pointer, bytes)   (bytes)
#define LS_WRITES(pointer, bytes)  (bytes)
#define LS_UPDATES(pointer, bytes) (bytes)
template <typename... Bytes> char ls_no_access(Bytes...); /* never called: nothing is compiled */
#ifdef __clang__                                          /* what counts the bytes alone is then not needed */
#pragma clang diagnostic ignored "-Wunneeded-internal-declaration"
#endif

#define LS_KERNEL static __global__ void
#define LS_DEVICE static __device__ __forceinline__

/* Runs the body for i in 0..count-1, spread over all threads; iterations must not depend on one another. */
#define LS_GRID_STRIDE(i, count)                                                                              \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, i##_step = (size_t)gridDim.x * blockDim.x; \
         i < (count); i += i##_step)

/* The same over rows x columns, columns innermost. */
#define LS_GRID_STRIDE_2D(row, rows, column, columns)                                                      \
    LS_GRID_STRIDE(row##_flat, (rows) * (columns))                                                         \
    for (size_t row = row##_flat / (columns), column = row##_flat % (columns), row##_once = 1; row##_once; \
         row##_once = 0)

/* The same over the threads of one block; the body may add up into its own thread's variables. */
#define LS_BLOCK_STRIDE(i, count) for (size_t i = threadIdx.x; i < (count); i += blockDim.x)

/* The same over rows, one block each, for kernels launched with LS_LAUNCH_ROWS: inside, all threads of the block have the
 * same row. */
#define LS_BLOCK_ROWS(row, rows) for (size_t row = blockIdx.x; row < (rows); row += gridDim.x)

/* Runs the body for l in 0..L-1 within a thread; iterations must not depend on one another. */
#define LS_LANES(l, L) for (size_t l = 0; l < (L); l++)

namespace {

/* The sum over the block of each thread's value; all threads of the block call it and get it. The order is fixed by the
 * size of the block, which may be any: each warp halves its values, the last one those that it has, and the warps' sums are
 * added one by one. No lane reads from one that does not exist. */
__device__ __forceinline__ double ls_block_sum(double value) {
    LS_SHARED(double, partial, 32); /* a warp each */
    const unsigned warp = threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    const unsigned warps = (blockDim.x + 31) / 32;
    const unsigned lanes = blockDim.x - warp * 32 < 32 ? blockDim.x - warp * 32 : 32;
    const unsigned mask = 0xFFFFFFFFu >> (32 - lanes);
    for (unsigned step = 16; step > 0; step /= 2) {
        bool has = lane + step < lanes;
        double other = __shfl_sync(mask, value, static_cast<int>(has ? lane + step : lane));
        value = has ? value + other : value;
    }
    __syncthreads(); /* the last sum has been read by all */
    if (lane == 0) {
        partial[warp] = value;
    }
    __syncthreads();
    double sum = partial[0];
    for (unsigned w = 1; w < warps; w++) {
        sum += partial[w];
    }
    return sum;
}

__device__ __forceinline__ bool ls_first_thread() {
    return threadIdx.x == 0;
}

#ifndef LS_FIBER
template <typename... P, typename... A>
cudaError_t ls_launch(void (*kernel)(P...), unsigned blocks, size_t shared_bytes, cudaStream_t stream, A... arguments) {
    kernel<<<blocks, ls_block_threads, shared_bytes, stream>>>(static_cast<P>(arguments)...);
    return cudaGetLastError();
}
#endif

/* Enough blocks for count threads, at most 8 waves of a large device: the grid-stride loop does the rest. */
inline unsigned ls_launch_blocks(size_t count) {
    size_t blocks = (count + ls_block_threads - 1) / ls_block_threads;
    return blocks < 8192 ? static_cast<unsigned>(blocks) : 8192u;
}

} // namespace

/* Launches kernel for count independent items; nothing is launched for none. */
#define LS_LAUNCH(kernel, count, stream, ...) \
    ((count) == 0 ? cudaSuccess : LS_START(kernel, ls_launch_blocks(count), 0, stream, __VA_ARGS__))

/* Launches kernel as one block, for reductions. */
#define LS_LAUNCH_BLOCK(kernel, stream, ...) LS_START(kernel, 1, 0, stream, __VA_ARGS__)
/* Launches kernel with a block for each of rows (at least 1) rows. */
#define LS_LAUNCH_ROWS(kernel, rows, stream, ...) \
    LS_START(kernel, (rows) < 65535 ? static_cast<unsigned>(rows) : 65535u, 0, stream, __VA_ARGS__)

#else

#include <type_traits>

#include "gpu/vgpu/internal.h"

/* Inlined into one runner for each instruction set, see ls_submit. */
#define LS_KERNEL static inline __attribute__((always_inline)) void
#define LS_DEVICE static inline __attribute__((always_inline))

#ifdef __clang__
/* A permission to vectorise, not a demand. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define LS_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LS_INDEPENDENT _Pragma("GCC ivdep")
#endif
/* Loops over lanes are short; gcc would unroll them into scalar code before it vectorises. */
#ifdef __clang__
#define LS_INDEPENDENT_SHORT LS_INDEPENDENT
#else
#define LS_INDEPENDENT_SHORT _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#endif

#define LS_GRID_STRIDE(i, count)  LS_INDEPENDENT for (size_t i = 0, i##_end = (count); i < i##_end; i++)
#define LS_BLOCK_STRIDE(i, count) for (size_t i = 0; i < (count); i++)
#define LS_BLOCK_ROWS(row, rows)  for (size_t row = 0; row < (rows); row++)
#define LS_GRID_STRIDE_2D(row, rows, column, columns)                \
    for (size_t row = 0, row##_end = (rows); row < row##_end; row++) \
        for (size_t column = 0, column##_end = (columns); column < column##_end; column++)
#define LS_LANES(l, L) LS_INDEPENDENT_SHORT for (size_t l = 0; l < (L); l++)

namespace {

inline double ls_block_sum(double value) {
    return value;
}

inline bool ls_first_thread() {
    return true;
}

template <typename F> cudaError_t ls_run(void *payload) {
    (*static_cast<F *>(payload))();
    return cudaSuccess;
}

#if defined(__x86_64__) && !defined(LS_ONE_ISA)
template <typename F> __attribute__((target("avx2,fma"))) cudaError_t ls_run_avx2(void *payload) {
    (*static_cast<F *>(payload))();
    return cudaSuccess;
}

template <typename F>
__attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"))) cudaError_t ls_run_avx512(void *payload) {
    (*static_cast<F *>(payload))();
    return cudaSuccess;
}
#endif

/* Queues a launch for the best instruction set of this processor; with LS_ONE_ISA, for the one that every processor has. The
 * kernels use no fused multiply-add, so every instruction set gives the same bits. */
template <typename F> cudaError_t ls_submit(cudaStream_t stream, const char *name, const F &launch) {
    static_assert(std::is_trivially_copyable<F>::value && sizeof(F) <= VGPU_PAYLOAD_BYTES,
                  "a launch is copied as bytes");
    vgpu_operation run = ls_run<F>;
#if defined(__x86_64__) && !defined(LS_ONE_ISA)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        run = ls_run_avx512<F>;
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        run = ls_run_avx2<F>;
    }
#endif
    return vgpu_submit(stream, name, run, &launch, sizeof launch);
}

} // namespace

/* The arguments are evaluated when the stream comes to the launch, not at the call as on GPUs: they name local values, which are
 * copied, and do not look behind a pointer, which may point elsewhere by then. */
#define LS_LAUNCH(kernel, count, stream, ...) \
    ((count) == 0 ? cudaSuccess : LS_LAUNCH_BLOCK(kernel, stream, __VA_ARGS__))
#define LS_LAUNCH_BLOCK(kernel, stream, ...) \
    ls_submit(                               \
        stream, #kernel, [=]() __attribute__((always_inline)) { kernel(__VA_ARGS__); })
#define LS_LAUNCH_ROWS(kernel, rows, stream, ...) LS_LAUNCH_BLOCK(kernel, stream, __VA_ARGS__)

#endif
#endif
