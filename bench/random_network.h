/* A drawn network: a text spec that is valid by construction. */
#ifndef LS_BENCH_RANDOM_NETWORK_H
#define LS_BENCH_RANDOM_NETWORK_H

#include "bench/random_draw.h"
#include "impls/run.h"
#include "reference/model.h"

typedef struct ls_random_network {
    char text[LS_MODEL_TEXT_SIZE];
    size_t products;    /* multiplications of one sample's forward pass */
    size_t least_plane; /* positions of a sample in the smallest batchnorm; SIZE_MAX: there is none */
} ls_random_network;

/* 1 to 10 layers over inputs of this shape that end in one value for each class. Small enough that the oracle computes a
 * sample in well under a millisecond, wide enough in front of a relu that the whole layer hardly ever dies. */
void ls_random_network_draw(ls_draws *draws, ls_shape input, size_t classes, ls_random_network *out);

#endif
