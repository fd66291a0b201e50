/* Steps of direct.c's loops that are one instruction, or few, and that compilers do not make out of C's operators. Each is there for
 * float and for double or for neither; the loops have a form in plain C for where it is not. */
#ifndef LS_GPU_VGPU_MATH_DIRECT_SHUFFLE_H
#define LS_GPU_VGPU_MATH_DIRECT_SHUFFLE_H

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* A maximum so far and its number, and a value that comes later: direct_pool.inc. One choice is one instruction here, of which
 * gcc makes two out of the operators of C. */
#if defined(__AVX512F__)
#define TAKE_float(top, at, after, after_at)                                                        \
    do {                                                                                            \
        const __mmask16 later = _mm512_cmp_ps_mask((__m512)(after), (__m512)(top), _CMP_GT_OQ) |    \
                                _mm512_cmp_ps_mask((__m512)(after), (__m512)(after), _CMP_UNORD_Q); \
        (top) = (vector_float)_mm512_mask_mov_ps((__m512)(top), later, (__m512)(after));            \
        (at) = (mask_float)_mm512_mask_mov_epi32((__m512i)(at), later, (__m512i)(after_at));        \
    } while (0)
#define TAKE_double(top, at, after, after_at)                                                        \
    do {                                                                                             \
        const __mmask8 later = _mm512_cmp_pd_mask((__m512d)(after), (__m512d)(top), _CMP_GT_OQ) |    \
                               _mm512_cmp_pd_mask((__m512d)(after), (__m512d)(after), _CMP_UNORD_Q); \
        (top) = (vector_double)_mm512_mask_mov_pd((__m512d)(top), later, (__m512d)(after));          \
        (at) = (mask_double)_mm512_mask_mov_epi64((__m512i)(at), later, (__m512i)(after_at));        \
    } while (0)
#endif

/* Bytes, in a row of integers of as many as 16 bytes hold elements, as the integers of a vector. */
#if defined(__AVX512F__)
#define WIDEN_float(p) \
    (mask_float) _mm512_cvtepu8_epi32(_mm_setr_epi32((int)(p)[0], (int)(p)[1], (int)(p)[2], (int)(p)[3]))
#define WIDEN_double(p) \
    (mask_double)       \
        _mm512_cvtepu8_epi64(_mm_setr_epi16((short)(p)[0], (short)(p)[1], (short)(p)[2], (short)(p)[3], 0, 0, 0, 0))
#elif defined(__AVX2__)
#define WIDEN_float(p) (mask_float) _mm256_cvtepu8_epi32(_mm_setr_epi32((int)(p)[0], (int)(p)[1], 0, 0))
#define WIDEN_double(p) \
    (mask_double) _mm256_cvtepu8_epi64(_mm_setr_epi16((short)(p)[0], (short)(p)[1], 0, 0, 0, 0, 0, 0))
#endif

/* Stores the values that are not 0, and their offsets, side by side; is how many. A whole vector is written at both places. AVX2 moves
 * words of 32 bits, by direct_pool's `kept`. */
#if defined(__AVX512F__)
#define KEEP_float(kept, value, offset, to, to_offset) \
    ((void)(kept), keep_float(value, (__m512i)(offset), to, to_offset))
#define KEEP_double(kept, value, offset, to, to_offset) \
    ((void)(kept), keep_double(value, (__m512i)(offset), to, to_offset))
static inline __attribute__((always_inline)) size_t keep_float(__m512 value, __m512i offset, float *to,
                                                               int32_t *to_offset) {
    const __mmask16 some = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(some, value));
    _mm512_storeu_si512(to_offset, _mm512_maskz_compress_epi32(some, offset));
    return (size_t)__builtin_popcount(some);
}
static inline __attribute__((always_inline)) size_t keep_double(__m512d value, __m512i offset, double *to,
                                                                int64_t *to_offset) {
    const __mmask8 some = _mm512_cmp_pd_mask(value, _mm512_setzero_pd(), _CMP_NEQ_UQ);
    _mm512_storeu_pd(to, _mm512_maskz_compress_pd(some, value));
    _mm512_storeu_si512(to_offset, _mm512_maskz_compress_epi64(some, offset));
    return (size_t)__builtin_popcount(some);
}
#elif defined(__AVX2__)
#define KEEP_float(kept, value, offset, to, to_offset) \
    keep_words(kept, _mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_NEQ_UQ), value, (__m256i)(offset), to, to_offset)
#define KEEP_double(kept, value, offset, to, to_offset)                                         \
    (keep_words(kept, _mm256_castpd_ps(_mm256_cmp_pd(value, _mm256_setzero_pd(), _CMP_NEQ_UQ)), \
                _mm256_castpd_ps(value), (__m256i)(offset), to, to_offset) /                    \
     2)
static inline __attribute__((always_inline)) size_t keep_words(const uint8_t (*kept)[8], __m256 some, __m256 value,
                                                               __m256i offset, void *to, void *to_offset) {
    const int set = _mm256_movemask_ps(some);
    const __m256i from = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)kept[set]));
    _mm256_storeu_ps(to, _mm256_permutevar8x32_ps(value, from));
    _mm256_storeu_si256(to_offset, _mm256_permutevar8x32_epi32(offset, from));
    return (size_t)__builtin_popcount((unsigned)set);
}
#endif

/* A square whose rows become columns, of 8, 4 or 2: rounds of taking values from two rows in turn, one at a time, two, four, each
 * within 16 bytes or from one 16 to the other, which is one instruction where rows have 32 bytes. */
#if defined(__AVX__)
enum { EDGE_BYTES = 32 };
#else
enum { EDGE_BYTES = 16 };
#endif
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define ONES(V, a, b, low, high)                                     \
    V low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13), \
      high = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define TWOS(V, a, b, low, high)                                     \
    V low = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13), \
      high = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define FOURS(a, b, low, high)                                      \
    (low = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11), \
     high = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15))
#define TURN_8(row, V)                       \
    do {                                     \
        ONES(V, (row)[0], (row)[1], a0, a1); \
        ONES(V, (row)[2], (row)[3], b0, b1); \
        ONES(V, (row)[4], (row)[5], c0, c1); \
        ONES(V, (row)[6], (row)[7], d0, d1); \
        TWOS(V, a0, b0, e0, e1);             \
        TWOS(V, a1, b1, e2, e3);             \
        TWOS(V, c0, d0, f0, f1);             \
        TWOS(V, c1, d1, f2, f3);             \
        FOURS(e0, f0, (row)[0], (row)[4]);   \
        FOURS(e1, f1, (row)[1], (row)[5]);   \
        FOURS(e2, f2, (row)[2], (row)[6]);   \
        FOURS(e3, f3, (row)[3], (row)[7]);   \
    } while (0)
#define TURN_4(row, V)                                                        \
    do {                                                                      \
        const V a0 = __builtin_shufflevector((row)[0], (row)[1], 0, 4, 2, 6); \
        const V a1 = __builtin_shufflevector((row)[0], (row)[1], 1, 5, 3, 7); \
        const V b0 = __builtin_shufflevector((row)[2], (row)[3], 0, 4, 2, 6); \
        const V b1 = __builtin_shufflevector((row)[2], (row)[3], 1, 5, 3, 7); \
        (row)[0] = __builtin_shufflevector(a0, b0, 0, 1, 4, 5);               \
        (row)[1] = __builtin_shufflevector(a1, b1, 0, 1, 4, 5);               \
        (row)[2] = __builtin_shufflevector(a0, b0, 2, 3, 6, 7);               \
        (row)[3] = __builtin_shufflevector(a1, b1, 2, 3, 6, 7);               \
    } while (0)
#define TURN_2(row, V)                                                  \
    do {                                                                \
        const V a0 = __builtin_shufflevector((row)[0], (row)[1], 0, 2); \
        (row)[1] = __builtin_shufflevector((row)[0], (row)[1], 1, 3);   \
        (row)[0] = a0;                                                  \
    } while (0)
#if defined(__AVX__)
#define TURN_float  TURN_8
#define TURN_double TURN_4
#else
#define TURN_float  TURN_4
#define TURN_double TURN_2
#endif
#endif
#endif

/* The vectors of 16 bytes in a row as one. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define PAIR_float(a, b)  __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7)
#define PAIR_double(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3)
#if defined(__AVX512F__)
#define JOIN_float(p)                                                                                                 \
    __builtin_shufflevector(PAIR_float((p)[0], (p)[1]), PAIR_float((p)[2], (p)[3]), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, \
                            11, 12, 13, 14, 15)
#define JOIN_double(p) \
    __builtin_shufflevector(PAIR_double((p)[0], (p)[1]), PAIR_double((p)[2], (p)[3]), 0, 1, 2, 3, 4, 5, 6, 7)
#elif defined(__AVX__)
#define JOIN_float(p)  PAIR_float((p)[0], (p)[1])
#define JOIN_double(p) PAIR_double((p)[0], (p)[1])
#endif
#endif
#endif

#endif
