/* A file read from its start to its end, plain or gzip, checked to the last byte. Its content decides which, not its name. */
#ifndef LS_REFERENCE_DATA_BYTES_H
#define LS_REFERENCE_DATA_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/base/error.h"

typedef struct ls_bytes ls_bytes;

/* Opens a regular file that is not empty. Missing, a folder, a pipe or device, unreadable, empty: one line and LS_BAD_INPUT. */
ls_rc ls_bytes_open(const char *path, ls_bytes **out);
/* The same without a look at the content: the bytes of the file as they are. For formats whose first bytes may be any. */
ls_rc ls_bytes_open_plain(const char *path, ls_bytes **out);
void ls_bytes_close(ls_bytes *bytes);

/* Reads want decoded bytes; *got is less only at the end of the content. For gzip the end is reached only when every
 * member's checksum and length have been verified (RFC 1952): a damaged or cut stream is one line and LS_BAD_INPUT. */
ls_rc ls_bytes_read(ls_bytes *bytes, void *to, size_t want, size_t *got);

/* Memory that a file's content lies in: its own, or a mapping of the file. */
typedef struct ls_content {
    uint8_t *data;
    void *mapping; /* NULL: data is to be freed */
    size_t mapped;
} ls_content;

/* The next `count` decoded bytes, *got of them where the content ends before, and behind them ls_bytes_read goes on. A plain file
 * without write permission for anybody is read once and mapped: ranks share its pages. Any other is copied, since a mapping
 * changes with the file (and one that is cut short ends its readers by SIGBUS). what: for a line about memory. Owned, after a
 * failure too: ls_content_release. */
ls_rc ls_bytes_take(ls_bytes *bytes, size_t count, const char *what, ls_content *out, size_t *got);
void ls_content_release(ls_content *content);

/* Decoded bytes read so far. */
uint64_t ls_bytes_offset(const ls_bytes *bytes);
/* The most decoded bytes that a file of this size can hold: its size when plain, else by the limit of deflate. */
uint64_t ls_bytes_capacity(const ls_bytes *bytes);

#endif
