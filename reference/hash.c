#include "reference/hash.h"

#include <string.h>

uint64_t ls_hash(uint64_t hash, const void *bytes, size_t count) {
    static const uint64_t prime = UINT64_C(0x100000001b3);
    const unsigned char *at = bytes;
    while (count >= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * prime;
        hash ^= hash >> 32; /* FNV over whole words leaves the high bits of a word in the high bits of the hash only */
        at += sizeof word;
        count -= sizeof word;
    }
    while (count > 0) {
        hash = (hash ^ *at) * prime;
        at++;
        count--;
    }
    return hash;
}
