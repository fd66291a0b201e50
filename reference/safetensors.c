/* The format is that of huggingface/safetensors (README.md, "Format"): an unsigned 64-bit little-endian header length, a
 * JSON header padded with blanks to a multiple of 8, then the tensors without gaps in the order of their offsets. */
#include "reference/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are written as they lie in memory");

enum { TRIES = 100 };

static const char ending[] = ".safetensors";

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
        snprintf(folder, PATH_MAX, ".");
    } else {
        int length = slash == path ? 1 : (int)(slash - path);
        snprintf(folder, PATH_MAX, "%.*s", length, path);
    }
}

ls_rc ls_save_check(const char *path) {
    size_t length = strlen(path);
    size_t suffix = sizeof ending - 1;
    if (length <= suffix || strcmp(path + length - suffix, ending) != 0 || path[length - suffix - 1] == '/') {
        return ls_fail(LS_BAD_INPUT, "--save: expected a file name that ends in %s, found '%s'", ending, path);
    }
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        return ls_fail(LS_BAD_INPUT, "--save: expected a file, found a folder: %s", path);
    }
    char temporary[PATH_MAX]; /* only writing shows that a folder can be written: read-only mounts, quotas, root */
    int file = create_temporary(path, temporary);
    if (file < 0) {
        int reason = errno;
        char folder[PATH_MAX];
        folder_of(path, folder);
        return ls_fail(LS_BAD_INPUT, "--save %s: expected a folder that can be written, found %s: %s", path, folder,
                       strerror(reason));
    }
    close(file);
    if (unlink(temporary) != 0) {
        return ls_fail(LS_BAD_INPUT, "--save %s: cannot remove %s: %s", path, temporary, strerror(errno));
    }
    return LS_OK;
}

/* Adds one tensor's entry; *offset goes on to its end. */
static int describe_tensor(json_t *header, const ls_param *param, ls_dtype dtype, size_t *offset) {
    json_t *shape = json_array();
    for (size_t d = 0; shape != NULL && d < param->dims; d++) {
        if (json_array_append_new(shape, json_integer((json_int_t)param->shape[d])) != 0) {
            json_decref(shape);
            return -1;
        }
    }
    size_t end = *offset + param->count * ls_dtype_size(dtype);
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype == LS_FLOAT64 ? "F64" : "F32", "shape", shape,
                              "data_offsets", (json_int_t)*offset, (json_int_t)end);
    *offset = end;
    return json_object_set_new(header, param->name, entry);
}

/* The header as text, padded to a multiple of 8; NULL when memory is short. The caller frees. */
static char *make_header(const ls_model *model, ls_dtype dtype, size_t *length) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    size_t offset = 0;
    int status = header == NULL ? -1 : 0;
    for (size_t p = 0; p < model->param_tensors && status == 0; p++) {
        status = describe_tensor(header, &model->params[p], dtype, &offset);
    }
    char *text = status == 0 ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (text == NULL) {
        return NULL;
    }
    size_t used = strlen(text);
    *length = (used + 7) / 8 * 8;
    char *padded = malloc(*length + 1);
    if (padded != NULL) {
        memset(padded, ' ', *length);
        memcpy(padded, text, used);
        padded[*length] = '\0';
    }
    free(text);
    return padded;
}

/* Writes all of count bytes; -1 with errno. */
static int write_all(int file, const void *bytes, size_t count) {
    const char *at = bytes;
    while (count > 0) {
        ssize_t written = write(file, at, count);
        if (written < 0 && errno != EINTR) {
            return -1;
        }
        if (written > 0) {
            at += written;
            count -= (size_t)written;
        }
    }
    return 0;
}

static int write_tensors(int file, const char *header, size_t length, const ls_model *model, ls_dtype dtype,
                         const void *flat) {
    unsigned char size[8];
    for (size_t i = 0; i < sizeof size; i++) {
        size[i] = (unsigned char)((uint64_t)length >> (8 * i));
    }
    if (write_all(file, size, sizeof size) != 0 || write_all(file, header, length) != 0) {
        return -1;
    }
    for (size_t p = 0; p < model->param_tensors; p++) {
        const ls_param *param = &model->params[p];
        const char *values = (const char *)flat + param->offset * ls_dtype_size(dtype);
        if (write_all(file, values, param->count * ls_dtype_size(dtype)) != 0) {
            return -1;
        }
    }
    return fsync(file);
}

/* Makes the new name last: without this a crash may bring the old folder back. */
static void sync_folder(const char *path) {
    char folder[PATH_MAX];
    folder_of(path, folder);
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file >= 0) {
        if (fsync(file) != 0 && errno != EINVAL) { /* EINVAL: a file system without it */
            ls_notice("%s: saved, but the folder could not be synced: %s", path, strerror(errno));
        }
        close(file);
    }
}

ls_rc ls_save_safetensors(const char *path, const ls_model *model, ls_dtype dtype, const void *flat) {
    char temporary[PATH_MAX];
    size_t length = 0;
    char *header = make_header(model, dtype, &length);
    if (header == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the header of %s", path);
    }
    int file = create_temporary(path, temporary);
    if (file < 0) {
        free(header);
        return ls_fail(LS_BAD_INPUT, "%s: cannot be written: %s", path, strerror(errno));
    }
    int reason = write_tensors(file, header, length, model, dtype, flat) != 0 ? errno : 0;
    free(header);
    if (close(file) != 0 && reason == 0) {
        reason = errno;
    }
    if (reason == 0 && rename(temporary, path) != 0) {
        reason = errno;
    }
    if (reason != 0) {
        unlink(temporary);
        return ls_fail(LS_BAD_INPUT, "%s: cannot be written: %s; what was there before is unchanged", path,
                       strerror(reason));
    }
    sync_folder(path);
    return LS_OK;
}
