/* PyTorch's CPU generator: MT19937, its uniform floats and its randperm, bit for bit. */
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

/* Not PyTorch's. Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014): a bijective mix of
 * 64 bits. */
static inline uint64_t ls_splitmix64(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif
