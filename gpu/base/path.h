/* Files that a user names: what stands there, and what a name means. */
#ifndef LS_GPU_BASE_PATH_H
#define LS_GPU_BASE_PATH_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "gpu/base/error.h"

/* Opens a regular file for reading, without waiting for anybody: a pipe, a device, a folder and what is not there are one line
 * and LS_BAD_INPUT. info: of the file. *out: its descriptor, to be closed by the caller; -1 after a failure. */
ls_rc ls_path_open_regular(const char *path, int *out, struct stat *info);

/* The file that renaming over path has to replace, into target: path itself, or where its symbolic links lead, so that they
 * stay; it need not be there. NULL, or what stands in the way, for a message ("a folder"): only a regular file is replaced, since
 * a rename would put one in place of a pipe or a device. */
const char *ls_path_target(const char *path, char target[PATH_MAX]);

/* Whether two paths name one file, which need not be there yet: by device and inode, else by the folder and the name in it. */
bool ls_path_same(const char *a, const char *b);

/* fsync, except that a pipe, a device or a file system that knows no such thing is no failure. 0, or -1 with errno. */
int ls_path_sync(int file);

#endif
