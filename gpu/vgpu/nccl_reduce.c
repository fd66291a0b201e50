/* The arithmetic of reductions: every dtype and operation over a chunk that stays in cache. */
#include <string.h>

#include "gpu/vgpu/nccl_internal.h"

/* acc = a op b, and acc = acc op b; ka and kb are elements' bytes, what NCCL_PREMUL_SUM multiplies a and b by. */
typedef void (*pair_function)(void *acc, const void *a, const void *b, size_t count, const void *ka, const void *kb);
typedef void (*into_function)(void *acc, const void *b, size_t count, const void *kb);
typedef void (*scale_function)(void *out, const void *a, size_t count, const void *ka);
typedef void (*divide_function)(void *acc, size_t count, size_t divisor);

#define REDUCTION(name, T, FIRST, NEXT)                                                                            \
    static void name##_pair(void *acc, const void *left, const void *right, size_t count, const void *left_scalar, \
                            const void *right_scalar) {                                                            \
        T *restrict out = acc;                                                                                     \
        const T *restrict a = left, *restrict b = right;                                                           \
        T ka, kb;                                                                                                  \
        memcpy(&ka, left_scalar, sizeof ka);                                                                       \
        memcpy(&kb, right_scalar, sizeof kb);                                                                      \
        (void)ka;                                                                                                  \
        (void)kb;                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                       \
            out[i] = (T)(FIRST(a[i], b[i], ka, kb));                                                               \
        }                                                                                                          \
    }                                                                                                              \
    static void name##_into(void *acc, const void *right, size_t count, const void *scalar) {                      \
        T *restrict out = acc;                                                                                     \
        const T *restrict b = right;                                                                               \
        T kb;                                                                                                      \
        memcpy(&kb, scalar, sizeof kb);                                                                            \
        (void)kb;                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                       \
            out[i] = (T)(NEXT(out[i], b[i], kb, kb));                                                              \
        }                                                                                                          \
    }
#define SCALING(name, T, PRODUCT)                                                            \
    static void name##_scale(void *to, const void *from, size_t count, const void *scalar) { \
        T *out = to;                                                                         \
        const T *a = from;                                                                   \
        T k;                                                                                 \
        memcpy(&k, scalar, sizeof k);                                                        \
        for (size_t i = 0; i < count; i++) {                                                 \
            out[i] = (T)(PRODUCT(a[i], k, k, k));                                            \
        }                                                                                    \
    }

/* Integers wrap around: added and multiplied as unsigned of at least their width. */
#define ADD_INTEGER(a, b, ka, kb)      ((uint64_t)(a) + (uint64_t)(b))
#define MULTIPLY_INTEGER(a, b, ka, kb) ((uint64_t)(a) * (uint64_t)(b))
#define ADD(a, b, ka, kb)              ((a) + (b))
#define MULTIPLY(a, b, ka, kb)         ((a) * (b))
/* A number wins against a NaN, as fmax and fmin have it; true for integers anyway. */
#define LARGER(a, b, ka, kb)          (((a) > (b) || (b) != (b)) ? (a) : (b))
#define SMALLER(a, b, ka, kb)         (((a) < (b) || (b) != (b)) ? (a) : (b))
#define LARGER_INTEGER(a, b, ka, kb)  ((a) > (b) ? (a) : (b))
#define SMALLER_INTEGER(a, b, ka, kb) ((a) < (b) ? (a) : (b))
/* Each product is rounded, then the sum (-ffp-contract=off): the bits of a multiplication of its own before the sum. */
#define SCALED_BOTH(a, b, ka, kb)         ((a) * (ka) + (b) * (kb))
#define SCALED_NEXT(a, b, ka, kb)         ((a) + (b) * (kb))
#define SCALED_BOTH_INTEGER(a, b, ka, kb) ((uint64_t)(a) * (uint64_t)(ka) + (uint64_t)(b) * (uint64_t)(kb))
#define SCALED_NEXT_INTEGER(a, b, ka, kb) ((uint64_t)(a) + (uint64_t)(b) * (uint64_t)(kb))

#define INTEGER_REDUCTIONS(name, T, WIDE)                                 \
    REDUCTION(name##_sum, T, ADD_INTEGER, ADD_INTEGER)                    \
    REDUCTION(name##_prod, T, MULTIPLY_INTEGER, MULTIPLY_INTEGER)         \
    REDUCTION(name##_max, T, LARGER_INTEGER, LARGER_INTEGER)              \
    REDUCTION(name##_min, T, SMALLER_INTEGER, SMALLER_INTEGER)            \
    REDUCTION(name##_premul, T, SCALED_BOTH_INTEGER, SCALED_NEXT_INTEGER) \
    SCALING(name, T, MULTIPLY_INTEGER)                                    \
    static void name##_divide(void *acc, size_t count, size_t divisor) {  \
        T *values = acc;                                                  \
        for (size_t i = 0; i < count; i++) {                              \
            values[i] = (T)(values[i] / (WIDE)divisor);                   \
        }                                                                 \
    }

#define FLOAT_REDUCTIONS(name, T)                         \
    REDUCTION(name##_sum, T, ADD, ADD)                    \
    REDUCTION(name##_prod, T, MULTIPLY, MULTIPLY)         \
    REDUCTION(name##_max, T, LARGER, LARGER)              \
    REDUCTION(name##_min, T, SMALLER, SMALLER)            \
    REDUCTION(name##_premul, T, SCALED_BOTH, SCALED_NEXT) \
    SCALING(name, T, MULTIPLY)

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
    pair_function pair[NCCL_OPS];
    into_function into[NCCL_OPS];
    scale_function scale;
    divide_function divide; /* after an average's sum; NULL for floats, which are scaled before */
} type_entry;

#define INTEGER_ENTRY(text, name, T)                                                                                    \
    {                                                                                                                   \
        text, sizeof(T), {name##_sum_pair, name##_prod_pair, name##_max_pair,                                           \
                          name##_min_pair, name##_sum_pair,  name##_premul_pair},                                       \
            {name##_sum_into, name##_prod_into, name##_max_into, name##_min_into, name##_sum_into, name##_premul_into}, \
            name##_scale, name##_divide                                                                                 \
    }
/* A float's average is a sum of what is multiplied by 1/sources. */
#define FLOAT_ENTRY(text, name, size)                                          \
    {                                                                          \
        text, size, {name##_sum_pair, name##_prod_pair,   name##_max_pair,     \
                     name##_min_pair, name##_premul_pair, name##_premul_pair}, \
            {name##_sum_into, name##_prod_into,   name##_max_into,             \
             name##_min_into, name##_premul_into, name##_premul_into},         \
            name##_scale, NULL                                                 \
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

static const char *const op_names[] = {[ncclSum] = "sum", [ncclProd] = "prod", [ncclMax] = "max",
                                       [ncclMin] = "min", [ncclAvg] = "avg",   [NCCL_PREMUL_SUM] = "premul-sum"};

size_t nccl_dtype_size(unsigned dtype) {
    return dtype < sizeof types / sizeof types[0] ? types[dtype].size : 0;
}

const char *nccl_dtype_name(unsigned dtype) {
    return dtype < sizeof types / sizeof types[0] ? types[dtype].name : "unknown type";
}

const char *nccl_op_name(unsigned op) {
    return op < NCCL_OPS ? op_names[op] : "unknown operation";
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

enum { BLOCK = 512 }; /* 16-bit elements at a time, to bound the float32 copies on the stack */

/* A source's elements as they are added: a product is rounded to 16 bits before, as if it had been stored. */
static void widen_terms(unsigned dtype, unsigned op, const uint16_t *from, const uint64_t *scalar, float *to,
                        size_t count) {
    uint16_t rounded[BLOCK];
    float factor;
    widen(dtype, from, to, count);
    if (op == NCCL_PREMUL_SUM) {
        memcpy(rounded, scalar, sizeof rounded[0]);
        widen(dtype, rounded, &factor, 1);
        f32_scale(to, to, count, &factor);
        narrow(dtype, to, rounded, count);
        widen(dtype, rounded, to, count);
    }
}

static void reduce_16bit(unsigned dtype, unsigned op, size_t sources, const void *const *source,
                         const uint64_t *scalars, size_t count, uint16_t *out) {
    float acc[BLOCK], first[BLOCK], next[BLOCK];
    const float share = 1.0F / (float)sources;
    const unsigned join = op == NCCL_PREMUL_SUM ? ncclSum : op;
    for (size_t start = 0; start < count; start += BLOCK) {
        size_t n = count - start < BLOCK ? count - start : BLOCK;
        widen_terms(dtype, op, (const uint16_t *)source[0] + start, &scalars[0], first, n);
        widen_terms(dtype, op, (const uint16_t *)source[1] + start, &scalars[1], next, n);
        types[dtype].pair[join](acc, first, next, n, &share, &share);
        for (size_t k = 2; k < sources; k++) {
            widen_terms(dtype, op, (const uint16_t *)source[k] + start, &scalars[k], next, n);
            types[dtype].into[join](acc, next, n, &share);
        }
        narrow(dtype, acc, out + start, n);
    }
}

/* The only source: its products, or its copy. */
static void reduce_one(unsigned dtype, unsigned op, const void *source, const uint64_t *scalar, size_t count,
                       void *out) {
    if (op != NCCL_PREMUL_SUM) {
        memcpy(out, source, count * types[dtype].size);
    } else if (dtype != ncclFloat16 && dtype != ncclBfloat16) {
        types[dtype].scale(out, source, count, scalar);
    } else {
        float products[BLOCK];
        for (size_t start = 0; start < count; start += BLOCK) {
            size_t n = count - start < BLOCK ? count - start : BLOCK;
            widen_terms(dtype, op, (const uint16_t *)source + start, scalar, products, n);
            narrow(dtype, products, (uint16_t *)out + start, n);
        }
    }
}

void nccl_reduce_chunk(unsigned dtype, unsigned op, size_t sources, const void *const *source, const uint64_t *scalars,
                       size_t count, void *out) {
    const type_entry *type = &types[dtype];
    if (sources == 1) {
        reduce_one(dtype, op, source[0], &scalars[0], count, out);
        return;
    }
    if (dtype == ncclFloat16 || dtype == ncclBfloat16) {
        reduce_16bit(dtype, op, sources, source, scalars, count, out);
        return;
    }
    const double share = 1.0 / (double)sources;
    const float share32 = (float)share;
    const void *average = dtype == ncclFloat32 ? (const void *)&share32 : &share;
    const bool own = op == NCCL_PREMUL_SUM;
    type->pair[op](out, source[0], source[1], count, own ? &scalars[0] : average, own ? &scalars[1] : average);
    for (size_t k = 2; k < sources; k++) {
        type->into[op](out, source[k], count, own ? &scalars[k] : average);
    }
    if (op == ncclAvg && type->divide != NULL) {
        type->divide(out, count, sources);
    }
}
