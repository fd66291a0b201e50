/* A file read whole, as it is. */
#ifndef LS_REFERENCE_PLAIN_H
#define LS_REFERENCE_PLAIN_H

#include <stddef.h>

#include "gpu/base/error.h"

/* The bytes of a regular file that is not empty; *out is owned by the caller (free). Missing, a folder, empty: one line and
 * LS_BAD_INPUT. */
ls_rc ls_plain_read(const char *path, void **out, size_t *size);

#endif
