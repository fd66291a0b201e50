/* What device.h, the CUDA words of a kernel in fiber mode, asks of the runtime. Nothing else includes this. */
#ifndef LS_GPU_VGPU_FIBER_RUNTIME_H
#define LS_GPU_VGPU_FIBER_RUNTIME_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The built-in variables of the running thread, in one dimension. */
typedef struct ls_fiber_index {
    unsigned x;
} ls_fiber_index;
extern ls_fiber_index threadIdx, blockIdx, blockDim, gridDim;

typedef struct ls_fiber_place {
    const char *file;
    int line;
} ls_fiber_place;

/* Runs body(arguments) as every thread of the grid. dynamic_bytes: of dynamic shared memory. */
cudaError_t ls_fiber_launch(const char *kernel, unsigned blocks, size_t dynamic_bytes, void (*body)(void *),
                            void *arguments);
unsigned ls_fiber_block_threads(void);

void ls_fiber_barrier(ls_fiber_place place);

typedef enum ls_fiber_operation {
    LS_FIBER_SHFL,
    LS_FIBER_SHFL_UP,
    LS_FIBER_SHFL_DOWN,
    LS_FIBER_SHFL_XOR,
    LS_FIBER_BALLOT,
    LS_FIBER_ANY,
    LS_FIBER_ALL,
    LS_FIBER_SYNCWARP,
} ls_fiber_operation;

/* One warp operation of the lanes in mask; value: what the lane brings (votes: its predicate). The lane's result; bytes of
 * LS_FIBER_POISON where the operation is wrong. */
uint64_t ls_fiber_warp(ls_fiber_operation operation, unsigned mask, uint64_t value, int argument, int width,
                       ls_fiber_place place);

/* Threads of a block that touched an element in the present interval between two barriers, for one kind of access: the first
 * of them, one of another warp, and for the first one's warp each lane's time (0: it did not). */
typedef struct ls_fiber_accesses {
    unsigned first, other; /* thread + 1; 0: none */
    uint32_t time[32];
    ls_fiber_place place; /* of the first */
} ls_fiber_accesses;

enum { LS_FIBER_READ, LS_FIBER_WRITE, LS_FIBER_ATOMIC, LS_FIBER_ACCESS_KINDS };

/* What is known of one element of shared memory. */
typedef struct ls_fiber_cell {
    uint64_t interval; /* of `by`; an older one has no accesses */
    uint64_t written;  /* the block that wrote it last */
    ls_fiber_accesses by[LS_FIBER_ACCESS_KINDS];
} ls_fiber_cell;

/* A shared array: count elements of `element` bytes, each with its cell. */
typedef struct ls_fiber_array {
    const char *name;
    size_t element, count;
    unsigned char *bytes;
    ls_fiber_cell *cells;
} ls_fiber_array;

/* Out of bounds: reported; a load gives poison, a store is dropped, an atomic's place is NULL. */
void ls_fiber_load(ls_fiber_array *array, size_t index, void *value, ls_fiber_place place);
void ls_fiber_store(ls_fiber_array *array, size_t index, const void *value, ls_fiber_place place);
void *ls_fiber_atomic(ls_fiber_array *array, size_t index, ls_fiber_place place);

/* The launch's dynamic shared memory as elements of `element` bytes: the same size throughout a launch. */
ls_fiber_array *ls_fiber_dynamic(size_t element, ls_fiber_place place);

#ifdef __cplusplus
}
#endif
#endif
