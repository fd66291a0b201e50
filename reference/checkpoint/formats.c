#include "reference/checkpoint/formats.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The archives written are zip without its 64-bit extension; 1 MiB is room for the pickle and the headers. */
static const uint64_t zip_limit = UINT32_MAX - (UINT32_C(1) << 20);

static const ls_state_format formats[] = {
    {".pth", ls_pth_write, ls_pth_read, zip_limit},
    {".pt", ls_pth_write, ls_pth_read, zip_limit},
    {".safetensors", ls_safetensors_write, ls_safetensors_read, UINT64_MAX},
};

/* The format that the name's ending says; NULL: none. The name must be more than an ending. */
static const ls_state_format *format_of(const char *path) {
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        size_t ending = strlen(formats[i].ending);
        if (length > ending && strcmp(path + length - ending, formats[i].ending) == 0 &&
            path[length - ending - 1] != '/') {
            return &formats[i];
        }
    }
    return NULL;
}

ls_rc ls_state_check_output(const char *option, const char *path, uint64_t bytes) {
    const ls_state_format *format = format_of(path);
    if (format == NULL) {
        return ls_fail(LS_BAD_INPUT, "%s: expected a file name that ends in .pth, .pt or .safetensors, found '%s'",
                       option, path);
    }
    if (bytes > format->max_bytes) {
        return ls_fail(LS_BAD_INPUT,
                       "%s %s: %llu bytes of parameters are more than a %s file takes (%llu); save as "
                       ".safetensors",
                       option, path, (unsigned long long)bytes, format->ending, (unsigned long long)format->max_bytes);
    }
    return ls_file_check_output(option, path);
}

ls_rc ls_state_write(const char *path, const ls_state *state) {
    const ls_state_format *format = format_of(path);
    if (format == NULL) {
        return ls_fail(LS_BAD_INPUT, "'%s': expected a file name that ends in .pth, .pt or .safetensors", path);
    }
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    char stem[NAME_MAX + 1];
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - strlen(format->ending)), name);
    ls_file_writer *writer = NULL;
    LS_TRY(ls_file_create(path, &writer));
    ls_rc rc = format->write(writer, stem, state);
    if (rc != LS_OK) {
        ls_file_abandon(writer);
        return rc;
    }
    return ls_file_finish(writer);
}

ls_rc ls_state_read(const char *path, ls_state *state) {
    const ls_state_format *format = format_of(path);
    if (format == NULL) {
        return ls_fail(LS_BAD_INPUT, "'%s': expected a file name that ends in .pth, .pt or .safetensors", path);
    }
    ls_file_bytes file;
    LS_TRY(ls_file_read(path, &file));
    ls_rc rc = format->read(&file, state);
    free(file.bytes);
    if (rc != LS_OK) {
        ls_state_free(state);
    }
    return rc;
}
