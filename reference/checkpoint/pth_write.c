/* Writing .pth as torch.save does: a zip archive of stored entries, the bytes of each at a multiple of 64 (so that a reader
 * may map them), by padding in the extra field of the local header (caffe2/serialize/inline_container.cc, getPadding).
 * libzip, which reads these archives, cannot be told where an entry's bytes are to lie, so the fixed layout is written here:
 * local headers, the central directory, the end record (PKWARE APPNOTE 4.3), with zlib's CRC-32. Without zip64. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "reference/checkpoint/formats.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are written as they lie in memory");

enum { ALIGNMENT = 64, LOCAL_HEADER = 30, EXTRA_HEADER = 4, UTF8 = 0x0800, DOS_1980 = 0x21 };

/* Bytes that grow; failed once memory was short. */
typedef struct buffer {
    unsigned char *bytes;
    size_t size, capacity;
    bool failed;
} buffer;

static void put(buffer *b, const void *bytes, size_t count) {
    if (b->capacity - b->size < count) {
        size_t capacity = 2 * b->capacity + count + 256;
        unsigned char *grown = realloc(b->bytes, capacity);
        if (grown == NULL) {
            b->failed = true;
            return;
        }
        b->bytes = grown;
        b->capacity = capacity;
    }
    if (count > 0) {
        memcpy(b->bytes + b->size, bytes, count);
        b->size += count;
    }
}

static void put_byte(buffer *b, unsigned value) {
    unsigned char byte = (unsigned char)value;
    put(b, &byte, 1);
}

static void put_number(buffer *b, size_t width, uint64_t value) {
    for (size_t i = 0; i < width; i++) {
        put_byte(b, (unsigned)(value >> (8 * i)) & 0xff);
    }
}

/* The pickle: protocol 2, without the memo. */

static void put_text(buffer *b, const char *text) {
    put_byte(b, 'X'); /* BINUNICODE */
    put_number(b, 4, strlen(text));
    put(b, text, strlen(text));
}

static void put_global(buffer *b, const char *module_and_name) {
    put_byte(b, 'c'); /* GLOBAL */
    put(b, module_and_name, strlen(module_and_name));
}

static void put_integer(buffer *b, uint64_t value) {
    if (value <= 0xff) {
        put_byte(b, 'K'); /* BININT1 */
        put_number(b, 1, value);
    } else if (value <= 0xffff) {
        put_byte(b, 'M'); /* BININT2 */
        put_number(b, 2, value);
    } else if (value <= INT32_MAX) {
        put_byte(b, 'J'); /* BININT */
        put_number(b, 4, value);
    } else {
        put_byte(b, 0x8a); /* LONG1; the files written here stay below 2^32 bytes, so 8 bytes hold the sign */
        put_byte(b, 8);
        put_number(b, 8, value);
    }
}

static void put_empty_ordered_dict(buffer *b) {
    put_global(b, "collections\nOrderedDict\n");
    put_byte(b, ')'); /* EMPTY_TUPLE */
    put_byte(b, 'R'); /* REDUCE */
}

/* ('storage', torch.FloatStorage, key, 'cpu', elements) as a persistent id. */
static void put_storage(buffer *b, const ls_state_tensor *tensor, size_t index) {
    static const char *const storages[] = {
        [LS_ELEMENT_FLOAT32] = "torch\nFloatStorage\n",
        [LS_ELEMENT_FLOAT64] = "torch\nDoubleStorage\n",
        [LS_ELEMENT_INT64] = "torch\nLongStorage\n",
    };
    char key[24];
    snprintf(key, sizeof key, "%zu", index);
    put_byte(b, '('); /* MARK */
    put_text(b, "storage");
    put_global(b, storages[tensor->element]);
    put_text(b, key);
    put_text(b, "cpu");
    put_integer(b, tensor->count);
    put_byte(b, 't'); /* TUPLE */
    put_byte(b, 'Q'); /* BINPERSID */
}

/* _rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict()) */
static void put_tensor(buffer *b, const ls_state_tensor *tensor, size_t index) {
    size_t stride[LS_STATE_MAX_DIMS], step = 1;
    for (size_t d = tensor->dims; d-- > 0;) {
        stride[d] = step;
        step *= tensor->shape[d] > 0 ? tensor->shape[d] : 1; /* PyTorch's strides of an empty tensor */
    }
    put_global(b, "torch._utils\n_rebuild_tensor_v2\n");
    put_byte(b, '('); /* MARK */
    put_storage(b, tensor, index);
    put_integer(b, 0);
    for (size_t part = 0; part < 2; part++) {
        put_byte(b, '('); /* MARK */
        for (size_t d = 0; d < tensor->dims; d++) {
            put_integer(b, part == 0 ? tensor->shape[d] : stride[d]);
        }
        put_byte(b, 't'); /* TUPLE */
    }
    put_byte(b, 0x89); /* NEWFALSE */
    put_empty_ordered_dict(b);
    put_byte(b, 't'); /* TUPLE */
    put_byte(b, 'R'); /* REDUCE */
}

/* nn.Module.state_dict() sets an attribute _metadata, the versions of the modules' formats; torch.load does without it, and
 * load_state_dict takes the present version then. */
static void put_state(buffer *b, const ls_state *state) {
    put(b, "\x80\x02", 2); /* PROTO 2 */
    put_empty_ordered_dict(b);
    put_byte(b, '('); /* MARK */
    for (size_t i = 0; i < state->count; i++) {
        put_text(b, state->tensors[i].name);
        put_tensor(b, &state->tensors[i], i);
    }
    put_byte(b, 'u'); /* SETITEMS */
    put_byte(b, '.'); /* STOP */
}

/* The archive. */

typedef struct zip_out {
    ls_file_writer *writer;
    const char *stem;
    uint64_t offset; /* bytes written */
    buffer central;
    size_t entries;
} zip_out;

static void write_out(zip_out *zip, const void *bytes, size_t count) {
    ls_file_write(zip->writer, bytes, count);
    zip->offset += count;
}

/* What local and central headers say alike, from "version needed" on. */
static void put_common(buffer *b, uint32_t crc, size_t size, size_t name, size_t extra) {
    put_number(b, 2, 20);       /* version 2.0 */
    put_number(b, 2, UTF8);     /* names are UTF-8 */
    put_number(b, 2, 0);        /* stored */
    put_number(b, 2, 0);        /* time: midnight */
    put_number(b, 2, DOS_1980); /* date: none, so that equal states make equal files */
    put_number(b, 4, crc);
    put_number(b, 4, size);
    put_number(b, 4, size);
    put_number(b, 2, name);
    put_number(b, 2, extra);
}

/* Bytes of padding that bring what follows the local header to a multiple of 64; at least the 4 of the field's own header. */
static size_t padding(uint64_t offset, size_t name) {
    size_t start = (size_t)((offset + LOCAL_HEADER + name + EXTRA_HEADER) % ALIGNMENT);
    return EXTRA_HEADER + (ALIGNMENT - start) % ALIGNMENT;
}

static void write_entry(zip_out *zip, const char *name, const void *bytes, size_t size) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", zip->stem, name);
    size_t length = strlen(full), extra = padding(zip->offset, length);
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), bytes, size);
    static const unsigned char fill[ALIGNMENT] = {0};
    buffer local = {0};
    put(&zip->central, "PK\1\2", 4);
    put_number(&zip->central, 2, 20); /* made by version 2.0, of MS-DOS: no attributes */
    put_common(&zip->central, crc, size, length, 0);
    put_number(&zip->central, 8, 0); /* comment's length, disk, internal attributes and half of the external ones */
    put_number(&zip->central, 2, 0);
    put_number(&zip->central, 4, zip->offset);
    put(&zip->central, full, length);
    put(&local, "PK\3\4", 4);
    put_common(&local, crc, size, length, extra);
    put(&local, full, length);
    put(&local, "FB", 2); /* the id under which torch.save pads */
    put_number(&local, 2, extra - EXTRA_HEADER);
    put(&local, fill, extra - EXTRA_HEADER);
    write_out(zip, local.bytes, local.size);
    write_out(zip, bytes, size);
    zip->central.failed = zip->central.failed || local.failed;
    zip->entries++;
    free(local.bytes);
}

static void write_end(zip_out *zip) {
    buffer end = {0};
    put(&end, "PK\5\6", 4);
    put_number(&end, 4, 0); /* this disk, the directory's disk */
    put_number(&end, 2, zip->entries);
    put_number(&end, 2, zip->entries);
    put_number(&end, 4, zip->central.size);
    put_number(&end, 4, zip->offset);
    put_number(&end, 2, 0); /* comment's length */
    write_out(zip, zip->central.bytes, zip->central.size);
    write_out(zip, end.bytes, end.size);
    zip->central.failed = zip->central.failed || end.failed;
    free(end.bytes);
}

ls_rc ls_pth_write(ls_file_writer *writer, const char *stem, const ls_state *state) {
    zip_out zip = {.writer = writer, .stem = stem};
    buffer pickle = {0};
    put_state(&pickle, state);
    write_entry(&zip, "data.pkl", pickle.bytes, pickle.size);
    write_entry(&zip, "byteorder", "little", 6);
    for (size_t i = 0; i < state->count; i++) {
        char name[40];
        snprintf(name, sizeof name, "data/%zu", i);
        write_entry(&zip, name, state->tensors[i].data,
                    state->tensors[i].count * ls_state_element_size(state->tensors[i].element));
    }
    write_entry(&zip, "version", "3\n", 2);
    write_end(&zip);
    bool failed = pickle.failed || zip.central.failed;
    free(pickle.bytes);
    free(zip.central.bytes);
    return failed ? ls_fail(LS_DEVICE_FAILED, "out of memory for the headers of %s.pth", stem) : LS_OK;
}
