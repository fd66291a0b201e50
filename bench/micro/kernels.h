/* The shared kernels as benchmarks: what each is launched with and what it moves. */
#ifndef LS_BENCH_MICRO_KERNELS_H
#define LS_BENCH_MICRO_KERNELS_H

#include "gpu/kernels/kernels.h"

/* What a launch works on. Every pointer is device memory with room for `count` elements of its kind; values are small positive
 * numbers that no number of launches takes out of the range of normal numbers. */
typedef struct ls_micro_operands {
    cudaStream_t stream;
    ls_dtype dtype;
    size_t lanes, batch, channels, plane, side; /* plane = side*side positions of a channel */
    size_t classes;
    size_t count;            /* values of an activation: batch*channels*plane, or batch*classes */
    void *a, *b, *c, *d, *e; /* of dtype */
    uint8_t *bytes;          /* pixels, indices, masks */
    float *floats;
    int32_t *labels;
    double *statistics;    /* 2 a channel and some more */
    int64_t *tracked;      /* one */
    const double *one_sum; /* so large that ls_kernel_rmse multiplies by 1 with denominator 1 */
} ls_micro_operands;

/* Shapes: an activation of 64 samples in planes of 24x24, or rows of 10 classes. */
typedef enum ls_micro_shape { LS_MICRO_ACTIVATION, LS_MICRO_CLASSES } ls_micro_shape;

typedef struct ls_micro_kernel {
    const char *name; /* the launcher's without ls_kernel_ */
    ls_micro_shape shape;
    /* Memory traffic that nothing avoids, and arithmetic, for one of `count`: elements of dtype and bytes read and written
     * once, and operations (a comparison, a square root or an exponential counts as one). */
    double values, bytes, operations;
    cudaError_t (*launch)(const ls_micro_operands *o);
} ls_micro_kernel;

/* Ended by a NULL name. A new kernel is a line, and its launch. */
extern const ls_micro_kernel ls_micro_kernels[];

#endif
