/* Products of matrices in plain blocked loops, as the second engine wants them: right, in a fixed order, and nothing in common
 * with the direct kernels. The middle loops go along rows, so that they vectorise. */
#include "gpu/layer_engine.h"
#include "gpu/vgpu/internal.h"
#include "gpu/vgpu/math/plan.h"

typedef struct gemm_call {
    ls_gemm gemm;
    ls_dtype dtype;
} gemm_call;

enum { TILE = 512, PARTS = 16 };

/* b row-major: each product of an element of a and a row of b goes to a tile of c. */
#define DEFINE_BY_ROWS(T)                                                                     \
    static void by_rows_##T(const ls_gemm *g) {                                               \
        const T *a = g->a, *b = g->b;                                                         \
        for (size_t first = 0; first < g->columns; first += TILE) {                           \
            size_t width = g->columns - first < TILE ? g->columns - first : TILE;             \
            for (size_t row = 0; row < g->rows; row++) {                                      \
                T *restrict c = (T *)g->c + row * g->columns + first;                         \
                for (size_t j = 0; j < width && !g->accumulate; j++) {                        \
                    c[j] = 0;                                                                 \
                }                                                                             \
                for (size_t i = 0; i < g->inner; i++) {                                       \
                    T factor = g->transpose_a ? a[i * g->rows + row] : a[row * g->inner + i]; \
                    const T *from = b + i * g->columns + first;                               \
                    for (size_t j = 0; j < width; j++) {                                      \
                        c[j] += factor * from[j];                                             \
                    }                                                                         \
                }                                                                             \
            }                                                                                 \
        }                                                                                     \
    }

/* b transposed: an element of c is the product of two rows, in PARTS sums side by side that are added at the end. */
#define DEFINE_BY_PRODUCTS(T)                                                                        \
    static T product_##T(const T *a, size_t step, const T *b, size_t inner) {                        \
        T parts[PARTS] = {0};                                                                        \
        size_t whole = inner / PARTS * PARTS;                                                        \
        for (size_t i = 0; i < whole; i += PARTS) {                                                  \
            for (size_t k = 0; k < PARTS; k++) {                                                     \
                parts[k] += a[(i + k) * step] * b[i + k];                                            \
            }                                                                                        \
        }                                                                                            \
        for (size_t i = whole; i < inner; i++) {                                                     \
            parts[i - whole] += a[i * step] * b[i];                                                  \
        }                                                                                            \
        T sum = 0;                                                                                   \
        for (size_t k = 0; k < PARTS; k++) {                                                         \
            sum += parts[k];                                                                         \
        }                                                                                            \
        return sum;                                                                                  \
    }                                                                                                \
    static void by_products_##T(const ls_gemm *g) {                                                  \
        const T *a = g->a, *b = g->b;                                                                \
        T *c = g->c;                                                                                 \
        for (size_t row = 0; row < g->rows; row++) {                                                 \
            const T *from = g->transpose_a ? a + row : a + row * g->inner;                           \
            for (size_t column = 0; column < g->columns; column++) {                                 \
                T sum = g->transpose_a ? product_##T(from, g->rows, b + column * g->inner, g->inner) \
                                       : product_##T(from, 1, b + column * g->inner, g->inner);      \
                T *at = c + row * g->columns + column;                                               \
                *at = g->accumulate ? *at + sum : sum;                                               \
            }                                                                                        \
        }                                                                                            \
    }

DEFINE_BY_ROWS(float)
DEFINE_BY_ROWS(double)
DEFINE_BY_PRODUCTS(float)
DEFINE_BY_PRODUCTS(double)

static cudaError_t run_gemm(void *payload) {
    const gemm_call *call = payload;
    bool wide = call->dtype == LS_FLOAT64;
    if (call->gemm.transpose_b) {
        (wide ? by_products_double : by_products_float)(&call->gemm);
    } else {
        (wide ? by_rows_double : by_rows_float)(&call->gemm);
    }
    return cudaSuccess;
}

/* The place noted for diagnostics stays the caller's. */
ls_rc ls_math_gemm(ls_math *math, ls_dtype dtype, const ls_gemm *gemm) {
    size_t element = ls_dtype_size(dtype);
    size_t c_bytes = gemm->rows * gemm->columns * element;
    LS_ACCESS(LS_READS(gemm->a, gemm->rows * gemm->inner * element),
              LS_READS(gemm->b, gemm->inner * gemm->columns * element),
              LS_READS(gemm->accumulate ? gemm->c : NULL, c_bytes), LS_WRITES(gemm->c, c_bytes));
    gemm_call call = {.gemm = *gemm, .dtype = dtype};
    cudaError_t status = vgpu_submit(math->stream, "gemm", run_gemm, &call, sizeof call);
    return (ls_cuda_check)(status, "gemm", __FILE__, __LINE__);
}
