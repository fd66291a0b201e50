#include "gpu/base/error.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local int context_rank = -1;
static _Thread_local int context_device = -1;

void ls_error_set_rank(int rank, int device) {
    context_rank = rank;
    context_device = device;
}

static _Thread_local size_t asked_bytes = 0;

size_t ls_error_note_bytes(size_t bytes) {
    asked_bytes = bytes;
    return bytes;
}

size_t ls_error_asked_bytes(void) {
    return asked_bytes;
}

/* One write per line, so that the lines of several ranks never mix. */
static void print_line(const char *format, va_list arguments) {
    char line[2048];
    int used = context_rank < 0
                   ? snprintf(line, sizeof line, "lockstep: ")
                   : snprintf(line, sizeof line, "lockstep: rank %d device %d: ", context_rank, context_device);
    size_t at = used > 0 ? (size_t)used : 0;
    int more = vsnprintf(line + at, sizeof line - at - 1, format, arguments);
    if (more > 0) {
        at += (size_t)more;
    }
    if (at > sizeof line - 2) {
        at = sizeof line - 2;
    }
    for (size_t i = 0; i < at;
         i++) { /* what a file or an argument holds must not break the line, or steer a terminal */
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
    line[at] = '\n';
    ssize_t written = write(STDERR_FILENO, line, at + 1);
    (void)written; /* nothing can be said about a stderr that is gone */
}

void ls_notice(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
}

void *ls_calloc(size_t count, size_t size, const char *what) {
    void *memory = NULL;
    if (size == 0 || count <= SIZE_MAX / size) {
        size_t bytes = count * size;
        memory = calloc(bytes > 0 ? bytes : 1, 1);
    }
    if (memory == NULL) {
        ls_notice("out of memory: %zu x %zu bytes for %s", count, size, what);
    }
    return memory;
}
