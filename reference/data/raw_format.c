#include "reference/data/raw_format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "reference/data/bytes.h"

/* Floats and integers are read into memory as they lie in the file. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the raw container is read on little-endian machines only");

enum { PIECE = 1 << 20 };

/* A file while it is read: the checksum runs along. */
typedef struct reader {
    ls_bytes *bytes;
    const char *path;
    uint32_t crc;
    ls_raw_header header;
} reader;

static void put(unsigned char *at, size_t size, uint64_t value) {
    for (size_t i = 0; i < size; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

static uint64_t get(const unsigned char *at, size_t size) {
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) {
        value = value << 8 | at[i];
    }
    return value;
}

void ls_raw_header_pack(const ls_raw_header *header, unsigned char bytes[LS_RAW_HEADER_BYTES]) {
    const uint32_t words[] = {header->version,  header->element, header->answer, header->answers,
                              header->channels, header->height,  header->width,  0};
    memset(bytes, 0, LS_RAW_HEADER_BYTES);
    for (size_t i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)LS_RAW_MAGIC[i];
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        put(bytes + 8 + 4 * i, 4, words[i]);
    }
    put(bytes + 40, 8, header->count[0]);
    put(bytes + 48, 8, header->count[1]);
}

void ls_raw_header_unpack(const unsigned char bytes[LS_RAW_HEADER_BYTES], ls_raw_header *out) {
    uint32_t *const words[] = {&out->version,  &out->element, &out->answer, &out->answers,
                               &out->channels, &out->height,  &out->width};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        *words[i] = (uint32_t)get(bytes + 8 + 4 * i, 4);
    }
    out->count[0] = get(bytes + 40, 8);
    out->count[1] = get(bytes + 48, 8);
}

static ls_rc read_exactly(reader *r, void *to, size_t want, const char *what) {
    size_t got = 0;
    LS_TRY(ls_bytes_read(r->bytes, to, want, &got));
    if (got < want) {
        return ls_fail(LS_BAD_INPUT, "%s: byte %llu: expected more of the %s, found the end (truncated)", r->path,
                       (unsigned long long)ls_bytes_offset(r->bytes), what);
    }
    /* zlib's length is 32 bits wide */
    for (size_t done = 0; done < want;) {
        size_t piece = want - done < PIECE ? want - done : PIECE;
        r->crc = (uint32_t)crc32(r->crc, (const unsigned char *)to + done, (uInt)piece);
        done += piece;
    }
    return LS_OK;
}

/* One field of the header: what, where, expected, found. */
static ls_rc check_field(const reader *r, size_t offset, const char *what, uint64_t found, uint64_t low,
                         uint64_t high) {
    if (found < low || found > high) {
        return ls_fail(LS_BAD_INPUT, "%s: byte %zu: expected %s of %llu to %llu, found %llu", r->path, offset, what,
                       (unsigned long long)low, (unsigned long long)high, (unsigned long long)found);
    }
    return LS_OK;
}

/* Adds factor * a * b to *total; false when it does not fit. */
static bool add_product(uint64_t *total, uint64_t a, uint64_t b, uint64_t factor) {
    uint64_t product = 0;
    return !__builtin_mul_overflow(a, b, &product) && !__builtin_mul_overflow(product, factor, &product) &&
           !__builtin_add_overflow(*total, product, total);
}

/* The sizes must be those of the file before anything is allocated. */
static ls_rc check_size(const reader *r) {
    const ls_raw_header *h = &r->header;
    uint64_t features = 0, total = LS_RAW_HEADER_BYTES + 4, capacity = ls_bytes_capacity(r->bytes);
    bool fits = add_product(&features, (uint64_t)h->channels * h->height, h->width, 1);
    for (size_t split = 0; split < 2; split++) {
        fits = fits && add_product(&total, h->count[split], features, h->element == 1 ? 1 : sizeof(float));
        fits = fits && add_product(&total, h->count[split], h->answer == 1 ? 1 : h->answers, 4);
    }
    if (!fits || total > capacity) {
        return ls_fail(
            LS_BAD_INPUT,
            "%s: byte 8: expected a file of the size that its header says (%llu and %llu samples of "
            "%ux%ux%u), found one that cannot hold more than %llu bytes (truncated, or its header is damaged)",
            r->path, (unsigned long long)h->count[0], (unsigned long long)h->count[1], h->channels, h->height, h->width,
            (unsigned long long)capacity);
    }
    return LS_OK;
}

static ls_rc read_header(reader *r) {
    unsigned char bytes[LS_RAW_HEADER_BYTES];
    LS_TRY(read_exactly(r, bytes, sizeof bytes, "header of a raw container"));
    if (memcmp(bytes, LS_RAW_MAGIC, 8) != 0) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: byte 0: expected the mark of a raw container (LSDATA and a line end), found other bytes; "
                       "`lockstep data import` makes containers",
                       r->path);
    }
    ls_raw_header *h = &r->header;
    ls_raw_header_unpack(bytes, h);
    LS_TRY(check_field(r, 8, "a version", h->version, LS_RAW_VERSION, LS_RAW_VERSION));
    LS_TRY(check_field(r, 12, "an element type", h->element, 1, 2));
    LS_TRY(check_field(r, 16, "a kind of answers", h->answer, 1, 2));
    LS_TRY(check_field(r, 20, h->answer == 1 ? "a number of classes" : "a number of targets", h->answers, 1, 1 << 24));
    LS_TRY(check_field(r, 24, "a number of channels", h->channels, 1, 1 << 24));
    LS_TRY(check_field(r, 28, "a height", h->height, 1, 1 << 24));
    LS_TRY(check_field(r, 32, "a width", h->width, 1, 1 << 24));
    LS_TRY(check_field(r, 40, "a number of training samples", h->count[0], 1, UINT64_C(1) << 40));
    LS_TRY(check_field(r, 48, "a number of test samples", h->count[1], 0, UINT64_C(1) << 40));
    for (size_t i = 0; i < LS_RAW_HEADER_BYTES; i++) {
        if (bytes[i] != 0 && ((i >= 36 && i < 40) || i >= 56)) {
            return ls_fail(LS_BAD_INPUT, "%s: byte %zu: expected 0 in a reserved byte of the header, found %u", r->path,
                           i, (unsigned)bytes[i]);
        }
    }
    return check_size(r);
}

static void take_sizes(const ls_raw_header *h, ls_split split, ls_dataset *out) {
    *out = (ls_dataset){.count = (size_t)h->count[split],
                        .channels = h->channels,
                        .height = h->height,
                        .width = h->width,
                        .classes = h->answer == 1 ? h->answers : 0,
                        .target_count = h->answer == 2 ? h->answers : 0,
                        .floats = h->element == 2};
}

/* NaN and infinities would only show as a loss that is none. start: the offset of the first. */
static ls_rc check_floats(const reader *r, const float *values, size_t count, uint64_t start, size_t each,
                          const char *what) {
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) {
            return ls_fail(LS_BAD_INPUT, "%s: byte %llu (sample %zu): expected a finite %s, found %g", r->path,
                           (unsigned long long)(start + i * sizeof *values), i / each, what, (double)values[i]);
        }
    }
    return LS_OK;
}

static ls_rc read_samples(reader *r, ls_dataset *d) {
    size_t features = ls_dataset_features(d);
    uint64_t start = ls_bytes_offset(r->bytes);
    if (!d->floats) {
        d->pixels = ls_calloc(d->count * features, 1, r->path);
        return d->pixels != NULL ? read_exactly(r, d->pixels, d->count * features, "samples") : LS_DEVICE_FAILED;
    }
    d->values = ls_calloc(d->count * features, sizeof *d->values, r->path);
    if (d->values == NULL) {
        return LS_DEVICE_FAILED;
    }
    LS_TRY(read_exactly(r, d->values, d->count * features * sizeof *d->values, "samples"));
    return check_floats(r, d->values, d->count * features, start, features, "value");
}

static ls_rc read_answers(reader *r, ls_dataset *d) {
    uint64_t start = ls_bytes_offset(r->bytes);
    d->labels = ls_calloc(d->count, sizeof *d->labels, r->path);
    if (d->labels == NULL) {
        return LS_DEVICE_FAILED;
    }
    if (d->target_count > 0) {
        d->targets = ls_calloc(d->count * d->target_count, sizeof *d->targets, r->path);
        if (d->targets == NULL) {
            return LS_DEVICE_FAILED;
        }
        LS_TRY(read_exactly(r, d->targets, d->count * d->target_count * sizeof *d->targets, "targets"));
        return check_floats(r, d->targets, d->count * d->target_count, start, d->target_count, "target");
    }
    LS_TRY(read_exactly(r, d->labels, d->count * sizeof *d->labels, "labels"));
    for (size_t i = 0; i < d->count; i++) {
        if (d->labels[i] < 0 || (size_t)d->labels[i] >= d->classes) {
            return ls_fail(LS_BAD_INPUT, "%s: byte %llu (sample %zu): expected a label of 0 to %zu, found %d", r->path,
                           (unsigned long long)(start + i * sizeof *d->labels), i, d->classes - 1, (int)d->labels[i]);
        }
    }
    return LS_OK;
}

static ls_rc check_end(reader *r) {
    unsigned char stored[4], extra = 0;
    uint32_t crc = r->crc;
    size_t got = 0;
    LS_TRY(read_exactly(r, stored, sizeof stored, "checksum"));
    if (get(stored, 4) != crc) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: byte %llu: expected the checksum %08x of what precedes it (CRC-32), found %08x; "
                       "the file is damaged",
                       r->path, (unsigned long long)(ls_bytes_offset(r->bytes) - 4), crc, (unsigned)get(stored, 4));
    }
    LS_TRY(ls_bytes_read(r->bytes, &extra, 1, &got));
    if (got != 0) {
        return ls_fail(LS_BAD_INPUT, "%s: byte %llu: expected the end after the checksum, found more bytes", r->path,
                       (unsigned long long)(ls_bytes_offset(r->bytes) - 1));
    }
    return LS_OK;
}

/* Both splits are read, since the checksum is over all; the one that is not wanted is checked and let go. */
static ls_rc read_all(reader *r, ls_split split, ls_dataset *out) {
    for (int s = 0; s < 2; s++) {
        ls_dataset d;
        take_sizes(&r->header, (ls_split)s, &d);
        ls_rc rc = read_samples(r, &d);
        if (rc == LS_OK) {
            rc = read_answers(r, &d);
        }
        if (rc == LS_OK && s == (int)split) {
            *out = d;
        } else {
            ls_dataset_close(&d);
        }
        LS_TRY(rc);
    }
    return check_end(r);
}

ls_rc ls_raw_read(const char *path, ls_split split, bool sizes_only, ls_dataset *out) {
    reader r = {.path = path};
    *out = (ls_dataset){0};
    LS_TRY(ls_bytes_open(path, &r.bytes));
    ls_rc rc = read_header(&r);
    if (rc == LS_OK && r.header.count[split] == 0) {
        rc = ls_fail(LS_BAD_INPUT, "%s: byte 48: expected at least 1 test sample, found 0", path);
    }
    if (rc == LS_OK && sizes_only) {
        take_sizes(&r.header, split, out);
    } else if (rc == LS_OK) {
        rc = read_all(&r, split, out);
    }
    ls_bytes_close(r.bytes);
    if (rc != LS_OK) {
        ls_dataset_close(out);
    }
    return rc;
}
