/* Raw containers, plain and gzip. With an odd first byte the checksum of the rest is made right, so that what follows it in
 * the reader is reached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "reference/data/raw_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int write_input(int file, const uint8_t *bytes, size_t size) {
    size_t rest = size - 1;
    if (ftruncate(file, 0) != 0 || pwrite(file, bytes + 1, rest, 0) != (ssize_t)rest) {
        return -1;
    }
    if (bytes[0] % 2 == 0 || rest < 4) {
        return 0;
    }
    uint32_t crc = (uint32_t)crc32(0, bytes + 1, (uInt)(rest - 4));
    return pwrite(file, &crc, 4, (off_t)rest - 4) == 4 ? 0 : -1;
}

/* What is accepted must be no larger than the file can hold (1032 times with gzip) and in range. */
static void check(const ls_dataset *d, size_t size) {
    size_t features = ls_dataset_features(d), bytes = d->count * features * (d->floats ? sizeof(float) : 1);
    if (bytes > 1032 * size || (d->pixels == NULL) == (d->values == NULL) || d->labels == NULL) {
        abort();
    }
    for (size_t i = 0; i < d->count && d->target_count == 0; i++) {
        if (d->labels[i] < 0 || (size_t)d->labels[i] >= d->classes) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static int file = -1; /* a file in memory, since the reader takes paths */
    if (file < 0) {
        file = memfd_create("input", 0);
    }
    if (file < 0 || size < 2 || write_input(file, bytes, size) != 0) {
        return -1;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    for (int split = 0; split < 2; split++) {
        ls_dataset whole, sizes;
        if (ls_raw_read(path, (ls_split)split, false, &whole) == LS_OK) {
            check(&whole, size);
            if (ls_raw_read(path, (ls_split)split, true, &sizes) != LS_OK || sizes.count != whole.count) {
                abort();
            }
            ls_dataset_close(&whole);
        }
    }
    return 0;
}
