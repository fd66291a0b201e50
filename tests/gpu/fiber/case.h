/* One kernel on one set of arrays, run in serial mode and in fiber mode over block sizes, grids, orders of the threads and
 * offsets of the arrays. */
#ifndef LS_TESTS_GPU_FIBER_CASE_H
#define LS_TESTS_GPU_FIBER_CASE_H

#include <stdbool.h>

#include "tests/gpu/device_values.h"

#include "fiber_kernels.h"

/* The launcher of a mode, inside a function with a parameter `fiber`. */
#define KERNEL(name) (fiber ? fiber_##name : name)

typedef enum case_role { CASE_IN, CASE_OUT, CASE_INOUT } case_role;
typedef enum case_kind { CASE_VALUE, CASE_BYTE, CASE_INT32, CASE_INT64, CASE_FLOAT, CASE_DOUBLE } case_kind;

/* Every value is a double here; CASE_VALUE is of the case's dtype in the kernel. */
typedef struct case_array {
    const char *name;
    case_role role;
    case_kind kind;
    size_t count;
    double *given;    /* what it holds before; zeros at first */
    double *expected; /* what the kernel must make of it */
    double *bound;    /* how far each element may lie from that; zeros at first: not at all */
} case_array;

enum { CASE_ARRAYS = 8 };

typedef struct fiber_case {
    const char *name;
    ls_dtype dtype;
    size_t lanes, n; /* n: the test's */
    const void *options;
    cudaError_t (*launch)(const struct fiber_case *c, bool fiber, void *const *at);
    /* The kernel adds up in an order that depends on the block: modes and block sizes agree within the bounds. Otherwise
     * both modes must give the same bits. */
    bool reduces;
    size_t arrays;
    case_array array[CASE_ARRAYS];
} fiber_case;

/* The next array of the case, count elements; freed by fiber_case_run. */
case_array *fiber_case_add(fiber_case *c, const char *name, case_role role, case_kind kind, size_t count);

/* Random values in (-1, 1), rounded to the array's kind. */
void case_fill(case_array *array, uint64_t seed);

/* Runs the case in both modes and asserts: no reports, every output written, expected values within the bounds, what is
 * only read unchanged, nothing written around the arrays, and the same bits in any order of the threads. Frees the arrays. */
void fiber_case_run(fiber_case *c);

/* v as the kernel's dtype holds it. */
static inline double rounded(ls_dtype dtype, double v) {
    return dtype == LS_FLOAT64 ? v : (double)(float)v;
}

/* The place of feature f of sample n among lanes. */
static inline size_t lane_place(size_t lanes, size_t features, size_t n, size_t f) {
    return (n / lanes * features + f) * lanes + n % lanes;
}

static inline size_t lane_count(size_t lanes, size_t batch, size_t features) {
    return (batch + lanes - 1) / lanes * lanes * features;
}

/* Calls test for float32 and float64, with 1 and 16 lanes. */
static inline void for_dtypes_lanes(void (*test)(ls_dtype dtype, size_t lanes)) {
    for (size_t d = 0; d < 2; d++) {
        test(value_dtypes[d], 1);
        test(value_dtypes[d], 16);
    }
}

#endif
