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

/* Keeps a loaded vector in a register: compilers fold a load into each multiply-add that uses it, and loads are what
 * limits loops that use a value twice. */
#if defined(__x86_64__)
#define IN_REGISTER(value) __asm__("" : "+v"(value))
#else
#define IN_REGISTER(value) ((void)0)
#endif

#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)
/* The name of a function or type for the element type at hand. */
#define TYPED(name) JOIN(name, REAL)

#define REAL float
#include "gpu/vgpu/math/direct_correlate.inc"
#include "gpu/vgpu/math/direct_gather.inc"
#undef REAL
#define REAL double
#include "gpu/vgpu/math/direct_correlate.inc"
#include "gpu/vgpu/math/direct_gather.inc"
#undef REAL

extern const direct_isa DIRECT_ISA;
const direct_isa DIRECT_ISA = {
    .name = DIRECT_ISA_NAME,
    .description = "direct, " DIRECT_ISA_NAME,
    .vector_bytes = VECTOR_BYTES,
    .gather = {gather_float, gather_double},
    .correlate = {correlate_float, correlate_double},
    .channel_sums = {channel_sums_float, channel_sums_double},
};
