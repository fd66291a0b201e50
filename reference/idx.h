/* IDX files (MNIST's format), plain or gzip. */
#ifndef LS_REFERENCE_IDX_H
#define LS_REFERENCE_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/base/error.h"
#include "reference/data/bytes.h"

enum { LS_IDX_MAX_DIMS = 4 };

/* A file of unsigned bytes (IDX type 8), owned by the caller (ls_content_release). */
typedef struct ls_idx {
    size_t dims;
    size_t shape[LS_IDX_MAX_DIMS];
    size_t count; /* product of shape */
    ls_content content;
} ls_idx;

/* Reads a whole file and checks it completely; expected_dims: 3 for images, 1 for labels. Missing, empty, truncated,
 * HTML instead of gzip, wrong magic, bad checksum, absurd size, bytes after the end: one line that says file, offset,
 * expected, found, and LS_BAD_INPUT. */
ls_rc ls_idx_read(const char *path, size_t expected_dims, ls_idx *out);
/* The same of a file of low to high dimensions. */
ls_rc ls_idx_read_between(const char *path, size_t low, size_t high, ls_idx *out);
/* The header alone, checked against the size of the file; its content stays empty. */
ls_rc ls_idx_read_header(const char *path, size_t low, size_t high, ls_idx *out);

#endif
