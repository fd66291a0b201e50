/* The mean over ranks as an operation of NCCL: each rank's gradient is multiplied by 1/W, not divided after the sum, as PyTorch's reducer
 * does; in the allreduce itself, which spares a pass over the gradients and the launch of a kernel. */
#ifndef LS_IMPLS_DDP_MEAN_H
#define LS_IMPLS_DDP_MEAN_H

#include "impls/ddp_watch.h"

typedef struct ls_ddp_mean {
    ncclRedOp_t op; /* for collectives of the watch's communicator, of the dtype */
    bool open;
} ls_ddp_mean;

/* Makes the operation that multiplies by share, rounded to dtype, and sums, with the communicator of watch. On failure one line and
 * LS_DEVICE_FAILED. */
ls_rc ls_ddp_mean_open(ls_ddp_watch *watch, ls_dtype dtype, double share, ls_ddp_mean *out);

/* Destroys it; collectives that have been enqueued with it go on. A mean that is not open is well. A communicator that has failed took its
 * operations with it. */
void ls_ddp_mean_close(ls_ddp_watch *watch, ls_ddp_mean *mean);

#endif
