/* PyTorch's CPU generator: MT19937, its uniform floats and its randperm, bit for bit; and a mix for numbers of our own. */
#ifndef LS_REFERENCE_RNG_H
#define LS_REFERENCE_RNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct ls_mt19937 {
    uint32_t state[624];
    size_t next;
} ls_mt19937;

/* init_genrand(seed & 0xffffffff), as torch.Generator.manual_seed. */
void ls_mt19937_seed(ls_mt19937 *rng, uint64_t seed);
uint32_t ls_mt19937_next(ls_mt19937 *rng);

/* torch's float32 uniform_(lo, hi): x = (next & 0xffffff)*2^-24 in double, (float)(x*(double)(float)(hi-lo) + lo). */
float ls_mt19937_uniform(ls_mt19937 *rng, float lo, float hi);

/* torch.randperm(count, generator seeded with seed) into out[count]. count < 2^32. */
void ls_randperm(uint64_t seed, size_t count, size_t *out);

/* Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014): a bijective mix of 64 bits. Of a
 * counter it is a generator whose n-th number needs none before it. */
uint64_t ls_splitmix64(uint64_t x);

#endif
