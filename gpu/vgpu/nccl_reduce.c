/* The arithmetic of reductions: every dtype and operation over a chunk that stays in cache. */
#include <string.h>

#include "gpu/vgpu/nccl_internal.h"

/* acc = a op b, and acc = acc op b; scale is 1/sources for averages of floats and unused otherwise. */
typedef void (*pair_function)(void *acc, const void *a, const void *b, size_t count, double scale);
typedef void (*into_function)(void *acc, const void *b, size_t count, double scale);
typedef void (*divide_function)(void *acc, size_t count, size_t divisor);

#define REDUCTION(name, T, FIRST, NEXT)                                                                   \
    static void name##_pair(void *acc, const void *left, const void *right, size_t count, double scale) { \
        T *restrict out = acc;                                                                            \
        const T *restrict a = left, *restrict b = right;                                                  \
        const T k = (T)scale;                                                                             \
        (void)k;                                                                                          \
        for (size_t i = 0; i < count; i++) {                                                              \
            out[i] = (T)(FIRST(a[i], b[i], k));                                                           \
        }                                                                                                 \
    }                                                                                                     \
    static void name##_into(void *acc, const void *right, size_t count, double scale) {                   \
        T *restrict out = acc;                                                                            \
        const T *restrict b = right;                                                                      \
        const T k = (T)scale;                                                                             \
        (void)k;                                                                                          \
        for (size_t i = 0; i < count; i++) {                                                              \
            out[i] = (T)(NEXT(out[i], b[i], k));                                                          \
        }                                                                                                 \
    }

/* Integers wrap around: added and multiplied as unsigned of at least their width. */
#define ADD_INTEGER(a, b, k)      ((uint64_t)(a) + (uint64_t)(b))
#define MULTIPLY_INTEGER(a, b, k) ((uint64_t)(a) * (uint64_t)(b))
#define ADD(a, b, k)              ((a) + (b))
#define MULTIPLY(a, b, k)         ((a) * (b))
/* A number wins against a NaN, as fmax and fmin have it; true for integers anyway. */
#define LARGER(a, b, k)          (((a) > (b) || (b) != (b)) ? (a) : (b))
#define SMALLER(a, b, k)         (((a) < (b) || (b) != (b)) ? (a) : (b))
#define SCALED_BOTH(a, b, k)     ((a) * (k) + (b) * (k))
#define SCALED_NEXT(a, b, k)     ((a) + (b) * (k))
#define LARGER_INTEGER(a, b, k)  ((a) > (b) ? (a) : (b))
#define SMALLER_INTEGER(a, b, k) ((a) < (b) ? (a) : (b))

#define INTEGER_REDUCTIONS(name, T, WIDE)                                \
    REDUCTION(name##_sum, T, ADD_INTEGER, ADD_INTEGER)                   \
    REDUCTION(name##_prod, T, MULTIPLY_INTEGER, MULTIPLY_INTEGER)        \
    REDUCTION(name##_max, T, LARGER_INTEGER, LARGER_INTEGER)             \
    REDUCTION(name##_min, T, SMALLER_INTEGER, SMALLER_INTEGER)           \
    static void name##_divide(void *acc, size_t count, size_t divisor) { \
        T *values = acc;                                                 \
        for (size_t i = 0; i < count; i++) {                             \
            values[i] = (T)(values[i] / (WIDE)divisor);                  \
        }                                                                \
    }

#define FLOAT_REDUCTIONS(name, T)                 \
    REDUCTION(name##_sum, T, ADD, ADD)            \
    REDUCTION(name##_prod, T, MULTIPLY, MULTIPLY) \
    REDUCTION(name##_max, T, LARGER, LARGER)      \
    REDUCTION(name##_min, T, SMALLER, SMALLER)    \
    REDUCTION(name##_avg, T, SCALED_BOTH, SCALED_NEXT)

INTEGER_REDUCTIONS(i8, int8_t, int64_t)
INTEGER_REDUCTIONS(u8, uint8_t, uint64_t)
INTEGER_REDUCTIONS(i32, int32_t, int64_t)
INTEGER_REDUCTIONS(u32, uint32_t, uint64_t)
INTEGER_REDUCTIONS(i64, int64_t, int64_t)
INTEGER_REDUCTIONS(u64, uint64_t, uint64_t)
FLOAT_REDUCTIONS(f32, float)
FLOAT_REDUCTIONS(f64, double)

typedef struct type_entry {
    const char *name;
    size_t size;
    pair_function pair[ncclNumOps];
    into_function into[ncclNumOps];
    divide_function divide; /* after an average's sum; NULL for floats, which are scaled before */
} type_entry;

#define INTEGER_ENTRY(text, name, T)                                                                              \
    {                                                                                                             \
        text, sizeof(T), {name##_sum_pair, name##_prod_pair, name##_max_pair, name##_min_pair, name##_sum_pair},  \
            {name##_sum_into, name##_prod_into, name##_max_into, name##_min_into, name##_sum_into}, name##_divide \
    }
#define FLOAT_ENTRY(text, name, size)                                                                       \
    {                                                                                                       \
        text, size, {name##_sum_pair, name##_prod_pair, name##_max_pair, name##_min_pair, name##_avg_pair}, \
            {name##_sum_into, name##_prod_into, name##_max_into, name##_min_into, name##_avg_into}, NULL    \
    }

static const type_entry types[] = {
    [ncclInt8] = INTEGER_ENTRY("int8", i8, int8_t),
    [ncclUint8] = INTEGER_ENTRY("uint8", u8, uint8_t),
    [ncclInt32] = INTEGER_ENTRY("int32", i32, int32_t),
    [ncclUint32] = INTEGER_ENTRY("uint32", u32, uint32_t),
    [ncclInt64] = INTEGER_ENTRY("int64", i64, int64_t),
    [ncclUint64] = INTEGER_ENTRY("uint64", u64, uint64_t),
    [ncclFloat16] = FLOAT_ENTRY("float16", f32, 2),
    [ncclFloat32] = FLOAT_ENTRY("float32", f32, sizeof(float)),
    [ncclFloat64] = FLOAT_ENTRY("float64", f64, sizeof(double)),
    [ncclBfloat16] = FLOAT_ENTRY("bfloat16", f32, 2),
};

static const char *const op_names[] = {
    [ncclSum] = "sum", [ncclProd] = "prod", [ncclMax] = "max", [ncclMin] = "min", [ncclAvg] = "avg"};

size_t nccl_dtype_size(unsigned dtype) {
    return dtype < sizeof types / sizeof types[0] ? types[dtype].size : 0;
}

const char *nccl_dtype_name(unsigned dtype) {
    return dtype < sizeof types / sizeof types[0] ? types[dtype].name : "unknown type";
}

const char *nccl_op_name(unsigned op) {
    return op < ncclNumOps ? op_names[op] : "unknown operation";
}

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* IEEE binary16 to binary32, exact. Denormals: m * 2^-24. */
static float float_of_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000U) << 16, magnitude = half & 0x7fffU;
    if (magnitude >= 0x7c00U) {
        return float_of_bits(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
    }
    if (magnitude < 0x400U) {
        float value = (float)magnitude * 0x1p-24F;
        return float_of_bits(sign | bits_of_float(value));
    }
    return float_of_bits(sign | ((magnitude << 13) + ((127U - 15U) << 23)));
}

/* binary32 to binary16, round to nearest even. */
static uint16_t half_of_float(float value) {
    uint32_t bits = bits_of_float(value), sign = (bits >> 16) & 0x8000U, magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
        return (uint16_t)(sign | 0x7e00U);
    }
    if (magnitude >= 0x47800000U) { /* 65536 and above; 65520 to 65536 round up to infinity below */
        return (uint16_t)(sign | 0x7c00U);
    }
    if (magnitude < 0x38800000U) { /* below 2^-14: adding 0.5 leaves round(m * 2^24) in the low bits */
        return (uint16_t)(sign | (bits_of_float(float_of_bits(magnitude) + 0.5F) - 0x3f000000U));
    }
    magnitude += 0xfffU + ((magnitude >> 13) & 1U);
    return (uint16_t)(sign | ((magnitude - ((127U - 15U) << 23)) >> 13));
}

/* bfloat16 is the upper half of binary32. */
static uint16_t bfloat_of_float(float value) {
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)((bits >> 16) | 0x40U);
    }
    return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

static void widen(unsigned dtype, const uint16_t *from, float *to, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = dtype == ncclBfloat16 ? float_of_bits((uint32_t)from[i] << 16) : float_of_half(from[i]);
    }
}

static void narrow(unsigned dtype, const float *from, uint16_t *to, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = dtype == ncclBfloat16 ? bfloat_of_float(from[i]) : half_of_float(from[i]);
    }
}

/* In blocks, to bound the float32 copies on the stack. */
static void reduce_16bit(unsigned dtype, unsigned op, size_t sources, const void *const *source, size_t count,
                         uint16_t *out) {
    enum { BLOCK = 512 };
    float acc[BLOCK], first[BLOCK], next[BLOCK];
    const double scale = 1.0 / (double)sources;
    for (size_t start = 0; start < count; start += BLOCK) {
        size_t n = count - start < BLOCK ? count - start : BLOCK;
        widen(dtype, (const uint16_t *)source[0] + start, first, n);
        widen(dtype, (const uint16_t *)source[1] + start, next, n);
        types[dtype].pair[op](acc, first, next, n, scale);
        for (size_t k = 2; k < sources; k++) {
            widen(dtype, (const uint16_t *)source[k] + start, next, n);
            types[dtype].into[op](acc, next, n, scale);
        }
        narrow(dtype, acc, out + start, n);
    }
}

void nccl_reduce_chunk(unsigned dtype, unsigned op, size_t sources, const void *const *source, size_t count,
                       void *out) {
    const type_entry *type = &types[dtype];
    if (sources == 1) {
        memcpy(out, source[0], count * type->size);
        return;
    }
    if (dtype == ncclFloat16 || dtype == ncclBfloat16) {
        reduce_16bit(dtype, op, sources, source, count, out);
        return;
    }
    const double scale = type->divide == NULL ? 1.0 / (double)sources : 0.0;
    type->pair[op](out, source[0], source[1], count, scale);
    for (size_t k = 2; k < sources; k++) {
        type->into[op](out, source[k], count, scale);
    }
    if (op == ncclAvg && type->divide != NULL) {
        type->divide(out, count, sources);
    }
}
