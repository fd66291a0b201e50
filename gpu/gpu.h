/* The machine as the code above gpu/ sees it: ordinary CUDA and NCCL host API, real or virtual, with every call checked.
 * The build chooses whose cuda_runtime.h and nccl.h are found; nothing else differs. */
#ifndef LS_GPU_GPU_H
#define LS_GPU_GPU_H

#include <cuda_runtime.h>
#include <nccl.h>
#include <stdbool.h>

#include "gpu/base/dtype.h"
#include "gpu/base/error.h"
#include "gpu/base/mutant.h"

#ifdef LOCKSTEP_MUTANTS
/* What orders streams and threads, each call of which can be left out (see ls_mutant_drops). */
#define cudaEventRecord(...)           LS_MUTANT_DROPPABLE(cudaEventRecord, __VA_ARGS__)
#define cudaStreamWaitEvent(...)       LS_MUTANT_DROPPABLE(cudaStreamWaitEvent, __VA_ARGS__)
#define cudaStreamSynchronize(...)     LS_MUTANT_DROPPABLE(cudaStreamSynchronize, __VA_ARGS__)
#define cudaEventSynchronize(...)      LS_MUTANT_DROPPABLE(cudaEventSynchronize, __VA_ARGS__)
#define LS_MUTANT_DROPPABLE(call, ...) (ls_mutant_drops(#call, __FILE__, __LINE__) ? cudaSuccess : (call)(__VA_ARGS__))
#endif

/* LS_CUDA(call), LS_NCCL(call): run the call; when it fails print file, line, call and the library's reason (the line
 * carries rank and device, see ls_error_set_rank) and return LS_DEVICE_FAILED from the calling function. */
#define LS_CUDA(call) LS_TRY(ls_cuda_check((call), #call, __FILE__, __LINE__))
#define LS_NCCL(call) LS_TRY(ls_nccl_check((call), #call, __FILE__, __LINE__))

/* The same as values, for clean-up paths that go on after a failure. */
ls_rc ls_cuda_check(cudaError_t status, const char *call, const char *file, int line);
ls_rc ls_nccl_check(ncclResult_t status, const char *call, const char *file, int line);

/* How much is asked for is noted, so that the line of a failure says it. */
#define cudaMalloc(pointer, bytes)     ((cudaMalloc)((void **)(pointer), ls_error_note_bytes(bytes)))
#define cudaMallocHost(pointer, bytes) ((cudaMallocHost)((void **)(pointer), ls_error_note_bytes(bytes)))

/* Both note the place of the call before it is made, and LS_AT(call) does for calls that are checked elsewhere: a virtual
 * GPU names it when it finds a race (docs/races.md). On cuda nothing is noted. */
#ifndef LS_NOTE_PLACE
#define LS_NOTE_PLACE(file, line) ((void)0)
#endif
#define ls_cuda_check(status, call, file, line) (LS_NOTE_PLACE(file, line), (ls_cuda_check)(status, call, file, line))
#define ls_nccl_check(status, call, file, line) (LS_NOTE_PLACE(file, line), (ls_nccl_check)(status, call, file, line))
#define LS_AT(call)                             (LS_NOTE_PLACE(__FILE__, __LINE__), (call))

/* Whether buffers whose values are no longer needed are to be filled with NaN, so that whoever uses them too early or too late
 * is found: with LOCKSTEP_POISON=1, on vgpu also with LOCKSTEP_VGPU_GUARD=1. */
bool ls_platform_wants_poison(void);

/* Tells that the calling thread is about to read (write 0) or write pinned host memory that copies of a stream may use, where
 * the processor itself does not do it and so is not seen. LS_OK on cuda; on vgpu LS_DEVICE_FAILED, after one line, when a copy
 * that it races with is found. */
ls_rc ls_platform_host_access(const void *pointer, size_t bytes, int write);

/* Whether device memory is the process's own memory, which any library can read and write (vgpu). */
bool ls_platform_memory_is_host(void);

/* Whether collectives of several ranks can run; else why not, in words: on vgpu they cannot with LOCKSTEP_VGPU_SCHED=isolate. */
bool ls_platform_has_collectives(char *why, size_t size);

/* NCCL's name of a dtype. */
static inline ncclDataType_t ls_dtype_nccl(ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? ncclFloat64 : ncclFloat32;
}

/* "vgpu" or "cuda": the platform that this program was built for. */
const char *ls_platform_name(void);

/* One line about the platform's devices for reports and results ("16 virtual devices on 2 cores"); at most size bytes. */
ls_rc ls_platform_describe(char *text, size_t size);

/* Cores that the devices of this platform share: 0 when every device has its own hardware (cuda). With more devices in
 * use than cores a timing is oversubscribed and is not scaling. */
size_t ls_platform_shared_cores(void);

/* Number of devices. Fails with one line and LS_DEVICE_FAILED when there is no driver or no device. */
ls_rc ls_platform_device_count(size_t *count);

#endif
