/* Kernels for tests of fiber mode: each sound in one variant and with one fault in others. block*grid threads, or as said. */
#ifndef LS_TESTS_GPU_FIBER_SAMPLES_H
#define LS_TESTS_GPU_FIBER_SAMPLES_H

#include <cuda_runtime.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sample_variant {
    SAMPLE_SOUND,
    SAMPLE_FAULT,
    SAMPLE_OTHER_FAULT,
};

/* out[block] = the sum of the block's values of in, as a tree in dynamic shared memory of `elements` floats; block a power of
 * two. FAULT: no barrier in the loop; OTHER_FAULT: the upper half of the threads leaves before the loop. */
cudaError_t sample_tree_sum(enum sample_variant variant, unsigned blocks, size_t elements, const float *in, float *out);

/* out[t] = in[t] by way of static shared memory of 64 elements, in reverse within the block; block 64. FAULT: reads one
 * element further; OTHER_FAULT: thread 5 writes nothing. */
cudaError_t sample_reverse(enum sample_variant variant, unsigned blocks, const float *in, float *out);

/* A barrier that all reach. FAULT: thread 3 ends before it; OTHER_FAULT: odd threads wait at another. */
cudaError_t sample_barrier(enum sample_variant variant);

/* out[t] = in[t], for t below count. FAULT: the last is left out. */
cudaError_t sample_copy(enum sample_variant variant, size_t count, const float *in, float *out);

/* out[warp] = the sum of the warp's values by shuffles, the last warp partial. FAULT: the mask and the steps of a full
 * warp whatever the block; OTHER_FAULT: lane 2 waits at the block's barrier instead. */
cudaError_t sample_warp_sum(enum sample_variant variant, const float *in, float *out);

/* The same for one warp by way of shared memory and __syncwarp. FAULT: without __syncwarp. */
cudaError_t sample_syncwarp_sum(enum sample_variant variant, const float *in, float *out);

/* counts[value] of the block's values below 4, by atomics in shared memory and then in counts. FAULT: without the barrier
 * before the shared counts are read; OTHER_FAULT: plain additions. */
cudaError_t sample_histogram(enum sample_variant variant, unsigned blocks, const unsigned *values, unsigned *counts);

/* One warp of the block's threads: what each operation gives for lane and lane^5 odd; out: SAMPLE_OPERATIONS values a
 * thread. FAULT: lane 1 leaves itself out of the mask. */
enum { SAMPLE_OPERATIONS = 10 };
cudaError_t sample_operations(enum sample_variant variant, double *out);

#ifdef __cplusplus
}
#endif
#endif
