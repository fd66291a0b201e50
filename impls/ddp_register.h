/* NCCL's user buffer registration (--nccl-register): the gradients lie in memory that NCCL gives and may read and write in place, without
 * copies to buffers of its own. NCCL wants a buffer registered on all ranks or on none: the ranks' fingerprints see to it. */
#ifndef LS_IMPLS_DDP_REGISTER_H
#define LS_IMPLS_DDP_REGISTER_H

#include "impls/ddp_watch.h"
#include "reference/replica.h"

/* ncclMemAlloc and ncclMemFree. */
extern const ls_device_memory ls_ddp_register_memory;

/* Registers bytes of memory, of ls_ddp_register_memory, with the communicator of watch. *handle is for close. One line and
 * LS_DEVICE_FAILED; LS_BAD_INPUT when NCCL was told by its environment not to register. */
ls_rc ls_ddp_register_open(ls_ddp_watch *watch, void *memory, size_t bytes, void **handle);

/* Waits for stream, on which the memory's collectives are, and deregisters: before the communicator is destroyed and the memory is freed.
 * NULL is well. A communicator that has failed is left alone, and not to be closed so: its abort deregisters, after it has ended the
 * collectives that still use the memory, which deregistering would wait for. */
void ls_ddp_register_close(ls_ddp_watch *watch, cudaStream_t stream, void *handle);

#endif
