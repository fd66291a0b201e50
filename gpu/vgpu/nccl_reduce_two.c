/* An allreduce of two ranks, the common case: elements are joined in registers and stored into both receive buffers, so that
 * each byte is loaded and stored once. Stores leave a core in their order: whole lines to one buffer and then to the other are
 * twice as fast as vectors to both by turns. A block is loaded before it is stored, for calls in place. */
#include <string.h>

#include "gpu/vgpu/nccl_internal.h"

/* How far ahead of the loads both sources are prefetched: the prefetchers of the hardware stop at the end of a page, and begin
 * late after a line that another core has written. On Intel's processors 0 costs 10 % of the bandwidth of memory, and of 64 KiB
 * a third; 512 half of that where a vector is a line. Not beyond the part: there another rank writes. */
enum { AHEAD_BYTES = 1024 };

/* AMD's processors with AVX-512 (measured on Zen 4) are 10 to 25 % slower with that than with nothing while all lies in
 * caches. Only the other rank's lines of short parts, which come from its core's caches, are prefetched, into the second-level
 * cache; the hardware finds the others. Longer parts are joined chunk by chunk into one buffer and copied from there, out of the
 * first-level cache, into the other: 4 MiB take a tenth less than with stores to both by turns. Of parts that come from memory
 * both sources are prefetched here too: without it 16 MiB take 10 % longer. */
enum { NEAR_PART_BYTES = 256 << 10, CACHED_PART_BYTES = 4 << 20, NEAR_AHEAD_BYTES = 4096 };

typedef struct pair {
    const void *source[2]; /* in the order of ranks */
    void *target[2];
    const char *other;   /* which of the sources the other rank has written */
    const void *factors; /* two elements, what the sources are multiplied by; a sum does not look at them */
    size_t count;
    size_t ahead; /* of fetch_other, bytes; 0: nothing is prefetched */
    bool chunks;  /* into one buffer first */
} pair;

typedef void (*join_function)(const pair *p);

/* Before the bytes at..at+size of a part of end bytes are loaded. Unrolled, as the sums are. */
static inline __attribute__((always_inline)) void fetch_both(const pair *p, size_t at, size_t size, size_t end) {
    const size_t next = at + AHEAD_BYTES + size <= end ? at + AHEAD_BYTES : end - size;
    _Pragma("GCC unroll 4") for (size_t k = 0; k < size; k += 64) {
        __builtin_prefetch((const char *)p->source[0] + next + k);
        __builtin_prefetch((const char *)p->source[1] + next + k);
    }
}

#if defined(__x86_64__)
static inline __attribute__((always_inline)) void fetch_other(const pair *p, size_t at, size_t size, size_t end) {
    const size_t next = at + p->ahead;
    if (next == at || next + size > end) {
        return;
    }
    _Pragma("GCC unroll 4") for (size_t k = 0; k < size; k += 64) {
        __builtin_prefetch(p->other + next + k, 0, 2);
    }
}
#endif

/* Products and sums are rounded one by one, with every vector length: the bits are those of nccl_reduce_chunk. */
#define SUM(a, b)    ((a) + (b))
#define SCALED(a, b) ((a)*ka + (b)*kb)

#define VECTOR_AT(p, k) (*(vector *)((p) + i + (k)*lanes))
#define JOINED(E, k)    E(*(const vector *)(a + i + (k)*lanes), *(const vector *)(b + i + (k)*lanes))
#define JOIN(name, attribute, T, BYTES, EXPRESSION, FETCH)                                   \
    attribute static void name(const pair *p) {                                              \
        typedef T vector __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias)); \
        const T *factors = p->factors, ka = factors[0], kb = factors[1];                     \
        const T *a = p->source[0], *b = p->source[1];                                        \
        T *x = p->target[0], *y = p->target[1];                                              \
        (void)ka;                                                                            \
        (void)kb;                                                                            \
        const pair parts = *p;                                                               \
        const size_t lanes = (BYTES) / sizeof(T), block = 4 * lanes, count = parts.count;    \
        size_t i = 0;                                                                        \
        for (; i + block <= count; i += block) {                                             \
            FETCH(&parts, i * sizeof(T), 4 * (BYTES), count * sizeof(T));                    \
            const vector s0 = JOINED(EXPRESSION, 0), s1 = JOINED(EXPRESSION, 1);             \
            const vector s2 = JOINED(EXPRESSION, 2), s3 = JOINED(EXPRESSION, 3);             \
            VECTOR_AT(x, 0) = s0;                                                            \
            VECTOR_AT(x, 1) = s1;                                                            \
            VECTOR_AT(x, 2) = s2;                                                            \
            VECTOR_AT(x, 3) = s3;                                                            \
            if (y != x) {                                                                    \
                VECTOR_AT(y, 0) = s0;                                                        \
                VECTOR_AT(y, 1) = s1;                                                        \
                VECTOR_AT(y, 2) = s2;                                                        \
                VECTOR_AT(y, 3) = s3;                                                        \
            }                                                                                \
        }                                                                                    \
        for (; i < count; i++) {                                                             \
            x[i] = y[i] = EXPRESSION(a[i], b[i]);                                            \
        }                                                                                    \
    }

#define JOINS(suffix, attribute, BYTES, FETCH)                             \
    JOIN(f32_sum_##suffix, attribute, float, BYTES, SUM, FETCH)            \
    JOIN(f32_scaled_##suffix, attribute, float, BYTES, SCALED, FETCH)      \
    JOIN(f64_sum_##suffix, attribute, double, BYTES, SUM, FETCH)           \
    JOIN(f64_scaled_##suffix, attribute, double, BYTES, SCALED, FETCH)     \
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

JOINS(baseline, , 16, fetch_both)
#if defined(__x86_64__)
JOINS(avx2, __attribute__((target("avx2"))), 32, fetch_both)
JOINS(avx512, __attribute__((target("avx512f"))), 64, fetch_both)
JOINS(avx512_amd, __attribute__((target("avx512f"))), 64, fetch_other)

/* Chooses the way of a part of so many bytes, and fetches the first lines, which fetch_other is ahead of. */
static void begin_amd(pair *p, size_t bytes) {
    p->chunks = bytes > NEAR_PART_BYTES;
    p->ahead = bytes <= NEAR_PART_BYTES ? NEAR_AHEAD_BYTES : 0;
    for (size_t k = 0; k < p->ahead && k < bytes; k += 64) {
        __builtin_prefetch(p->other + k, 0, 2);
    }
}
#endif

/* The function for this processor and a part of so many bytes, begun; NULL: the type or operation is not among those here. */
static join_function find_join(unsigned dtype, unsigned op, pair *p, size_t bytes) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_is("amd") && bytes <= CACHED_PART_BYTES) {
        begin_amd(p, bytes);
        return find_avx512_amd(dtype, op);
    }
    if (__builtin_cpu_supports("avx512f")) {
        return find_avx512(dtype, op);
    }
    if (__builtin_cpu_supports("avx2")) {
        return find_avx2(dtype, op);
    }
#else
    (void)p;
    (void)bytes;
#endif
    return find_baseline(dtype, op);
}

/* The whole part, of elements of `size` bytes. */
static void run_join(join_function join, const pair *p, size_t size) {
    const size_t step = NCCL_CHUNK_BYTES / size;
    if (!p->chunks) {
        join(p);
        return;
    }
    for (size_t first = 0; first < p->count; first += step) {
        pair chunk = *p;
        const size_t at = first * size;
        for (size_t k = 0; k < 2; k++) {
            chunk.source[k] = (const char *)p->source[k] + at;
            chunk.target[k] = (char *)p->target[0] + at;
        }
        chunk.other = p->other + at;
        chunk.count = p->count - first < step ? p->count - first : step;
        join(&chunk);
        memcpy((char *)p->target[1] + at, chunk.target[0], chunk.count * size);
    }
}

bool nccl_reduce_two(const nccl_descriptor *what, int rank, const char *const *sources, const uint64_t *scalars,
                     char *const *targets, size_t first, size_t count) {
    const size_t size = nccl_dtype_size(what->dtype), at = first * size;
    union {
        float f32[2];
        double f64[2];
        char bytes[2 * sizeof(double)];
    } factors = {.f64 = {0.5, 0.5}};
    pair p = {.source = {sources[0] + at, sources[1] + at},
              .target = {targets[0] + at, targets[1] + at},
              .other = sources[1 - rank] + at,
              .factors = &factors,
              .count = count};
    join_function join = find_join(what->dtype, what->op, &p, count * size);
    if (join == NULL) {
        return false;
    }
    if (what->dtype == ncclFloat32) {
        factors.f32[0] = factors.f32[1] = 0.5F;
    }
    if (what->op == NCCL_PREMUL_SUM) {
        memcpy(factors.bytes, &scalars[0], size);
        memcpy(factors.bytes + size, &scalars[1], size);
    }
    run_join(join, &p, size);
    return true;
}
