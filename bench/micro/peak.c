#include "bench/micro/peak.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/job.h"
#include "gpu/base/clock.h"

/* 12 independent chains keep two units of 4 cycles' latency busy with registers to spare; a chain is one vector. */
enum { CHAINS = 12 };

/* One loop for every vector length: acc = acc*a + b converges to b/(1 - a), so nothing overflows or becomes subnormal. */
#define FMA_LOOP(name, attribute, type, lanes, fma)                                     \
    attribute static double name(size_t rounds) {                                       \
        typedef type vector __attribute__((vector_size(sizeof(type) * (lanes))));       \
        const type factor = (type)0.5;                                                  \
        vector sum[CHAINS], a = {0}, b = {0};                                           \
        a += factor;                                                                    \
        b += factor;                                                                    \
        for (size_t k = 0; k < CHAINS; k++) {                                           \
            sum[k] = b * (type)(k + 1);                                                 \
        }                                                                               \
        for (size_t i = 0; i < rounds; i++) {                                           \
            for (size_t k = 0; k < CHAINS; k++) {                                       \
                sum[k] = fma(sum[k], a, b);                                             \
            }                                                                           \
            __asm__ volatile("" : : "r"(i)); /* no closed form, no merging of rounds */ \
        }                                                                               \
        vector all = sum[0];                                                            \
        for (size_t k = 1; k < CHAINS; k++) {                                           \
            all += sum[k];                                                              \
        }                                                                               \
        volatile type keep = all[0];                                                    \
        (void)keep;                                                                     \
        return 2.0 * CHAINS * (lanes) * (double)rounds;                                 \
    }

#define PLAIN_FMA(x, y, z) ((x) * (y) + (z))
FMA_LOOP(fma_baseline_float, , float, 4, PLAIN_FMA)
FMA_LOOP(fma_baseline_double, , double, 2, PLAIN_FMA)

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f")))
FMA_LOOP(fma_avx2_float, AVX2, float, 8, _mm256_fmadd_ps)
FMA_LOOP(fma_avx2_double, AVX2, double, 4, _mm256_fmadd_pd)
FMA_LOOP(fma_avx512_float, AVX512, float, 16, _mm512_fmadd_ps)
FMA_LOOP(fma_avx512_double, AVX512, double, 8, _mm512_fmadd_pd)
#endif

typedef struct fma_loops {
    const char *name;
    double (*run[2])(size_t rounds); /* by dtype */
} fma_loops;

static const fma_loops *loops(void) {
    static const fma_loops baseline = {"baseline", {fma_baseline_float, fma_baseline_double}};
#if defined(__x86_64__)
    static const fma_loops avx2 = {"AVX2", {fma_avx2_float, fma_avx2_double}};
    static const fma_loops avx512 = {"AVX-512", {fma_avx512_float, fma_avx512_double}};
    if (__builtin_cpu_supports("avx512f")) {
        return &avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return &avx2;
    }
#endif
    return &baseline;
}

const char *ls_micro_fma_name(void) {
    return loops()->name;
}

double ls_micro_fma_run(ls_dtype dtype, size_t rounds) {
    return loops()->run[dtype](rounds);
}

double ls_micro_fma_peak(ls_dtype dtype) {
    const size_t rounds = 40000; /* a fifth of a millisecond: some run fits between two turns of other programs */
    double best = 0;
    for (int i = 0; i < 20; i++) {
        double begin = ls_now_seconds();
        double operations = ls_micro_fma_run(dtype, rounds);
        best = fmax(best, operations / (ls_now_seconds() - begin));
    }
    return best;
}

#define MEMORY_LOOP(name, attribute)                                        \
    attribute static void name(float *values, size_t count, float factor) { \
        for (size_t i = 0; i < count; i++) {                                \
            values[i] *= factor;                                            \
        }                                                                   \
    }
MEMORY_LOOP(memory_baseline, )
#if defined(__x86_64__)
MEMORY_LOOP(memory_avx2, AVX2)
#endif

void ls_micro_memory_run(float *values, size_t count, float factor) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        memory_avx2(values, count, factor);
        return;
    }
#endif
    memory_baseline(values, count, factor);
}

/* Bytes a second of the better loop over `bytes` of memory, each repeated for about a millisecond. */
static double host_peak(size_t bytes) {
    float *values = NULL;
    if (posix_memalign((void **)&values, 64, bytes) != 0) {
        return 0;
    }
    memset(values, 0x3f, bytes);
    size_t repeats = bytes < 8000000 ? 8000000 / bytes : 1, count = bytes / sizeof *values;
    double best = 0;
    for (int trial = 0; trial < 6; trial++) {
        double begin = ls_now_seconds();
        for (size_t i = 0; i < repeats; i++) {
            if (trial % 2 == 0) {
                ls_micro_memory_run(values, count, 1.0F);
            } else {
                memcpy(values, (char *)values + bytes / 2, bytes / 2);
            }
            __asm__ volatile("" : : "r"(values) : "memory");
        }
        double moved = (double)bytes * (trial % 2 == 0 ? 2 : 1) * (double)repeats;
        best = fmax(best, moved / (ls_now_seconds() - begin));
    }
    free(values);
    return best;
}

static ls_rc device_copies(void *from, void *to, size_t bytes, double *best) {
    for (int trial = 0; trial < 5; trial++) {
        LS_CUDA(cudaDeviceSynchronize());
        double begin = ls_now_seconds();
        for (int i = 0; i < 20; i++) {
            LS_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, 0));
        }
        LS_CUDA(cudaDeviceSynchronize());
        *best = fmax(*best, 2.0 * 20 * (double)bytes / (ls_now_seconds() - begin));
    }
    return LS_OK;
}

static ls_rc device_peak(size_t bytes, double *best) {
    void *from = NULL, *to = NULL;
    LS_CUDA(cudaMalloc(&from, bytes));
    ls_rc rc = ls_cuda_check(cudaMalloc(&to, bytes), "cudaMalloc", __FILE__, __LINE__);
    if (rc == LS_OK) {
        rc = device_copies(from, to, bytes, best);
    }
    (void)cudaFree(to);
    (void)cudaFree(from);
    return rc;
}

double ls_micro_memory_peak(size_t bytes) {
    bytes = bytes < 4096 ? 4096 : bytes / 128 * 128;
    if (ls_platform_shared_cores() > 0) {
        return host_peak(bytes);
    }
    double best = 0;
    return device_peak(bytes / 2, &best) == LS_OK ? best : 0;
}
