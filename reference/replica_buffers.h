/* What a replica keeps beside its parameters: batchnorm's buffers, and what names the masks of dropout. Part of the replica;
 * apart from reference/replica.h because few need it. */
#ifndef LS_REFERENCE_REPLICA_BUFFERS_H
#define LS_REFERENCE_REPLICA_BUFFERS_H

#include "reference/replica.h"

/* Training (after open) or evaluation: dropout passes everything through, batchnorm normalises by its running statistics
 * and leaves them alone. Returns what it was. ls_replica_evaluate evaluates, whatever is set here. */
bool ls_replica_set_training(ls_replica *replica, bool training);

/* What dropout's masks follow from, with the step. Both are 0 after open; each rank, and each device of DataParallel, needs
 * a number of its own. rank below 2^26. */
void ls_replica_set_masks(ls_replica *replica, uint64_t seed, size_t rank);
/* Forward passes in training since open: the step of the next one's masks. Set it when a run goes on (masks repeat after
 * 2^32 steps). */
uint64_t ls_replica_step(const ls_replica *replica);
void ls_replica_set_step(ls_replica *replica, uint64_t step);

/* Device pointers to the buffers of the model (ls_model.buffers): [buffer_count] of dtype, [tracked_count]. NULL without. */
void *ls_replica_buffers(ls_replica *replica);
int64_t *ls_replica_tracked(ls_replica *replica);

/* Between the buffers and the host; either pointer may be NULL: left out. They wait for the stream. */
ls_rc ls_replica_read_buffers(ls_replica *replica, void *values, int64_t *tracked);
ls_rc ls_replica_write_buffers(ls_replica *replica, const void *values, const int64_t *tracked);

#endif
