/* Device memory under LOCKSTEP_VGPU_GUARD=1 and LOCKSTEP_VGPU_SCHED=isolate: allocations on pages of their own. With the guard
 * there is a closed page at both ends, an allocation ends at the second one (up to the 256 bytes of alignment), memory that is
 * not allocated is closed, and what begins or ends to be allocated is filled with 0xFF, which is NaN in every format. */
#ifndef LS_GPU_VGPU_GUARD_H
#define LS_GPU_VGPU_GUARD_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes to take for an allocation of size bytes, and where in them it begins. */
size_t vgpu_guard_whole(size_t size, size_t *lead);
/* A device's memory has been mapped: closes it. False when the system refuses. */
bool vgpu_guard_map(char *base, size_t size);
/* The block of an allocation begins or ends. At its end bytes around it that were written are a finding. */
bool vgpu_guard_begin(char *block, size_t size);
cudaError_t vgpu_guard_end(char *block, size_t size, int device);
/* Prints the line about an access to a device's memory; false when address is in none. */
bool vgpu_guard_explain(const void *address);

#endif
