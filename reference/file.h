/* Whole files: written beside the old one, synced and renamed; read into memory. */
#ifndef LS_REFERENCE_FILE_H
#define LS_REFERENCE_FILE_H

#include <stddef.h>

#include "gpu/base/error.h"

/* Bytes of a file in memory, and the name that messages give it. */
typedef struct ls_file_bytes {
    const char *path;
    unsigned char *bytes;
    size_t size;
} ls_file_bytes;

/* Reads a regular file that is not empty; path must outlive out. Owned: free(out->bytes). Missing, a folder, empty: one line
 * and LS_BAD_INPUT. */
ls_rc ls_file_read(const char *path, ls_file_bytes *out);

/* Checks that path can be written by ls_file_create, before any work whose result would be lost: its folder takes a new file,
 * and nothing but a regular file stands there. Leaves nothing behind. option: "--save", for the one line of LS_BAD_INPUT. */
ls_rc ls_file_check_output(const char *option, const char *path);

/* The same of a file that is appended to, which may be a pipe or a device too. Does not make it. */
ls_rc ls_file_check_append(const char *option, const char *path);

/* A file being written: a temporary one in the folder of path, or of the file that path leads to as a symbolic link. */
typedef struct ls_file_writer ls_file_writer;

/* What is there and no regular file is refused. *out: owned by the caller until ls_file_finish or ls_file_abandon. Errors: one
 * line, LS_BAD_INPUT. */
ls_rc ls_file_create(const char *path, ls_file_writer **out);
/* Failures are kept until ls_file_finish. */
void ls_file_write(ls_file_writer *writer, const void *bytes, size_t count);
/* Syncs and renames over path (a link stays); after any failure the temporary file is removed, what was at path before is unchanged, and
 * one line says so (LS_BAD_INPUT). Frees the writer. */
ls_rc ls_file_finish(ls_file_writer *writer);
/* Gives up: removes the temporary file and frees the writer. Safe on NULL. */
void ls_file_abandon(ls_file_writer *writer);

#endif
