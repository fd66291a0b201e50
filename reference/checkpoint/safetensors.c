/* The format is that of huggingface/safetensors (README.md, "Format"): an unsigned 64-bit little-endian header length, a
 * JSON header padded with blanks to a multiple of 8, then the tensors without gaps in the order of their offsets. */
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "reference/checkpoint/formats.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are written as they lie in memory");

/* The format allows 100,000,000 bytes of header; a parsed one takes some sixty times its text, so less is allowed here. It
 * still has room for LS_STATE_MAX_TENSORS. */
enum { PREFIX = 8, HEADER_LIMIT = 4 << 20 };

static const char *const dtypes[LS_ELEMENT_COUNT] = {"F32", "F64", "I64", "F16", "BF16"};

/* Writing. */

/* Adds one tensor's entry; *offset goes on to its end. */
static int describe_tensor(json_t *header, const ls_state_tensor *tensor, uint64_t *offset) {
    json_t *shape = json_array();
    for (size_t d = 0; shape != NULL && d < tensor->dims; d++) {
        if (json_array_append_new(shape, json_integer((json_int_t)tensor->shape[d])) != 0) {
            json_decref(shape);
            return -1;
        }
    }
    uint64_t end = *offset + tensor->count * ls_state_element_size(tensor->element);
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[tensor->element], "shape", shape, "data_offsets",
                              (json_int_t)*offset, (json_int_t)end);
    *offset = end;
    return json_object_set_new(header, tensor->name, entry);
}

/* The header as text, padded to a multiple of 8; NULL when memory is short. The caller frees. */
static char *make_header(const ls_state *state, size_t *length) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    json_t *metadata = json_object_get(header, "__metadata__");
    uint64_t offset = 0;
    int status = header == NULL ? -1 : 0;
    for (size_t i = 0; i < state->text_count && status == 0; i++) {
        status = json_object_set_new(metadata, state->texts[i].key, json_string(state->texts[i].value));
    }
    for (size_t i = 0; i < state->count && status == 0; i++) {
        status = describe_tensor(header, &state->tensors[i], &offset);
    }
    char *text = status == 0 ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (text == NULL) {
        return NULL;
    }
    size_t used = strlen(text);
    *length = (used + 7) / 8 * 8;
    char *padded = malloc(*length + 1);
    if (padded != NULL) {
        memset(padded, ' ', *length);
        memcpy(padded, text, used);
        padded[*length] = '\0';
    }
    free(text);
    return padded;
}

ls_rc ls_safetensors_write(ls_file_writer *writer, const char *stem, const ls_state *state) {
    (void)stem;
    size_t length = 0;
    char *header = make_header(state, &length);
    if (header == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the header of a safetensors file");
    }
    unsigned char size[PREFIX];
    for (size_t i = 0; i < sizeof size; i++) {
        size[i] = (unsigned char)((uint64_t)length >> (8 * i));
    }
    ls_file_write(writer, size, sizeof size);
    ls_file_write(writer, header, length);
    for (size_t i = 0; i < state->count; i++) {
        const ls_state_tensor *tensor = &state->tensors[i];
        ls_file_write(writer, tensor->data, tensor->count * ls_state_element_size(tensor->element));
    }
    free(header);
    return LS_OK;
}

/* Reading. */

/* A tensor as the header tells it. */
typedef struct entry {
    const char *name; /* the header's */
    ls_element element;
    size_t dims;
    size_t shape[LS_STATE_MAX_DIMS];
    uint64_t begin, end; /* into the buffer behind the header */
} entry;

static ls_rc fail_tensor(const ls_file_bytes *file, const char *name, const char *what) {
    return ls_fail(LS_BAD_INPUT, "%s: header, tensor '%.100s': %s", file->path, name, what);
}

/* The length of the header, checked against the file. */
static ls_rc read_length(const ls_file_bytes *file, size_t *length) {
    if (file->size < PREFIX + 2) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: expected a safetensors file (8 bytes of length and a header), found %zu bytes", file->path,
                       file->size);
    }
    uint64_t value = 0;
    for (size_t i = 0; i < PREFIX; i++) {
        value |= (uint64_t)file->bytes[i] << (8 * i);
    }
    if (value < 2 || value > HEADER_LIMIT) {
        return ls_fail(
            LS_BAD_INPUT,
            "%s: byte 0: expected the header's length, 2 to %d bytes, found %llu; the file is damaged or not "
            "in safetensors format",
            file->path, HEADER_LIMIT, (unsigned long long)value);
    }
    if (value > file->size - PREFIX) {
        return ls_fail(LS_BAD_INPUT, "%s: byte 8: expected a header of %llu bytes, found %zu (truncated)", file->path,
                       (unsigned long long)value, file->size - PREFIX);
    }
    if (file->bytes[PREFIX] != '{') {
        return ls_fail(LS_BAD_INPUT, "%s: byte 8: expected the header to start with '{', found 0x%02x", file->path,
                       file->bytes[PREFIX]);
    }
    *length = (size_t)value;
    return LS_OK;
}

/* Every value of __metadata__ is a text. */
static ls_rc read_metadata(const ls_file_bytes *file, const json_t *metadata, ls_state *state) {
    if (!json_is_object(metadata)) {
        return ls_fail(LS_BAD_INPUT, "%s: header, __metadata__: expected an object of texts", file->path);
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)metadata, key, value) {
        if (!json_is_string(value)) {
            return ls_fail(LS_BAD_INPUT, "%s: header, __metadata__ '%.100s': expected a text", file->path, key);
        }
        LS_TRY(ls_state_set_text(state, key, json_string_value(value)));
    }
    return LS_OK;
}

static ls_rc read_dtype(const ls_file_bytes *file, const json_t *value, entry *out) {
    const char *dtype = json_string_value(value);
    for (size_t i = 0; dtype != NULL && i < LS_ELEMENT_COUNT; i++) {
        if (strcmp(dtype, dtypes[i]) == 0) {
            out->element = (ls_element)i;
            return LS_OK;
        }
    }
    return ls_fail(LS_BAD_INPUT, "%s: header, tensor '%.100s': expected dtype F32, F64, F16, BF16 or I64, found %.20s",
                   file->path, out->name, dtype != NULL ? dtype : "none");
}

/* The shape, whose bytes must not overflow; *bytes: of the tensor. */
static ls_rc read_shape(const ls_file_bytes *file, const json_t *shape, entry *out, uint64_t *bytes) {
    if (!json_is_array(shape) || json_array_size(shape) > LS_STATE_MAX_DIMS) {
        return fail_tensor(file, out->name, "expected a shape, a list of at most 8 sizes");
    }
    *bytes = ls_state_element_size(out->element);
    bool empty = false;
    out->dims = json_array_size(shape);
    for (size_t d = 0; d < out->dims; d++) {
        const json_t *size = json_array_get(shape, d);
        json_int_t value = json_integer_value(size);
        if (!json_is_integer(size) || value < 0) {
            return fail_tensor(file, out->name, "expected sizes of 0 or more in its shape");
        }
        if (value > 0 && *bytes > (uint64_t)INT64_MAX / (uint64_t)value) {
            return fail_tensor(file, out->name, "its shape is larger than any memory");
        }
        *bytes *= value > 0 ? (uint64_t)value : 1; /* an overflow beside a 0 is refused as well */
        empty = empty || value == 0;
        out->shape[d] = (size_t)value;
    }
    *bytes = empty ? 0 : *bytes;
    return LS_OK;
}

static ls_rc read_entry(const ls_file_bytes *file, const char *name, const json_t *value, uint64_t buffer, entry *out) {
    *out = (entry){.name = name};
    if (!json_is_object(value) || json_object_size(value) != 3) {
        return fail_tensor(file, name, "expected dtype, shape and data_offsets, nothing else");
    }
    if (strlen(name) > LS_STATE_MAX_NAME) {
        return fail_tensor(file, name, "its name is longer than 512 bytes");
    }
    uint64_t bytes = 0;
    LS_TRY(read_dtype(file, json_object_get(value, "dtype"), out));
    LS_TRY(read_shape(file, json_object_get(value, "shape"), out, &bytes));
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin)) {
        return fail_tensor(file, name, "expected data_offsets [begin, end], two numbers that do not decrease");
    }
    out->begin = (uint64_t)json_integer_value(begin);
    out->end = (uint64_t)json_integer_value(end);
    if (out->end > buffer) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: header, tensor '%.100s': its data ends at %llu, the file has %llu bytes of data",
                       file->path, name, (unsigned long long)out->end, (unsigned long long)buffer);
    }
    if (out->end - out->begin != bytes) {
        char shape[160];
        return ls_fail(LS_BAD_INPUT,
                       "%s: header, tensor '%.100s': expected %llu bytes for %s %s, found offsets over %llu",
                       file->path, name, (unsigned long long)bytes, dtypes[out->element],
                       ls_state_shape_text(out->dims, out->shape, shape, sizeof shape),
                       (unsigned long long)(out->end - out->begin));
    }
    return LS_OK;
}

static int by_offset(const void *a, const void *b) {
    const entry *const *x = a;
    const entry *const *y = b;
    if ((*x)->begin != (*y)->begin) {
        return (*x)->begin < (*y)->begin ? -1 : 1;
    }
    return (*x)->end < (*y)->end ? -1 : (*x)->end > (*y)->end;
}

/* One tensor begins where another ended, from the first byte of the buffer to its last. */
static ls_rc check_cover(const ls_file_bytes *file, const entry *entries, size_t count, uint64_t buffer) {
    const entry **sorted = ls_calloc(count, sizeof(const entry *), "the tensors of a file");
    if (sorted == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &entries[i];
    }
    qsort(sorted, count, sizeof(const entry *), by_offset);
    uint64_t at = 0;
    ls_rc rc = LS_OK;
    for (size_t i = 0; i < count && rc == LS_OK; i++) {
        if (sorted[i]->begin != at) {
            rc = ls_fail(LS_BAD_INPUT, "%s: header, tensor '%.100s': expected its data at %llu, found %llu (%s)",
                         file->path, sorted[i]->name, (unsigned long long)at, (unsigned long long)sorted[i]->begin,
                         sorted[i]->begin < at ? "it overlaps another" : "a gap");
        }
        at = sorted[i]->end;
    }
    free(sorted);
    if (rc == LS_OK && at != buffer) {
        rc = ls_fail(LS_BAD_INPUT, "%s: expected %llu bytes of data as the header says, found %llu", file->path,
                     (unsigned long long)at, (unsigned long long)buffer);
    }
    return rc;
}

static ls_rc copy_tensors(const unsigned char *buffer, const entry *entries, size_t count, ls_state *state) {
    for (size_t i = 0; i < count; i++) {
        const entry *e = &entries[i];
        ls_state_tensor *tensor = NULL;
        LS_TRY(ls_state_add(state, e->name, ls_state_element_in_memory(e->element), e->dims, e->shape, &tensor));
        ls_state_element_widen(e->element, tensor->count, buffer + e->begin, tensor->data);
    }
    return LS_OK;
}

static ls_rc read_header(const ls_file_bytes *file, const json_t *header, size_t length, ls_state *state) {
    const unsigned char *buffer = file->bytes + PREFIX + length;
    uint64_t size = file->size - PREFIX - length;
    if (json_object_size(header) > LS_STATE_MAX_TENSORS) {
        return ls_fail(LS_BAD_INPUT, "%s: header: expected at most %d tensors, found %zu", file->path,
                       LS_STATE_MAX_TENSORS, json_object_size(header));
    }
    entry *entries = ls_calloc(json_object_size(header), sizeof *entries, "the tensors of a file");
    if (entries == NULL) {
        return LS_DEVICE_FAILED;
    }
    size_t count = 0;
    ls_rc rc = LS_OK;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)header, key, value) {
        if (rc != LS_OK) {
            break;
        }
        if (strcmp(key, "__metadata__") == 0) {
            rc = read_metadata(file, value, state);
        } else {
            rc = read_entry(file, key, value, size, &entries[count]);
            count++;
        }
    }
    if (rc == LS_OK) {
        rc = check_cover(file, entries, count, size);
    }
    if (rc == LS_OK) {
        rc = copy_tensors(buffer, entries, count, state);
    }
    free(entries);
    return rc;
}

ls_rc ls_safetensors_read(const ls_file_bytes *file, ls_state *state) {
    size_t length = 0;
    LS_TRY(read_length(file, &length));
    json_error_t error;
    json_t *header = json_loadb((const char *)file->bytes + PREFIX, length, JSON_REJECT_DUPLICATES, &error);
    if (header == NULL) {
        return ls_fail(LS_BAD_INPUT, "%s: byte %d: expected a JSON header: %s", file->path, PREFIX + error.position,
                       error.text);
    }
    ls_rc rc = read_header(file, header, length, state);
    json_decref(header);
    return rc;
}
