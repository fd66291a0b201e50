/* .pth as a zip archive: the bytes that are written, round trips, and archives that must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <zip.h>
#include <zlib.h>

#include "tests/reference/checkpoint_fixture.h"
#include "tests/reference/folder.h"

#define BYTES(text) (text), sizeof(text) - 1

static void read_file(const char *name, builder *b) {
    b->size = folder_read(name, b->data, sizeof b->data);
}

static void add(ls_state *state, const char *name, ls_element element, size_t dims, const size_t *shape,
                const void *values) {
    ls_state_tensor *tensor = NULL;
    assert_int_equal(ls_state_add(state, name, element, dims, shape, &tensor), LS_OK);
    if (tensor->count > 0) {
        memcpy(tensor->data, values, tensor->count * ls_state_element_size(element));
    }
}

/* Writing. */

static uint64_t number_at(const builder *b, size_t at, size_t width) {
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++) {
        value |= (uint64_t)b->data[at + i] << (8 * i);
    }
    return value;
}

/* The entry whose local header is at `at`: name and contents, stored, aligned, with its checksum. Returns where it ends. */
static size_t check_entry(const builder *b, size_t at, const char *name, const void *bytes, size_t size) {
    assert_memory_equal(b->data + at, "PK\3\4", 4);
    size_t length = (size_t)number_at(b, at + 26, 2), extra = (size_t)number_at(b, at + 28, 2);
    size_t start = at + 30 + length + extra;
    assert_int_equal(number_at(b, at + 8, 2), 0); /* stored */
    assert_int_equal(number_at(b, at + 14, 4), crc32_z(0, bytes, size));
    assert_int_equal(number_at(b, at + 18, 4), size);
    assert_int_equal(number_at(b, at + 22, 4), size);
    assert_int_equal(length, strlen(name));
    assert_memory_equal(b->data + at + 30, name, length);
    assert_memory_equal(b->data + at + 30 + length, "FB", 2);
    assert_int_equal(number_at(b, at + 30 + length + 2, 2), extra - 4);
    assert_int_equal(start % 64, 0);
    assert_memory_equal(b->data + start, bytes, size);
    return start + size;
}

static void test_bytes_of_the_file(void **unused) {
    (void)unused;
    static builder b;
    ls_state state = {0};
    const float w[6] = {0.5F, -1, 2, 3, 4, 5};
    const int64_t n = 7;
    add(&state, "fc.weight", LS_ELEMENT_FLOAT32, 2, (size_t[]){2, 3}, w);
    add(&state, "n", LS_ELEMENT_INT64, 0, NULL, &n);
    assert_int_equal(ls_state_write(folder_path("my model.pth"), &state), LS_OK);
    ls_state_free(&state);
    read_file("my model.pth", &b);
    const char pickle[] = "\x80\x02"
                          "ccollections\nOrderedDict\n)R("
                          "X\x09\0\0\0fc.weightctorch._utils\n_rebuild_tensor_v2\n("
                          "(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
                          "0X\x03\0\0\0cpuK\x06tQK\0(K\x02K\x03t(K\x03K\x01t\x89"
                          "ccollections\nOrderedDict\n)RtR"
                          "X\x01\0\0\0nctorch._utils\n_rebuild_tensor_v2\n("
                          "(X\x07\0\0\0storagectorch\nLongStorage\nX\x01\0\0\0"
                          "1X\x03\0\0\0cpuK\x01tQK\0(t(t\x89"
                          "ccollections\nOrderedDict\n)RtRu.";
    size_t at = check_entry(&b, 0, "my model/data.pkl", BYTES(pickle));
    at = check_entry(&b, at, "my model/byteorder", BYTES("little"));
    at = check_entry(&b, at, "my model/data/0", w, sizeof w);
    at = check_entry(&b, at, "my model/data/1", &n, sizeof n);
    at = check_entry(&b, at, "my model/version", BYTES("3\n"));
    assert_memory_equal(b.data + at, "PK\1\2", 4); /* and the rest as libzip, which wrote none of it, understands it */
    int error = 0;
    zip_t *zip = zip_open(folder_path("my model.pth"), ZIP_RDONLY | ZIP_CHECKCONS, &error);
    assert_non_null(zip);
    assert_int_equal(zip_get_num_entries(zip, 0), 5);
    zip_discard(zip);
}

static void test_round_trip(void **unused) {
    (void)unused;
    ls_state state = {0}, read = {0};
    float large[70000]; /* BININT in the pickle */
    for (size_t i = 0; i < 70000; i++) {
        large[i] = (float)i;
    }
    const double wide[3] = {0.1, -0.0, 1e300};
    const int64_t n = -5;
    add(&state, "large", LS_ELEMENT_FLOAT32, 1, (size_t[]){70000}, large);
    add(&state, "wide", LS_ELEMENT_FLOAT64, 2, (size_t[]){3, 1}, wide);
    add(&state, "n", LS_ELEMENT_INT64, 0, NULL, &n);
    add(&state, "empty", LS_ELEMENT_FLOAT32, 2, (size_t[]){0, 300}, NULL);
    const char *const names[] = {"m.pth", "m.pt", "m.safetensors"};
    for (size_t f = 0; f < 3; f++) {
        assert_int_equal(ls_state_write(folder_path(names[f]), &state), LS_OK);
        assert_int_equal(ls_state_read(folder_path(names[f]), &read), LS_OK);
        assert_int_equal(read.count, state.count);
        for (size_t i = 0; i < read.count; i++) {
            const ls_state_tensor *a = &state.tensors[i], *b = &read.tensors[i];
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->element, b->element);
            assert_int_equal(a->dims, b->dims);
            assert_memory_equal(a->shape, b->shape, sizeof a->shape);
            assert_int_equal(memcmp(a->data, b->data, a->count * ls_state_element_size(a->element)), 0);
        }
        ls_state_free(&read);
    }
    ls_state_free(&state);
}

/* Archives that libzip writes. */

typedef struct zip_entry {
    const char *name;
    const void *bytes;
    size_t size;
    bool deflated;
} zip_entry;

static void make_archive(const char *name, const zip_entry *entries, size_t count) {
    int error = 0;
    zip_t *zip = zip_open(folder_path(name), ZIP_CREATE | ZIP_TRUNCATE, &error);
    assert_non_null(zip);
    for (size_t i = 0; i < count; i++) {
        zip_source_t *source = zip_source_buffer(zip, entries[i].bytes, entries[i].size, 0);
        zip_int64_t index = zip_file_add(zip, entries[i].name, source, ZIP_FL_ENC_UTF_8);
        assert_true(source != NULL && index >= 0);
        assert_int_equal(
            zip_set_file_compression(zip, (zip_uint64_t)index, entries[i].deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 9),
            0);
    }
    assert_int_equal(zip_close(zip), 0);
}

/* A state_dict of one tensor 'w' of 2 floats in storage 'k'. */
static const char one[] =
    "\x80\x02}(X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n("
    "(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0kX\x03\0\0\0cpuK\x02tQK\0K\x02\x85K\x01\x85\x89"
    "ccollections\nOrderedDict\n)RtRu.";
static const float two[2] = {1.5F, -2};

static void expect_archive(const zip_entry *entries, size_t count, const char *words) {
    static builder b;
    make_archive("made.pth", entries, count);
    read_file("made.pth", &b);
    if (words != NULL) {
        expect_bad(ls_pth_read, b.data, b.size, words);
        return;
    }
    ls_state read = {0};
    expect_good(ls_pth_read, b.data, b.size, &read);
    expect_values(&read, "w", 2, (double[]){1.5, -2});
    ls_state_free(&read);
}

static void test_archives(void **unused) {
    (void)unused;
    static char zeros[1 << 20];
    const zip_entry pickle = {"any/data.pkl", BYTES(one), false}, data = {"any/data/k", two, sizeof two, false};
    expect_archive((zip_entry[]){pickle, data}, 2, NULL);
    expect_archive((zip_entry[]){data, {"any/byteorder", BYTES("little"), false}, pickle}, 3, NULL);
    expect_archive((zip_entry[]){data, {"any/byteorder", BYTES("big"), false}, pickle}, 3, "expected little");
    expect_archive((zip_entry[]){pickle}, 1, "entry any/data/k is missing");
    expect_archive((zip_entry[]){data}, 1, "expected an entry FOLDER/data.pkl");
    expect_archive((zip_entry[]){{"data.pkl", BYTES(one), false}, data}, 2, "expected an entry FOLDER/data.pkl");
    expect_archive((zip_entry[]){pickle, data, {"any/constants.pkl", "", 0, false}}, 3, "TorchScript");
    expect_archive((zip_entry[]){pickle, {"any/data/k", two, 4, false}}, 2, "expected 2 elements of float32, found 4");
    expect_archive((zip_entry[]){pickle, {"any/data/k", "123456789", 9, false}}, 2, "2 elements of float32, found 9");
    expect_archive((zip_entry[]){pickle, {"any/data/k", zeros, sizeof zeros, true}}, 2, "found it compressed");
    expect_archive((zip_entry[]){{"any/data.pkl", zeros, sizeof zeros, true}, data}, 2, "found it compressed");
    expect_archive((zip_entry[]){{"any/data.pkl", "", 0, false}, data}, 2, "data.pkl, byte 0: expected 1 more bytes");
    expect_archive((zip_entry[]){{"any/data.pkl", one, sizeof one, false}, data}, 2, "found 1 more bytes");
    expect_archive((zip_entry[]){{"any/data.pkl",
                                  BYTES("\x80\x02"
                                        "cos\nsystem\n."),
                                  false},
                                 data},
                   2, "os.system");
}

/* Every cut, and every single byte changed: refused in one line, or a whole state. */
static void test_damaged_archives(void **unused) {
    (void)unused;
    static builder b;
    make_archive("made.pth", (zip_entry[]){{"a/data.pkl", BYTES(one), false}, {"a/data/k", two, sizeof two, false}}, 2);
    read_file("made.pth", &b);
    for (size_t size = 4; size < b.size; size++) {
        expect_bad(ls_pth_read, b.data, size, size < b.size - 22 ? "(truncated)" : "");
    }
    size_t data = b.size;
    for (size_t i = 0; i + sizeof two <= b.size; i++) {
        data = memcmp(b.data + i, two, sizeof two) == 0 ? i : data;
    }
    b.data[data] ^= 1;
    expect_bad(ls_pth_read, b.data, b.size, "entry a/data/k is damaged: CRC error");
    b.data[data] ^= 1;
    int saved = dup(STDERR_FILENO);
    assert_non_null(freopen("/dev/null", "w", stderr));
    for (size_t i = 0; i < b.size; i++) {
        for (unsigned flip = 1; flip < 256; flip <<= 1) {
            ls_state read = {0};
            b.data[i] ^= (unsigned char)flip;
            ls_rc rc = ls_pth_read(&(ls_file_bytes){.path = "x", .bytes = b.data, .size = b.size}, &read);
            b.data[i] ^= (unsigned char)flip;
            assert_true(rc == LS_BAD_INPUT || (rc == LS_OK && read.count == 1));
            ls_state_free(&read);
        }
    }
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
}

/* One stretch of the file under the names of several entries: more bytes than the file has. */
static void test_overlapping_entries(void **unused) {
    (void)unused;
    static builder b;
    static char blob[2000];
    builder *pickle = calloc(1, sizeof *pickle);
    assert_non_null(pickle);
    zip_entry entries[9];
    char names[8][16];
    put(pickle, BYTES("\x80\x02}("));
    for (unsigned i = 0; i < 8; i++) {
        put(pickle, BYTES("X\x01\0\0\0"));
        put_byte(pickle, '0' + i);
        put(pickle, BYTES("ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"));
        put_byte(pickle, '0' + i);
        put(pickle, BYTES("X\x03\0\0\0cpuM\xf4\x01tQK\0K\x01\x85K\x01\x85\x89)tR"));
        snprintf(names[i], sizeof names[i], "a/data/%u", i);
        entries[i + 1] = (zip_entry){names[i], blob, sizeof blob, false};
    }
    put(pickle, BYTES("u."));
    entries[0] = (zip_entry){"a/data.pkl", pickle->data, pickle->size, false};
    make_archive("made.pth", entries, 9);
    read_file("made.pth", &b);
    ls_state read = {0};
    expect_good(ls_pth_read, b.data, b.size, &read);
    ls_state_free(&read);
    /* The directory's entries 1.. all point at entry 1's local header, and the seven others' bytes go. */
    size_t end = b.size - 22, first = (size_t)number_at(&b, end + 16, 4), target = 0, tail = b.size - first;
    for (size_t at = first, i = 0; i < 9; i++) {
        size_t offset = (size_t)number_at(&b, at + 42, 4);
        target = i == 1 ? offset : target;
        for (size_t k = 0; i > 1 && k < 4; k++) {
            b.data[at + 42 + k] = (unsigned char)(target >> (8 * k));
        }
        at += 46 + (size_t)(number_at(&b, at + 28, 2) + number_at(&b, at + 30, 2) + number_at(&b, at + 32, 2));
    }
    size_t kept = target + 30 + 8 + sizeof blob; /* a/data/0 has 8 letters */
    memmove(b.data + kept, b.data + first, tail);
    b.size = kept + tail;
    for (size_t k = 0; k < 4; k++) {
        b.data[b.size - 22 + 16 + k] = (unsigned char)(kept >> (8 * k));
    }
    expect_bad(ls_pth_read, b.data, b.size, "they overlap");
    free(pickle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_the_file),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_archives),
        cmocka_unit_test(test_damaged_archives),
        cmocka_unit_test(test_overlapping_entries),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
