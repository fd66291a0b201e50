/* torch.chunk's rule, by which DataParallel scatters a batch over devices. */
#ifndef LS_IMPLS_CHUNK_H
#define LS_IMPLS_CHUNK_H

#include <stddef.h>

/* Samples of each chunk but the last: ceil(count/parts). */
static inline size_t ls_chunk_size(size_t count, size_t parts) {
    return count / parts + (count % parts != 0);
}

/* Chunk `index` of `parts`: its first sample into *first, its size returned. Chunks have ls_chunk_size samples, the last one
 * what is left; so fewer than `parts` may be used, and the others have 0. (torch.chunk; 5 in 4 parts: 2, 2, 1, 0.) */
static inline size_t ls_chunk(size_t count, size_t parts, size_t index, size_t *first) {
    size_t size = ls_chunk_size(count, parts);
    *first = index * size < count ? index * size : count;
    return count - *first < size ? count - *first : size;
}

#endif
