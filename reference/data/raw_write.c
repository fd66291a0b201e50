/* Writing a raw container. */
#include <zlib.h>

#include "reference/raw.h"

#include "reference/data/raw_format.h"
#include "reference/file.h"

enum { PIECE = 1 << 20 };

typedef struct writer {
    ls_file_writer *file;
    uint32_t crc;
} writer;

static void write_bytes(writer *w, const void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        size_t piece = count - done < PIECE ? count - done : PIECE;
        const unsigned char *at = (const unsigned char *)bytes + done;
        w->crc = (uint32_t)crc32(w->crc, at, (uInt)piece); /* zlib's length is 32 bits wide */
        ls_file_write(w->file, at, piece);
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

ls_rc ls_raw_write(const char *path, const ls_dataset *train, const ls_dataset *test) {
    if (test->count > 0 && !same_kind(train, test)) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: expected training and test samples of one kind, found %zux%zux%zu and %zux%zux%zu, or "
                       "different types or classes",
                       path, train->channels, train->height, train->width, test->channels, test->height, test->width);
    }
    writer w = {0};
    LS_TRY(ls_file_create(path, &w.file));
    write_all(&w, train, test);
    return ls_file_finish(w.file);
}
