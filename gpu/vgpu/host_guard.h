/* Pinned host memory under LOCKSTEP_VGPU_SCHED=check: while a copy that no host thread has waited for uses its pages, the program
 * cannot touch them. Streams use another mapping of the same memory. */
#ifndef LS_GPU_VGPU_HOST_GUARD_H
#define LS_GPU_VGPU_HOST_GUARD_H

#include "gpu/vgpu/shadow.h"

/* Memory with two mappings, all zeros; NULL when memory is out. */
void *vgpu_host_guard_allocate(size_t size);
/* False for memory that is not from there. */
bool vgpu_host_guard_free(void *memory);
/* The same byte in the mapping of the streams; pointer itself for other memory. */
void *vgpu_host_guard_alias(const void *pointer);

/* A copy uses the range: closes the pages on which nothing else lies. False when host memory is out. */
bool vgpu_host_guard_use(const vgpu_access *access, const vgpu_use *use);
/* Opens what the clock has waited for. */
void vgpu_host_guard_release(const vgpu_clock *clock);
/* Prints the line about an access to closed pages; false when address is not in one. */
bool vgpu_host_guard_explain(const void *address);

#endif
