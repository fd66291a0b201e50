/* A 64-bit hash of bytes (FNV-1a over 64-bit words, then the tail): to compare bits across ranks and runs, not for secrecy. */
#ifndef LS_REFERENCE_HASH_H
#define LS_REFERENCE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define LS_HASH_SEED UINT64_C(0xcbf29ce484222325)

/* Continues hash over count bytes; start with LS_HASH_SEED. */
uint64_t ls_hash(uint64_t hash, const void *bytes, size_t count);

#endif
