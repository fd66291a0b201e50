/* What the files of this folder share: the state behind ls_math, and checked calls of cuBLAS. Nothing outside gpu/cuda includes
 * this. */
#ifndef LS_GPU_CUDA_MATH_H
#define LS_GPU_CUDA_MATH_H

#include <cublasLt.h>
#include <cublas_v2.h>

#include "gpu/layer_engine.h"

struct cudnnContext; /* what cudnnHandle_t points to */

/* Everything on an ls_math runs on one stream, one after the other, so that all libraries share one workspace. cuBLAS has its
 * first LS_CUBLAS_BYTES, the im2col engine, which calls cuBLAS, what comes after; cuDNN has all of it. */
struct ls_math {
    cudaStream_t stream;
    struct cudnnContext *cudnn; /* NULL: built without cuDNN */
    cublasHandle_t cublas;
    cublasLtHandle_t lt;
    void *workspace;
    size_t workspace_bytes;
};

/* cuBLAS asks for 32 MiB from compute capability 9.0 on, and 4 MiB below (cuBLAS documentation, cublasSetWorkspace). Always the
 * same, as the algorithm that it takes may depend on it. */
#define LS_CUBLAS_BYTES ((size_t)32 * 1024 * 1024)

/* LS_CUBLAS(call): as LS_CUDA of gpu/gpu.h. */
#define LS_CUBLAS(call) LS_TRY(ls_cublas_check((call), #call, __FILE__, __LINE__))
ls_rc ls_cublas_check(cublasStatus_t status, const char *call, const char *file, int line);

/* Makes the workspace at least so large. It allocates only when it must grow, which planning sees to. */
ls_rc ls_math_reserve(ls_math *math, size_t bytes);

/* cuDNN and cuBLAS count in int: one line and LS_BAD_INPUT when `value`, described by `what`, does not fit. */
ls_rc ls_math_fits_int(size_t value, const char *what);

/* Notes an algorithm that was chosen, for ls_math_description; what is noted already is not noted twice. notes.c. */
void ls_math_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* All notes in alphabetical order, joined by ", ". */
void ls_math_notes(char *text, size_t size);

/* cuDNN as the math of a device has it, and its version in words; conv.c, or conv_absent.c without cuDNN. */
ls_rc ls_cudnn_attach(ls_math *math);
void ls_cudnn_detach(ls_math *math);
void ls_cudnn_describe(char *text, size_t size);

/* Runs each of `count` candidates on the stream and waits: *best is the fastest of those whose run returned 0. False when none
 * did. Allocates and synchronises: for planning alone. measure.c. */
ls_rc ls_math_fastest(ls_math *math, size_t count, int (*run)(void *context, size_t candidate), void *context,
                      size_t *best, bool *found);

/* cuDNN and cuBLASLt read alpha and beta in the type that they compute in: double for float64, float for float32. */
typedef struct ls_scalar {
    float single;
    double wide;
} ls_scalar;
static const ls_scalar ls_one = {1.0f, 1.0};
static const ls_scalar ls_zero = {0.0f, 0.0};

static inline const void *ls_scalar_of(const ls_scalar *scalar, ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? (const void *)&scalar->wide : (const void *)&scalar->single;
}

#endif
