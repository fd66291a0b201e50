/* DistributedSampler: which samples a rank takes in an epoch, exactly PyTorch's order. */
#ifndef LS_REFERENCE_SAMPLER_H
#define LS_REFERENCE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_sampler {
    size_t count; /* samples of the data set */
    size_t world, rank;
    bool shuffle;
    bool drop_last;
    uint64_t seed;
} ls_sampler;

/* Samples of every rank in an epoch: ceil(count/world), or floor with drop_last. */
size_t ls_sampler_length(const ls_sampler *sampler);

/* Writes the ls_sampler_length indices of this rank in this epoch. Shuffles with seed + epoch. Returns 0, or -1 when memory
 * is short. */
int ls_sampler_order(const ls_sampler *sampler, size_t epoch, size_t *out);

#endif
