#include "gpu/base/output.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Whether all that was printed has been written; else *error is why, or 0 when that is not known. */
static bool all_written(int *error) {
    bool lost = ferror(stdout) != 0;
    errno = 0;
    bool flushed = fflush(stdout) == 0;
    if (lost && flushed) {
        /* a stream keeps that a write failed, not why: one more write asks again */
        errno = 0;
        flushed = putchar('\n') != EOF && fflush(stdout) == 0;
    }
    *error = flushed ? 0 : errno;
    return !lost && flushed;
}

ls_rc ls_output_end(ls_rc rc) {
    int error;
    if (all_written(&error) || rc == LS_BAD_INPUT || rc == LS_DEVICE_FAILED) {
        return rc;
    }
    ls_notice("cannot write to standard output: %s",
              error != 0 ? strerror(error) : "a part of what was printed is lost");
    return rc == LS_OK ? LS_BAD_INPUT : rc;
}
