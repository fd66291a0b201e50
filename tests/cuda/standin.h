/* Stand-ins for what gpu/cuda calls of the CUDA runtime, cuDNN, cuBLAS and cuBLASLt: plain loops on the host, written from
 * NVIDIA's documentation. With them the suite of the layer math (tests/gpu/test_layer_math.c) checks on any machine that gpu/cuda
 * says to the libraries what it means: operands, layouts, leading dimensions, epilogues, workspace, math mode. What they cannot
 * show is how the libraries themselves round. A call that the documentation forbids ends the test. */
#ifndef LS_TESTS_CUDA_STANDIN_H
#define LS_TESTS_CUDA_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(condition)                                                          \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: misuse: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

/* What the stand-ins share with a test. */
extern struct standin {
    bool fast;                        /* the test has chosen the fast mode: reduced precision is allowed */
    size_t allocations, frees, waits; /* calls of the CUDA runtime that allocate, free or wait for the device */
    size_t heuristics;                /* calls of cublasLtMatmulAlgoGetHeuristic */
    size_t bias_epilogues;            /* products whose epilogue did the bias */
    float milliseconds;               /* that the last product takes, for events */
} standin;

#endif
