#include "reference/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/base/path.h"

enum { TRIES = 100 };

struct ls_file_writer {
    char path[PATH_MAX];   /* as the user names it */
    char target[PATH_MAX]; /* where its links lead */
    char temporary[PATH_MAX];
    FILE *file;
    int reason; /* errno of the first failure; 0: none */
};

static ls_rc read_all(int file, const char *path, ls_file_bytes *out) {
    size_t got = 0;
    while (got < out->size) {
        ssize_t more = read(file, out->bytes + got, out->size - got);
        if (more < 0 && errno == EINTR) {
            continue;
        }
        if (more < 0) {
            return ls_fail(LS_BAD_INPUT, "%s: byte %zu: cannot be read: %s", path, got, strerror(errno));
        }
        if (more == 0) {
            return ls_fail(LS_BAD_INPUT, "%s: expected %zu bytes, found the end after %zu", path, out->size, got);
        }
        got += (size_t)more;
    }
    return LS_OK;
}

ls_rc ls_file_read(const char *path, ls_file_bytes *out) {
    *out = (ls_file_bytes){0};
    int file;
    struct stat info;
    LS_TRY(ls_path_open_regular(path, &file, &info));
    ls_rc rc = LS_OK;
    if (info.st_size == 0) {
        rc = ls_fail(LS_BAD_INPUT, "%s: byte 0: expected data, found an empty file", path);
    } else {
        *out = (ls_file_bytes){.path = path, .size = (size_t)info.st_size};
        out->bytes = malloc(out->size); /* not ls_calloc: the pages need no zeros */
        rc = out->bytes != NULL ? read_all(file, path, out)
                                : ls_fail(LS_DEVICE_FAILED, "%s: out of memory for its %zu bytes", path, out->size);
    }
    close(file);
    if (rc != LS_OK) {
        free(out->bytes);
        out->bytes = NULL;
    }
    return rc;
}

/* Creates a new file beside path, whose name goes to temporary (PATH_MAX bytes). Returns its descriptor, or -1 with errno. */
static int create_temporary(const char *path, char *temporary) {
    for (int attempt = 0; attempt < TRIES; attempt++) {
        int used = snprintf(temporary, PATH_MAX, "%s.%ld-%d.tmp", path, (long)getpid(), attempt);
        if (used < 0 || used >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0 || errno != EEXIST) {
            return file;
        }
    }
    return -1;
}

/* The folder of path, into folder (PATH_MAX bytes). */
static void folder_of(const char *path, char *folder) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        memcpy(folder, ".", 2);
    } else {
        int length = slash == path ? 1 : (int)(slash - path);
        snprintf(folder, PATH_MAX, "%.*s", length, path);
    }
}

ls_rc ls_file_check_output(const char *option, const char *path) {
    char target[PATH_MAX], temporary[PATH_MAX];
    const char *found = ls_path_target(path, target);
    if (found != NULL) {
        return ls_fail(LS_BAD_INPUT, "%s %s: expected a file, found %s", option, path, found);
    }
    int file = create_temporary(target, temporary); /* only this shows it: read-only mounts, quotas, root */
    if (file < 0) {
        int reason = errno;
        char folder[PATH_MAX];
        folder_of(target, folder);
        return ls_fail(LS_BAD_INPUT, "%s %s: expected a folder that can be written, found %s: %s", option, path, folder,
                       strerror(reason));
    }
    close(file);
    if (unlink(temporary) != 0) {
        return ls_fail(LS_BAD_INPUT, "%s %s: cannot remove %s: %s", option, path, temporary, strerror(errno));
    }
    return LS_OK;
}

ls_rc ls_file_check_append(const char *option, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) {
        return ls_file_check_output(option, path);
    }
    if (S_ISDIR(info.st_mode)) {
        return ls_fail(LS_BAD_INPUT, "%s %s: expected a file, found a folder", option, path);
    }
    if (access(path, W_OK) != 0) { /* not opened: a pipe would wait for its reader, and then end for it */
        return ls_fail(LS_BAD_INPUT, "%s %s: cannot be written: %s", option, path, strerror(errno));
    }
    return LS_OK;
}

static ls_rc fail_write(const char *path, int reason) {
    return ls_fail(LS_BAD_INPUT, "%s: cannot be written: %s; what was there before is unchanged", path,
                   strerror(reason));
}

ls_rc ls_file_create(const char *path, ls_file_writer **out) {
    *out = NULL;
    ls_file_writer *writer = ls_calloc(1, sizeof *writer, "a file to be written");
    if (writer == NULL) {
        return LS_DEVICE_FAILED;
    }
    const char *found = ls_path_target(path, writer->target);
    if (found != NULL) {
        free(writer);
        return ls_fail(LS_BAD_INPUT, "%s: expected a file, found %s; it is unchanged", path, found);
    }
    snprintf(writer->path, sizeof writer->path, "%s", path); /* ls_path_target has found it short enough */
    int file = create_temporary(writer->target, writer->temporary);
    if (file < 0) {
        int reason = errno;
        free(writer);
        return fail_write(path, reason);
    }
    writer->file = fdopen(file, "wb");
    if (writer->file == NULL) {
        int reason = errno;
        close(file);
        unlink(writer->temporary);
        free(writer);
        return fail_write(path, reason);
    }
    *out = writer;
    return LS_OK;
}

void ls_file_write(ls_file_writer *writer, const void *bytes, size_t count) {
    if (writer->reason == 0 && count > 0 && fwrite(bytes, 1, count, writer->file) != count) {
        writer->reason = errno != 0 ? errno : EIO;
    }
}

/* Makes the new name last: without this a crash may bring the old folder back. */
static void sync_folder(const char *path) {
    char folder[PATH_MAX];
    folder_of(path, folder);
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file >= 0) {
        if (ls_path_sync(file) != 0) {
            ls_notice("%s: saved, but the folder could not be synced: %s", path, strerror(errno));
        }
        close(file);
    }
}

ls_rc ls_file_finish(ls_file_writer *writer) {
    int reason = writer->reason;
    if (reason == 0 && (fflush(writer->file) != 0 || ls_path_sync(fileno(writer->file)) != 0)) {
        reason = errno;
    }
    if (fclose(writer->file) != 0 && reason == 0) {
        reason = errno;
    }
    if (reason == 0 && rename(writer->temporary, writer->target) != 0) {
        reason = errno;
    }
    ls_rc rc = LS_OK;
    if (reason != 0) {
        unlink(writer->temporary);
        rc = fail_write(writer->path, reason);
    } else {
        sync_folder(writer->target);
    }
    free(writer);
    return rc;
}

void ls_file_abandon(ls_file_writer *writer) {
    if (writer == NULL) {
        return;
    }
    fclose(writer->file);
    unlink(writer->temporary);
    free(writer);
}
