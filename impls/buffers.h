/* Rank 0's buffers to all ranks, on the control path. */
#ifndef LS_IMPLS_BUFFERS_H
#define LS_IMPLS_BUFFERS_H

#include "impls/impl.h"

/* Gives the first replica of every rank the buffers of rank 0's, as DistributedDataParallel's forward does in evaluation too.
 * By impl->sum, in which the others take part with zeros: exact. Collective; nothing for a model without buffers. */
ls_rc ls_buffers_share(const ls_impl *impl, void *self, size_t rank, size_t world);

#endif
