/* Numbers for drawn cases: a generator by counter, so that a case is a function of seed and index alone. */
#ifndef LS_BENCH_RANDOM_DRAW_H
#define LS_BENCH_RANDOM_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/rng.h"

typedef struct ls_draws {
    uint64_t key, next;
} ls_draws;

static inline ls_draws ls_draws_of(uint64_t seed, uint64_t index) {
    return (ls_draws){.key = ls_splitmix64(ls_splitmix64(seed) + index)};
}

/* A whole number from 0 to below count (count at least 1 and small beside 2^64, so that the remainder is as good as even). */
static inline size_t ls_draw(ls_draws *d, size_t count) {
    return (size_t)(ls_splitmix64(d->key + d->next++) % count);
}

static inline size_t ls_draw_between(ls_draws *d, size_t low, size_t high) {
    return low + ls_draw(d, high - low + 1);
}

/* True in so many of a hundred. */
static inline bool ls_draw_percent(ls_draws *d, size_t percent) {
    return ls_draw(d, 100) < percent;
}

/* An index below count, as often as its weight says. */
static inline size_t ls_draw_weighted(ls_draws *d, const size_t *weights, size_t count) {
    size_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += weights[i];
    }
    size_t at = ls_draw(d, sum);
    size_t index = 0;
    while (at >= weights[index]) {
        at -= weights[index++];
    }
    return index;
}

#endif
