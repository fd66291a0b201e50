/* The loops of direct.h for one instruction set: the build compiles this file once for each, with DIRECT_ISA naming the
 * table that it defines and DIRECT_ISA_NAME what users read. All functions but the table are static, so that no code of
 * one instruction set can be taken for another's. */
#include "gpu/vgpu/math/direct.h"

#include <string.h>

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif

/* What the registers hold sums for: weight gradients are computed for one of these numbers of output channels together, products
 * of matrices for as many vectors of columns, or 2, or 1. */
#if defined(__AVX512F__)
enum { MANY_REGISTERS = 1, OUTS_FEW = 2, OUTS_SOME = 4, OUTS_MOST = 5, VECTORS_MOST = 4 };
#else
enum { MANY_REGISTERS = 0, OUTS_FEW = 2, OUTS_SOME = OUTS_FEW, OUTS_MOST = OUTS_FEW, VECTORS_MOST = 2 };
#endif

/* Sums of sparse gradients in registers, beside a value; so few that each needs another to take turns with. */
enum { SPARSE_SUMS = MANY_REGISTERS ? 28 : 14, FEW_SUMS = 4 };

/* Keeps a loaded vector in a register: compilers fold a load into each multiply-add that uses it, and loads are what
 * limits loops that use a value twice. */
#if defined(__x86_64__)
#define IN_REGISTER(value) __asm__("" : "+v"(value))
/* The same of an address, to which compilers else add what is already added in others. */
#define IN_POINTER(value) __asm__("" : "+r"(value))
/* No load from here on begins before these sums are made: clang would load all that a step of a loop reads, and run out of
 * registers. */
#define THEN_LOAD(a, b, c, d, e) __asm__ volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e) : : "memory")
#else
#define IN_REGISTER(value)       ((void)0)
#define IN_POINTER(value)        ((void)0)
#define THEN_LOAD(a, b, c, d, e) ((void)0)
#endif

#define PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define UNROLL(times) PRAGMA(clang loop unroll_count(times))
#else
#define UNROLL(times) PRAGMA(GCC unroll times)
#endif

#include "gpu/vgpu/math/direct_shuffle.h"

#define NAMED_(a, b) a##_##b
#define NAMED(a, b)  NAMED_(a, b)
/* The name of a function or type for the element type at hand. */
#define TYPED(name) NAMED(name, REAL)

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* How many output channels come next where `left` are left: in as few groups as may be, of like size. */
static size_t outs_together(size_t left) {
    const size_t groups = (left + OUTS_MOST - 1) / OUTS_MOST;
    return left > groups * OUTS_SOME ? OUTS_MOST : left > groups * OUTS_FEW ? OUTS_SOME : OUTS_FEW;
}

/* How many vectors of columns come next where `left` are left. */
static size_t vectors_together(size_t left) {
    return left >= VECTORS_MOST ? VECTORS_MOST : left >= 2 ? 2 : 1;
}

/* Fetches lines that will be read, or written, soon and lie too far from those at hand to be foreseen. */
static inline __attribute__((always_inline)) void announce(const void *memory, size_t bytes, const int write) {
    for (size_t at = 0; at < bytes; at += DIRECT_LINE) {
        if (write) {
            __builtin_prefetch((const char *)memory + at, 1);
        } else {
            __builtin_prefetch((const char *)memory + at, 0);
        }
    }
}

/* As many bytes as 16 hold elements. */
typedef uint32_t piece_float;
typedef uint16_t piece_double;

/* The integers of the same size. */
typedef int32_t integer_float;
typedef int64_t integer_double;

#define REAL float
/* in this order */
#include "gpu/vgpu/math/direct_vector.inc"

#include "gpu/vgpu/math/direct_pool.inc"

#include "gpu/vgpu/math/direct_sparse.inc"

#include "gpu/vgpu/math/direct_sparse_input.inc"

#include "gpu/vgpu/math/direct_sparse_params.inc"

#include "gpu/vgpu/math/direct_spread.inc"

#include "gpu/vgpu/math/direct_correlate.inc"

#include "gpu/vgpu/math/direct_gather.inc"

#include "gpu/vgpu/math/direct_product.inc"
#undef REAL
#define REAL double
/* in this order */
#include "gpu/vgpu/math/direct_vector.inc"

#include "gpu/vgpu/math/direct_pool.inc"

#include "gpu/vgpu/math/direct_sparse.inc"

#include "gpu/vgpu/math/direct_sparse_input.inc"

#include "gpu/vgpu/math/direct_sparse_params.inc"

#include "gpu/vgpu/math/direct_spread.inc"

#include "gpu/vgpu/math/direct_correlate.inc"

#include "gpu/vgpu/math/direct_gather.inc"

#include "gpu/vgpu/math/direct_product.inc"
#undef REAL

extern const direct_isa DIRECT_ISA;
const direct_isa DIRECT_ISA = {
    .name = DIRECT_ISA_NAME,
    .description = "direct, " DIRECT_ISA_NAME,
    .vector_bytes = VECTOR_BYTES,
    .many_registers = MANY_REGISTERS,
    .outs = OUTS_MOST,
    .vectors = VECTORS_MOST,
    .forward = {forward_float, forward_double},
    .backward = {backward_float, backward_double},
    .correlate = {correlate_float, correlate_double},
    .row_sums = {row_sums_float, row_sums_double},
    .product = {product_float, product_double},
    .turn = {turn_float, turn_double},
};
