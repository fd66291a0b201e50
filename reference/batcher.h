/* Batches for one rank: the sampler's order cut into batches and gathered into pinned host memory, by loader threads ahead of
 * time or when they are asked for. The same batches either way. */
#ifndef LS_REFERENCE_BATCHER_H
#define LS_REFERENCE_BATCHER_H

#include "reference/dataset.h"
#include "reference/replica.h"
#include "reference/sampler.h"

typedef struct ls_batcher ls_batcher;

/* dataset must outlive the batcher. batch: samples a step of this rank (the last step of an epoch may have fewer). A batch
 * larger than the shard is refused with one line and LS_BAD_INPUT: ranks ask for the shard then (impls/rank.c). */
ls_rc ls_batcher_open(const ls_dataset *dataset, const ls_sampler *sampler, size_t batch, ls_batcher **out);
void ls_batcher_close(ls_batcher *batcher);

enum { LS_BATCHER_MAX_THREADS = 16 };

/* Starts loader threads that make batches ahead of ls_batcher_get: threads + 1 more than the two that the caller holds. Once,
 * right after open. The current device is made that of the loaders, too. 0 threads: nothing. */
ls_rc ls_batcher_start(ls_batcher *batcher, size_t threads);
/* Seconds that the calls of ls_batcher_get have waited for a batch to be made since open, but for those that the device was
 * still reading the batches before it: how long training has waited for its input. */
double ls_batcher_seconds(const ls_batcher *batcher);

/* Steps of an epoch, the same on every rank: ceil(length/batch). */
size_t ls_batcher_steps(const ls_batcher *batcher);
/* Starts an epoch: set_epoch of DistributedSampler. Batches made ahead of an older one are dropped. */
ls_rc ls_batcher_set_epoch(ls_batcher *batcher, size_t epoch);
/* The batch of a step of the epoch; steps in order come from what the loaders have made. Valid until the second next call: the caller has synchronised with the device at least
 * once in between, or calls ls_batcher_used with an event that is recorded after the copy to the device. */
ls_rc ls_batcher_get(ls_batcher *batcher, size_t step, ls_batch *out);
/* The copies that read the batch last given are enqueued on stream; the batcher waits for them before it overwrites. */
ls_rc ls_batcher_used(ls_batcher *batcher, cudaStream_t stream);

#endif
