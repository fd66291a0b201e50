/* An allreduce of two ranks, the common case: elements are joined in registers and stored into both receive buffers, so that
 * each byte is loaded and stored once. Stores leave a core in their order: whole lines to one buffer and then to the other are
 * twice as fast as vectors to both by turns. A block is loaded before it is stored, for calls in place. */
#include <string.h>

#include "gpu/vgpu/nccl_internal.h"

/* How far ahead of the loads: the prefetchers of the hardware stop at the end of a page, and begin late after a line that another
 * core has written. 0 costs 10 % of the bandwidth of memory, and of 64 KiB a third; 512 half of that where a vector is a line.
 * Not beyond the part: there another rank writes. */
enum { AHEAD_BYTES = 1024 };

/* scalars: two elements, what left and right are multiplied by; a sum does not look at them. */
typedef void (*join_function)(const void *left, const void *right, const void *scalars, void *first, void *second,
                              size_t count);

/* Products and sums are rounded one by one, with every vector length: the bits are those of nccl_reduce_chunk. */
#define SUM(a, b)    ((a) + (b))
#define SCALED(a, b) ((a)*ka + (b)*kb)

#define VECTOR_AT(p, k) (*(vector *)((p) + i + (k)*lanes))
#define JOINED(E, k)    E(*(const vector *)(a + i + (k)*lanes), *(const vector *)(b + i + (k)*lanes))
#define JOIN(name, attribute, T, BYTES, EXPRESSION)                                                                 \
    attribute static void name(const void *left, const void *right, const void *scalars, void *first, void *second, \
                               size_t count) {                                                                      \
        typedef T vector __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));                        \
        const T *factors = scalars, ka = factors[0], kb = factors[1], *a = left, *b = right;                        \
        T *x = first, *y = second;                                                                                  \
        (void)ka;                                                                                                   \
        (void)kb;                                                                                                   \
        const size_t lanes = (BYTES) / sizeof(T), block = 4 * lanes, ahead = AHEAD_BYTES / sizeof(T);               \
        size_t i = 0;                                                                                               \
        for (; i + block <= count; i += block) {                                                                    \
            const size_t next = i + ahead + block <= count ? i + ahead : count - block;                             \
            for (size_t line = 0; line < 4 * (BYTES); line += 64) {                                                 \
                __builtin_prefetch((const char *)(a + next) + line);                                                \
                __builtin_prefetch((const char *)(b + next) + line);                                                \
            }                                                                                                       \
            const vector s0 = JOINED(EXPRESSION, 0), s1 = JOINED(EXPRESSION, 1);                                    \
            const vector s2 = JOINED(EXPRESSION, 2), s3 = JOINED(EXPRESSION, 3);                                    \
            VECTOR_AT(x, 0) = s0;                                                                                   \
            VECTOR_AT(x, 1) = s1;                                                                                   \
            VECTOR_AT(x, 2) = s2;                                                                                   \
            VECTOR_AT(x, 3) = s3;                                                                                   \
            VECTOR_AT(y, 0) = s0;                                                                                   \
            VECTOR_AT(y, 1) = s1;                                                                                   \
            VECTOR_AT(y, 2) = s2;                                                                                   \
            VECTOR_AT(y, 3) = s3;                                                                                   \
        }                                                                                                           \
        for (; i < count; i++) {                                                                                    \
            x[i] = y[i] = EXPRESSION(a[i], b[i]);                                                                   \
        }                                                                                                           \
    }

#define JOINS(suffix, attribute, BYTES)                                    \
    JOIN(f32_sum_##suffix, attribute, float, BYTES, SUM)                   \
    JOIN(f32_scaled_##suffix, attribute, float, BYTES, SCALED)             \
    JOIN(f64_sum_##suffix, attribute, double, BYTES, SUM)                  \
    JOIN(f64_scaled_##suffix, attribute, double, BYTES, SCALED)            \
    static join_function find_##suffix(unsigned dtype, unsigned op) {      \
        if (op != ncclSum && op != ncclAvg && op != NCCL_PREMUL_SUM) {     \
            return NULL;                                                   \
        }                                                                  \
        switch (dtype) {                                                   \
        case ncclFloat32:                                                  \
            return op == ncclSum ? f32_sum_##suffix : f32_scaled_##suffix; \
        case ncclFloat64:                                                  \
            return op == ncclSum ? f64_sum_##suffix : f64_scaled_##suffix; \
        default:                                                           \
            return NULL;                                                   \
        }                                                                  \
    }

JOINS(baseline, , 16)
#if defined(__x86_64__)
JOINS(avx2, __attribute__((target("avx2"))), 32)
JOINS(avx512, __attribute__((target("avx512f"))), 64)
#endif

bool nccl_reduce_two(const nccl_descriptor *what, const char *const *sources, const uint64_t *scalars,
                     char *const *targets, size_t first, size_t count) {
    join_function join = find_baseline(what->dtype, what->op);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        join = find_avx512(what->dtype, what->op);
    } else if (__builtin_cpu_supports("avx2")) {
        join = find_avx2(what->dtype, what->op);
    }
#endif
    if (join == NULL) {
        return false;
    }
    const size_t size = nccl_dtype_size(what->dtype), at = first * size;
    union {
        float f32[2];
        double f64[2];
        char bytes[2 * sizeof(double)];
    } factors = {.f64 = {0.5, 0.5}};
    if (what->dtype == ncclFloat32) {
        factors.f32[0] = factors.f32[1] = 0.5F;
    }
    if (what->op == NCCL_PREMUL_SUM) {
        memcpy(factors.bytes, &scalars[0], size);
        memcpy(factors.bytes + size, &scalars[1], size);
    }
    join(sources[0] + at, sources[1] + at, &factors, targets[0] + at, targets[1] + at, count);
    return true;
}
