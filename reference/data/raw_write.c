/* Writing a raw container. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "reference/raw.h"

#include "reference/data/raw_format.h"

enum { PIECE = 1 << 20 };

typedef struct writer {
    FILE *file;
    uint32_t crc;
    bool good;
} writer;

static void write_bytes(writer *w, const void *bytes, size_t count) {
    for (size_t done = 0; w->good && done < count;) {
        size_t piece = count - done < PIECE ? count - done : PIECE;
        const unsigned char *at = (const unsigned char *)bytes + done;
        w->crc = (uint32_t)crc32(w->crc, at, (uInt)piece); /* zlib's length is 32 bits wide */
        w->good = fwrite(at, 1, piece, w->file) == piece;
        done += piece;
    }
}

static void write_split(writer *w, const ls_dataset *d) {
    size_t features = ls_dataset_features(d);
    if (d->floats) {
        write_bytes(w, d->values, d->count * features * sizeof *d->values);
    } else {
        write_bytes(w, d->pixels, d->count * features);
    }
    if (d->target_count > 0) {
        write_bytes(w, d->targets, d->count * d->target_count * sizeof *d->targets);
    } else {
        write_bytes(w, d->labels, d->count * sizeof *d->labels);
    }
}

static void write_all(writer *w, const ls_dataset *train, const ls_dataset *test) {
    ls_raw_header header = {.version = LS_RAW_VERSION,
                            .element = train->floats ? 2 : 1,
                            .answer = train->target_count > 0 ? 2 : 1,
                            .answers = (uint32_t)(train->target_count > 0 ? train->target_count : train->classes),
                            .channels = (uint32_t)train->channels,
                            .height = (uint32_t)train->height,
                            .width = (uint32_t)train->width,
                            .count = {train->count, test->count}};
    unsigned char bytes[LS_RAW_HEADER_BYTES], checksum[4];
    ls_raw_header_pack(&header, bytes);
    write_bytes(w, bytes, sizeof bytes);
    write_split(w, train);
    write_split(w, test);
    for (size_t i = 0; i < sizeof checksum; i++) {
        checksum[i] = (unsigned char)(w->crc >> (8 * i));
    }
    write_bytes(w, checksum, sizeof checksum);
}

static bool same_kind(const ls_dataset *a, const ls_dataset *b) {
    return a->channels == b->channels && a->height == b->height && a->width == b->width && a->floats == b->floats &&
           a->classes == b->classes && a->target_count == b->target_count;
}

static bool sync_and_close(FILE *file, bool good) {
    good = good && fflush(file) == 0 && fsync(fileno(file)) == 0;
    return fclose(file) == 0 && good;
}

ls_rc ls_raw_write(const char *path, const ls_dataset *train, const ls_dataset *test) {
    if (test->count > 0 && !same_kind(train, test)) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: expected training and test samples of one kind, found %zux%zux%zu and %zux%zux%zu, or "
                       "different types or classes",
                       path, train->channels, train->height, train->width, test->channels, test->height, test->width);
    }
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary) {
        return ls_fail(LS_BAD_INPUT, "%s: the path is too long", path);
    }
    int descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        return ls_fail(LS_BAD_INPUT, "%s: cannot be written: %s", path, strerror(errno));
    }
    writer w = {.file = fdopen(descriptor, "wb")};
    if (w.file == NULL) {
        close(descriptor);
        unlink(temporary);
        return ls_fail(LS_DEVICE_FAILED, "%s: cannot be written: %s", path, strerror(errno));
    }
    w.good = true;
    write_all(&w, train, test);
    if (!sync_and_close(w.file, w.good) || rename(temporary, path) != 0) {
        int reason = errno;
        unlink(temporary);
        return ls_fail(LS_BAD_INPUT, "%s: cannot be written: %s", path, strerror(reason));
    }
    return LS_OK;
}
