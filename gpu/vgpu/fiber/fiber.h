/* Fiber mode: the kernels' CUDA code on the CPU at real block sizes, for tests. gpu/kernels/kernel.h compiles with LS_FIBER
 * defined what nvcc compiles; each CUDA thread is a fiber, so that __syncthreads and warp operations wait as on a device.
 *
 * A launch runs at once in the calling thread, whatever its stream; its pointers may be any memory of the process. Blocks
 * run one after another. What the runtime sees wrong it keeps as reports, a line each:
 *   - barrier divergence: threads of a block end or wait elsewhere while others wait at a __syncthreads;
 *   - warp operations whose lanes never come, or that read from a lane that takes no part;
 *   - shared memory: accesses out of bounds, reads of what the block has not written, and races: two threads touch an
 *     element between two barriers, at least one writes it, not both atomically, and no __syncwarp orders them;
 *   - elements of a registered output that the launch leaves unwritten.
 * A launch with a report returns cudaErrorLaunchFailure. Used by one thread at a time.
 *
 * Two __syncthreads count as one place when file and line agree. Races are seen whatever the order in which threads ran. */
#ifndef LS_GPU_VGPU_FIBER_FIBER_H
#define LS_GPU_VGPU_FIBER_FIBER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_FIBER_MAX_THREADS = 1024 }; /* of a block, as on every device */

typedef struct ls_fiber_config {
    unsigned block; /* threads of a block, 1 to LS_FIBER_MAX_THREADS */
    unsigned grid;  /* at most so many blocks a launch; 0: as many as it asks for */
    unsigned order; /* 0: threads start and go on in order; else in an order drawn from this seed */
    unsigned
        drop_barrier; /* k: the k-th __syncthreads of every thread is skipped, as if it were not written; 0: none */
} ls_fiber_config;

/* For the launches that follow. At the start: 256 threads a block, all else 0. */
void ls_fiber_configure(ls_fiber_config config);

/* The next launch must write all count elements of `element` bytes of memory: they are filled with a pattern now
 * (LS_FIBER_POISON in every byte), and those that still have it after the launch are reported. At most
 * LS_FIBER_MAX_OUTPUTS a launch, more are refused with a report. name must live until then. */
enum { LS_FIBER_POISON = 0xA5, LS_FIBER_MAX_OUTPUTS = 8 };
void ls_fiber_output(const char *name, void *memory, size_t element, size_t count);

/* What was reported since the last clear: the same fault of a kernel at the same place is one report. A report's text lives
 * until the next clear; index must be below ls_fiber_reports(). */
size_t ls_fiber_reports(void);
const char *ls_fiber_report(size_t index);

/* Forgets all reports, and the outputs of a launch that did not happen. */
void ls_fiber_clear(void);

#ifdef __cplusplus
}
#endif
#endif
