/* NCCL's user buffers (ncclMemAlloc, ncclCommRegister), which version 2.19 brought: built with an earlier one, the calls here return
 * ncclInvalidUsage. */
#ifndef LS_GPU_NCCL_REGISTER_H
#define LS_GPU_NCCL_REGISTER_H

#include "gpu/gpu.h"

/* Whether NCCL has them, when this was built and now; else why not, in words. */
bool ls_nccl_register_available(char *why, size_t size);
/* The same for versions as NCCL writes them (22809): of the header that was built with, of the library that runs. */
bool ls_nccl_register_versions(int built, int found, char *why, size_t size);

/* ncclMemAlloc, ncclMemFree, ncclCommRegister and ncclCommDeregister. */
ncclResult_t ls_nccl_mem_alloc(void **pointer, size_t bytes);
ncclResult_t ls_nccl_mem_free(void *pointer);
ncclResult_t ls_nccl_register(ncclComm_t comm, void *memory, size_t bytes, void **handle);
ncclResult_t ls_nccl_deregister(ncclComm_t comm, void *handle);

#endif
