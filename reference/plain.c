#include "reference/plain.h"

#include <stdlib.h>

#include "reference/data/bytes.h"

ls_rc ls_plain_read(const char *path, void **out, size_t *size) {
    ls_bytes *bytes = NULL;
    *out = NULL;
    LS_TRY(ls_bytes_open_plain(path, &bytes));
    size_t want = (size_t)ls_bytes_capacity(bytes), got = 0;
    *out = ls_calloc(want, 1, path);
    ls_rc rc = *out != NULL ? ls_bytes_read(bytes, *out, want, &got) : LS_DEVICE_FAILED;
    ls_bytes_close(bytes);
    if (rc == LS_OK && got < want) {
        rc = ls_fail(LS_BAD_INPUT, "%s: byte %zu: expected %zu bytes, found the end: the file became shorter", path,
                     got, want);
    }
    if (rc != LS_OK) {
        free(*out);
        *out = NULL;
    }
    *size = want;
    return rc;
}
