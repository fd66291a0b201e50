/* IDX, plain and gzip. The first byte of the input says how many dimensions the caller expects, and whether the file may be
 * written (copied) or not (mapped). */
#include "reference/idx.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static int file = -1; /* a file in memory, since the reader takes paths */
    if (file < 0) {
        file = memfd_create("input", 0);
    }
    if (file < 0 || size == 0 || ftruncate(file, 0) != 0 ||
        pwrite(file, bytes + 1, size - 1, 0) != (ssize_t)(size - 1) ||
        fchmod(file, bytes[0] % 4 < 2 ? 0600 : 0400) != 0) {
        return -1;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ls_idx idx;
    if (ls_idx_read(path, bytes[0] % 2 != 0 ? 3 : 1, &idx) == LS_OK) {
        size_t count = 1;
        for (size_t d = 0; d < idx.dims; d++) {
            count *= idx.shape[d];
        }
        if (count != idx.count) {
            abort();
        }
        ls_content_release(&idx.content);
    }
    return 0;
}
