/* Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 3.3): a value computed in double together
 * with a bound on how far the same formula, each operation rounded with unit roundoff `unit`, may lie from the exact result.
 * A test writes a kernel's formula with these and so derives the bound operation by operation. */
#ifndef LS_TESTS_GPU_FIBER_RUNNING_ERROR_H
#define LS_TESTS_GPU_FIBER_RUNNING_ERROR_H

#include <math.h>
#include <stddef.h>

typedef struct num {
    double v, e;
} num;

static double unit; /* of the arithmetic that is followed: set before each formula */

/* Rounds the exact result v of operands that may be off, by e so far. */
static inline num num_rounded(double v, double e) {
    return (num){v, e + unit * (fabs(v) + e)};
}

/* A number that the arithmetic holds exactly. */
static inline num num_exact(double v) {
    return (num){v, 0};
}

static inline num num_add(num a, num b) {
    return num_rounded(a.v + b.v, a.e + b.e);
}

static inline num num_sub(num a, num b) {
    return num_rounded(a.v - b.v, a.e + b.e);
}

static inline num num_mul(num a, num b) {
    return num_rounded(a.v * b.v, fabs(a.v) * b.e + fabs(b.v) * a.e + a.e * b.e);
}

static inline num num_div(num a, num b) {
    double v = a.v / b.v;
    return num_rounded(v, (a.e + fabs(v) * b.e) / (fabs(b.v) - b.e));
}

/* |sqrt(x + d) - sqrt(x)| <= sqrt(|d|) and, for x > 0, <= |d|/sqrt(x). */
static inline num num_sqrt(num a) {
    double v = sqrt(a.v);
    double off = v > 0 ? fmin(sqrt(a.e), a.e / v) : sqrt(a.e);
    return num_rounded(v, off);
}

/* The library's exp and log are within 2 units in the last place, 4 unit of the result, of the true ones (glibc manual,
 * "Known Maximum Errors in Math Functions": 1; CUDA C++ Programming Guide, "Mathematical Functions": 2). */
static inline num num_exp(num a) {
    double v = exp(a.v);
    double e = v * expm1(a.e);
    return (num){v, e + 4 * unit * (v + e)};
}

static inline num num_log(num a) {
    double v = log(a.v);
    double e = a.e / (a.v - a.e);
    return (num){v, e + 4 * unit * (fabs(v) + e)};
}

/* The sum of count values in any order: each goes through at most count - 1 additions. */
static inline num num_sum(const num *values, size_t count) {
    double v = 0, e = 0, magnitude = 0;
    for (size_t i = 0; i < count; i++) {
        v += values[i].v;
        e += values[i].e;
        magnitude += fabs(values[i].v) + values[i].e;
    }
    double n = (double)count * unit;
    return (num){v, e + n / (1 - n) * magnitude};
}

/* What |computed - a.v| may be: a.v itself was computed so in double, and the smallest normal number of float32 (or float64)
 * stands for what underflow loses, in any of 16 operations. */
static inline double num_bound(num a) {
    return a.e * (1 + 0x1p-53 / unit) + 16 * (unit > 0x1p-50 ? 0x1p-126 : 0x1p-1022);
}

#endif
