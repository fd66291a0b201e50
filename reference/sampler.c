#include "reference/sampler.h"

#include <stdlib.h>

#include "gpu/base/mutant.h"
#include "reference/rng.h"

size_t ls_sampler_length(const ls_sampler *sampler) {
    if (sampler->drop_last) {
        return sampler->count / sampler->world;
    }
    return sampler->count / sampler->world + (sampler->count % sampler->world != 0 ? 1 : 0);
}

int ls_sampler_order(const ls_sampler *sampler, size_t epoch, size_t *out) {
    size_t length = ls_sampler_length(sampler);
    if (length == 0) {
        return 0;
    }
    size_t *order = NULL;
    if (sampler->shuffle) {
        order = calloc(sampler->count, sizeof *order);
        if (order == NULL) {
            return -1;
        }
        ls_randperm(sampler->seed + epoch, sampler->count, order);
    }
    for (size_t i = 0; i < length; i++) {
        /* Without drop_last the list is padded by repeating it from its start. */
        size_t position = (sampler->rank + i * sampler->world) % sampler->count;
        if (LS_MUTANT(shards_overlap) && i == 0 && sampler->rank > 0) {
            position--;
        }
        if (LS_MUTANT(padding_repeats_last) && sampler->rank + i * sampler->world >= sampler->count) {
            position = sampler->count - 1;
        }
        out[i] = order != NULL ? order[position] : position;
    }
    free(order);
    return 0;
}
