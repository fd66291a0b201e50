#include "reference/rng.h"

/* MT19937 of Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998), reference code mt19937ar.c. */
enum { MT_SIZE = 624, MT_SHIFT = 397 };

void ls_mt19937_seed(ls_mt19937 *rng, uint64_t seed) {
    rng->state[0] = (uint32_t)(seed & UINT64_C(0xffffffff));
    for (uint32_t i = 1; i < MT_SIZE; i++) {
        uint32_t previous = rng->state[i - 1];
        rng->state[i] = UINT32_C(1812433253) * (previous ^ (previous >> 30)) + i;
    }
    rng->next = MT_SIZE;
}

static void refill(ls_mt19937 *rng) {
    uint32_t *state = rng->state;
    for (size_t i = 0; i < MT_SIZE; i++) {
        uint32_t y = (state[i] & UINT32_C(0x80000000)) | (state[(i + 1) % MT_SIZE] & UINT32_C(0x7fffffff));
        state[i] = state[(i + MT_SHIFT) % MT_SIZE] ^ (y >> 1) ^ ((y & 1U) != 0 ? UINT32_C(0x9908b0df) : 0);
    }
    rng->next = 0;
}

uint32_t ls_mt19937_next(ls_mt19937 *rng) {
    if (rng->next >= MT_SIZE) {
        refill(rng);
    }
    uint32_t y = rng->state[rng->next++];
    y ^= y >> 11;
    y ^= (y << 7) & UINT32_C(0x9d2c5680);
    y ^= (y << 15) & UINT32_C(0xefc60000);
    return y ^ (y >> 18);
}

float ls_mt19937_uniform(ls_mt19937 *rng, float lo, float hi) {
    double x = (double)(ls_mt19937_next(rng) & UINT32_C(0xffffff)) * 0x1p-24;
    return (float)(x * (double)(float)(hi - lo) + (double)lo);
}

void ls_randperm(uint64_t seed, size_t count, size_t *out) {
    ls_mt19937 rng;
    ls_mt19937_seed(&rng, seed);
    for (size_t i = 0; i < count; i++) {
        out[i] = i;
    }
    for (size_t i = 0; i + 1 < count; i++) {
        size_t other = i + ls_mt19937_next(&rng) % (count - i);
        size_t swapped = out[i];
        out[i] = out[other];
        out[other] = swapped;
    }
}
