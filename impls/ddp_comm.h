/* A rank's NCCL communicator, made and ended without waiting for ever: it is made with blocking = 0, so that a call may go on behind
 * the scenes, and what goes on is asked for until it has ended or the time limit has passed. */
#ifndef LS_IMPLS_DDP_COMM_H
#define LS_IMPLS_DDP_COMM_H

#include "impls/impl.h"

/* Joins the communicator of id as rank, on the current device. On failure one line with NCCL's words, and nothing is left. */
ls_rc ls_ddp_comm_open(const ls_rank *rank, ncclUniqueId id, ncclComm_t *out);

/* What a call on comm that returned `status` comes to: status itself, or, while it is in progress, its end; ncclInProgress when that
 * has not come within `timeout` seconds. */
ncclResult_t ls_ddp_comm_settle(ncclComm_t comm, ncclResult_t status, double timeout);

/* Ends what is queued and frees comm; aborts it when that takes longer than `timeout` seconds. */
void ls_ddp_comm_close(ncclComm_t comm, double timeout);

#endif
