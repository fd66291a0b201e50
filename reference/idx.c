#include "reference/idx.h"

#include <stdio.h>
#include <stdlib.h>

#include "reference/data/bytes.h"

/* More than any data set that fits this program's memory; a header beyond it is damaged, not large. */
static const uint64_t size_limit = UINT64_C(1) << 31;

static uint32_t big_endian(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static const char *describe_magic(uint32_t magic) {
    switch (magic) {
    case 0x00000801:
        return " (a label file)";
    case 0x00000803:
        return " (an image file)";
    case 0x01080000:
    case 0x03080000:
        return " (bytes swapped)";
    default:
        return (magic >> 16) == 0 && (magic & 0xff00) != 0x0800 ? " (IDX of another element type, or not IDX)" : "";
    }
}

/* Bytes of the header: the magic number and one 32-bit size a dimension, big-endian. */
static ls_rc read_word(ls_bytes *bytes, const char *path, uint32_t *word) {
    unsigned char raw[4];
    size_t got = 0;
    LS_TRY(ls_bytes_read(bytes, raw, sizeof raw, &got));
    if (got < sizeof raw) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: byte %llu: expected more of the IDX header, found the end (truncated); download it again",
                       path, (unsigned long long)ls_bytes_offset(bytes));
    }
    *word = big_endian(raw);
    return LS_OK;
}

/* Reads the header; checks that its sizes can be true before anything is allocated. */
static ls_rc read_header(ls_bytes *bytes, const char *path, size_t low, size_t high, ls_idx *out) {
    uint32_t magic = 0;
    LS_TRY(read_word(bytes, path, &magic));
    if (magic < (0x0800U | low) || magic > (0x0800U | high)) {
        char range[24] = "";
        if (high > low) {
            (void)snprintf(range, sizeof range, " to 0x%08x", 0x0800U | (unsigned)high);
        }
        return ls_fail(LS_BAD_INPUT,
                       "%s: byte 0: expected the IDX magic number 0x%08x%s (%zu dimensions of bytes), found 0x%08x%s",
                       path, 0x0800U | (unsigned)low, range, low, magic, describe_magic(magic));
    }
    size_t expected_dims = magic & 0xffU;
    uint64_t header = 4 + 4 * (uint64_t)expected_dims;
    uint64_t count = 1;
    out->dims = expected_dims;
    for (size_t d = 0; d < expected_dims; d++) {
        uint32_t side = 0;
        LS_TRY(read_word(bytes, path, &side));
        if (side == 0) {
            return ls_fail(LS_BAD_INPUT, "%s: byte %zu: expected a size of at least 1 in dimension %zu, found 0", path,
                           4 + 4 * d, d);
        }
        if (count > size_limit / side) {
            return ls_fail(LS_BAD_INPUT,
                           "%s: byte %zu: expected at most %llu bytes of data, found a header that claims more "
                           "(dimension %zu is %u); the file is damaged",
                           path, 4 + 4 * d, (unsigned long long)size_limit, d, side);
        }
        count *= side;
        out->shape[d] = side;
    }
    out->count = (size_t)count;
    if (header + count > ls_bytes_capacity(bytes)) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: byte %llu: expected %llu bytes of data as the header says, found a file that cannot hold "
                       "more than %llu (truncated); download it again",
                       path, (unsigned long long)header, (unsigned long long)count,
                       (unsigned long long)(ls_bytes_capacity(bytes) > header ? ls_bytes_capacity(bytes) - header : 0));
    }
    return LS_OK;
}

static ls_rc read_data(ls_bytes *bytes, const char *path, ls_idx *idx) {
    size_t got = 0;
    LS_TRY(ls_bytes_take(bytes, idx->count, path, &idx->content, &got));
    if (got < idx->count) {
        return ls_fail(
            LS_BAD_INPUT,
            "%s: byte %llu: expected %zu bytes of data as the header says, found %zu (truncated); download it "
            "again",
            path, (unsigned long long)ls_bytes_offset(bytes), idx->count, got);
    }
    unsigned char extra = 0;
    LS_TRY(ls_bytes_read(bytes, &extra, 1, &got)); /* also verifies the checksum of a gzip stream */
    if (got != 0) {
        return ls_fail(LS_BAD_INPUT, "%s: byte %llu: expected the end after %zu bytes of data, found more bytes", path,
                       (unsigned long long)(ls_bytes_offset(bytes) - 1), idx->count);
    }
    return LS_OK;
}

static ls_rc open_file(const char *path, size_t low, size_t high, ls_idx *out, ls_bytes **bytes) {
    *out = (ls_idx){0};
    if (low == 0 || low > high || high > LS_IDX_MAX_DIMS) {
        return ls_fail(LS_BAD_INPUT, "%s: IDX files of 1 to %d dimensions can be read, asked for %zu", path,
                       LS_IDX_MAX_DIMS, high);
    }
    LS_TRY(ls_bytes_open(path, bytes));
    ls_rc rc = read_header(*bytes, path, low, high, out);
    if (rc != LS_OK) {
        ls_bytes_close(*bytes);
        *out = (ls_idx){0};
    }
    return rc;
}

ls_rc ls_idx_read_header(const char *path, size_t low, size_t high, ls_idx *out) {
    ls_bytes *bytes = NULL;
    LS_TRY(open_file(path, low, high, out, &bytes));
    ls_bytes_close(bytes);
    return LS_OK;
}

ls_rc ls_idx_read_between(const char *path, size_t low, size_t high, ls_idx *out) {
    ls_bytes *bytes = NULL;
    LS_TRY(open_file(path, low, high, out, &bytes));
    ls_rc rc = read_data(bytes, path, out);
    ls_bytes_close(bytes);
    if (rc != LS_OK) {
        ls_content_release(&out->content);
        *out = (ls_idx){0};
    }
    return rc;
}

ls_rc ls_idx_read(const char *path, size_t expected_dims, ls_idx *out) {
    return ls_idx_read_between(path, expected_dims, expected_dims, out);
}
