/* Raw containers: what is written reads back, and every damage gives its line. */
#include "tests/reference/data_files.h"

#include <math.h>
#include <unistd.h>
#include <zlib.h>

#include "reference/data/raw_format.h"
#include "reference/raw.h"

enum { TRAIN = 5, TEST = 3, FEATURES = 2 * 3 * 4, TARGETS = 2, MAX_BYTES = 4096 };

/* A data set of 2x3x4: bytes or floats, labels of 3 classes or targets. Owned by the caller. */
static ls_dataset make(size_t count, bool floats, bool targets) {
    ls_dataset d = {.count = count, .channels = 2, .height = 3, .width = 4, .floats = floats};
    d.classes = targets ? 0 : 3;
    d.target_count = targets ? TARGETS : 0;
    d.labels = calloc(count, sizeof *d.labels);
    d.pixels = floats ? NULL : calloc(count, FEATURES);
    d.values = floats ? calloc(count * FEATURES, sizeof *d.values) : NULL;
    d.targets = targets ? calloc(count * TARGETS, sizeof *d.targets) : NULL;
    for (size_t i = 0; i < count * FEATURES; i++) {
        if (floats) {
            d.values[i] = (float)i * -0.37f;
        } else {
            d.pixels[i] = (uint8_t)(i * 5);
        }
    }
    for (size_t i = 0; i < count; i++) {
        d.labels[i] = targets ? 0 : (int32_t)(i % 3);
    }
    for (size_t i = 0; targets && i < count * TARGETS; i++) {
        d.targets[i] = (float)i / 3;
    }
    return d;
}

static void write_container(bool floats, bool targets) {
    ls_dataset train = make(TRAIN, floats, targets), test = make(TEST, floats, targets);
    assert_int_equal(ls_raw_write(folder_path("set.raw"), &train, &test), LS_OK);
    ls_dataset_close(&train);
    ls_dataset_close(&test);
}

static void assert_same(const ls_dataset *a, const ls_dataset *b) {
    assert_true(a->count == b->count && a->channels == b->channels && a->height == b->height && a->width == b->width);
    assert_true(a->classes == b->classes && a->target_count == b->target_count && a->floats == b->floats);
    assert_memory_equal(a->labels, b->labels, a->count * sizeof *a->labels);
    if (a->floats) {
        assert_memory_equal(a->values, b->values, a->count * FEATURES * sizeof *a->values);
    } else {
        assert_memory_equal(a->pixels, b->pixels, a->count * FEATURES);
    }
    if (a->target_count > 0) {
        assert_memory_equal(a->targets, b->targets, a->count * TARGETS * sizeof *a->targets);
    }
}

static void test_round_trips(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        write_container((kind & 1) != 0, (kind & 2) != 0);
        for (int split = 0; split < 2; split++) {
            ls_dataset expected = make(split == 0 ? TRAIN : TEST, (kind & 1) != 0, (kind & 2) != 0), found;
            assert_int_equal(ls_dataset_open(data_spec("raw", "set.raw"), (ls_split)split, &found), LS_OK);
            assert_same(&expected, &found);
            ls_dataset_close(&expected);
            ls_dataset_close(&found);
            data_sizes_agree(data_spec("raw", "set.raw"), (ls_split)split);
        }
    }
    assert_int_equal(access(folder_path("set.raw"), R_OK), 0);
}

static size_t read_file(const char *name, unsigned char *bytes) {
    FILE *file = fopen(folder_path(name), "rb");
    assert_non_null(file);
    size_t size = fread(bytes, 1, MAX_BYTES, file);
    assert_true(size > 0 && size < MAX_BYTES);
    assert_int_equal(fclose(file), 0);
    return size;
}

/* Writes the container with a right checksum over what was changed. */
static void write_resigned(unsigned char *bytes, size_t size) {
    uint32_t crc = (uint32_t)crc32(0, bytes, (uInt)(size - 4));
    for (size_t i = 0; i < 4; i++) {
        bytes[size - 4 + i] = (unsigned char)(crc >> (8 * i));
    }
    folder_write("set.raw", bytes, size);
}

static void put(unsigned char *at, size_t size, uint64_t value) {
    for (size_t i = 0; i < size; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

static void test_headers(void **state) {
    (void)state;
    static const struct {
        size_t at, size;
        uint64_t value;
        const char *found;
    } bad[] = {
        {0, 1, 'l', "mark of a raw container"},
        {8, 4, 2, "a version of 1 to 1, found 2"},
        {12, 4, 3, "an element type of 1 to 2, found 3"},
        {16, 4, 0, "a kind of answers of 1 to 2, found 0"},
        {20, 4, 0, "a number of classes of 1 to"},
        {24, 4, 0, "a number of channels of 1 to"},
        {28, 4, UINT32_MAX, "a height of 1 to"},
        {32, 4, 0, "a width of 1 to"},
        {36, 4, 1, "reserved byte"},
        {40, 8, 0, "a number of training samples of 1 to"},
        {40, 8, UINT64_MAX, "a number of training samples of 1 to"},
        {40, 8, UINT64_C(1) << 40, "cannot hold more than"},
        {40, 8, 6, "cannot hold more than"},
        {28, 4, 1 << 24, "cannot hold more than"},
        {48, 8, UINT64_MAX, "a number of test samples of 0 to"},
        {60, 1, 9, "reserved byte"},
    };
    unsigned char good[MAX_BYTES], bytes[MAX_BYTES];
    write_container(true, false);
    size_t size = read_file("set.raw", good);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memcpy(bytes, good, size);
        put(bytes + bad[i].at, bad[i].size, bad[i].value);
        write_resigned(bytes, size);
        REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TRAIN, "set.raw", bad[i].found);
        SIZES_REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TRAIN, "set.raw", bad[i].found);
    }
    /* sides at their limits: the product of all sizes does not fit into 64 bits */
    memcpy(bytes, good, size);
    for (size_t at = 24; at <= 32; at += 4) {
        put(bytes + at, 4, 1 << 24);
    }
    write_resigned(bytes, size);
    SIZES_REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TRAIN, "cannot hold more than");
}

static void test_cut_long_and_damaged(void **state) {
    (void)state;
    unsigned char good[MAX_BYTES];
    for (int kind = 0; kind < 4; kind++) {
        write_container((kind & 1) != 0, (kind & 2) != 0);
        size_t size = read_file("set.raw", good);
        for (size_t cut = 1; cut < size; cut += cut < 80 ? 1 : 13) {
            folder_write("set.raw", good, cut);
            REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TEST, "set.raw", "trunc");
        }
        good[size] = 0;
        folder_write("set.raw", good, size + 1);
        REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TRAIN, "expected the end after the checksum");
        good[size - 4] ^= 1;
        folder_write("set.raw", good, size);
        REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TRAIN, "expected the checksum", "damaged");
    }
    unsigned char *pixel = &good[LS_RAW_HEADER_BYTES];
    write_container(false, false);
    size_t size = read_file("set.raw", good);
    *pixel ^= 8;
    folder_write("set.raw", good, size);
    REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TEST, "expected the checksum", "damaged");
    REFUSED("raw:", LS_SPLIT_TRAIN, "raw:FILE");
    REFUSED(data_spec("raw", "absent"), LS_SPLIT_TRAIN, "absent", "cannot be opened");
    folder_write("empty", "", 0);
    REFUSED(data_spec("raw", "empty"), LS_SPLIT_TRAIN, "empty file");
}

static void test_contents(void **state) {
    (void)state;
    unsigned char bytes[MAX_BYTES];
    write_container(false, false);
    size_t size = read_file("set.raw", bytes), labels = LS_RAW_HEADER_BYTES + TRAIN * FEATURES;
    put(bytes + labels + 4, 4, 3);
    write_resigned(bytes, size);
    REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TEST, "byte 188 (sample 1)", "label of 0 to 2", "found 3");
    put(bytes + labels + 4, 4, UINT32_MAX);
    write_resigned(bytes, size);
    REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TRAIN, "label of 0 to 2", "found -1");
    float bad[] = {NAN, INFINITY};
    write_container(true, true);
    size = read_file("set.raw", bytes);
    memcpy(bytes + LS_RAW_HEADER_BYTES + 4 * FEATURES, &bad[0], 4);
    write_resigned(bytes, size);
    REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TRAIN, "byte 160 (sample 1)", "finite value", "nan");
    write_container(true, true);
    size = read_file("set.raw", bytes);
    memcpy(bytes + LS_RAW_HEADER_BYTES + 4 * TRAIN * FEATURES + 4, &bad[1], 4);
    write_resigned(bytes, size);
    REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TRAIN, "(sample 0)", "finite target", "inf");
}

static void refused_write(const char *path, const ls_dataset *train, const ls_dataset *test, const char *why) {
    stderr_capture errors;
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = ls_raw_write(path, train, test);
    stderr_capture_end(&errors);
    assert_int_equal(rc, LS_BAD_INPUT);
    assert_int_equal(errors.lines, 1);
    assert_non_null(strstr(errors.text, why));
}

static void test_writing(void **state) {
    (void)state;
    ls_dataset train = make(TRAIN, true, false), none = {0}, other = make(TEST, false, false);
    assert_int_equal(ls_raw_write(folder_path("set.raw"), &train, &none), LS_OK);
    data_sizes_agree(data_spec("raw", "set.raw"), LS_SPLIT_TRAIN);
    REFUSED(data_spec("raw", "set.raw"), LS_SPLIT_TEST, "at least 1 test sample", "found 0");
    refused_write(folder_path("other.raw"), &train, &other, "samples of one kind");
    refused_write("/nonexistent/folder/set.raw", &train, &none, "/nonexistent/folder/set.raw: cannot be written");
    assert_int_equal(access(folder_path("other.raw"), F_OK), -1);
    ls_dataset_close(&train);
    ls_dataset_close(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_headers), cmocka_unit_test(test_cut_long_and_damaged),
        cmocka_unit_test(test_contents),    cmocka_unit_test(test_writing),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
