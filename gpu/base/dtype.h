/* The floating-point types that every kernel, layer and implementation serves. */
#ifndef LS_GPU_BASE_DTYPE_H
#define LS_GPU_BASE_DTYPE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_dtype { LS_FLOAT32 = 0, LS_FLOAT64 = 1 } ls_dtype;

/* Bytes of one element. */
static inline size_t ls_dtype_size(ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? sizeof(double) : sizeof(float);
}

/* "float32" or "float64". */
static inline const char *ls_dtype_name(ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? "float64" : "float32";
}

#ifdef __cplusplus
}
#endif
#endif
