/* CIFAR-10's binary files: a good set, and every bad one with the line that it must give. */
#include "tests/reference/data_files.h"

#include <unistd.h>

enum { RECORD = 3073, RECORDS = 10000, BYTES = RECORD * RECORDS };

/* Label i % 10; the first pixel '<', so that a record of label 9 looks like a web page after a blank. */
static unsigned char *make_file(size_t records, size_t record) {
    unsigned char *bytes = calloc(records, record);
    assert_non_null(bytes);
    for (size_t i = 0; i < records; i++) {
        unsigned char *at = bytes + i * record;
        at[0] = (unsigned char)(9 - i % 10);
        at[1] = '<';
        at[2] = (unsigned char)i;
        at[record - 1] = (unsigned char)(i >> 8);
    }
    return bytes;
}

static void fresh(void) {
    static const char *const copies[] = {"data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin",
                                         "test_batch.bin"};
    unsigned char *bytes = make_file(RECORDS, RECORD);
    char first[256];
    snprintf(first, sizeof first, "%s", folder_path("data_batch_1.bin"));
    (void)unlink(first);
    folder_write("data_batch_1.bin", bytes, BYTES);
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++) {
        (void)unlink(folder_path(copies[i]));
        assert_int_equal(link(first, folder_path(copies[i])), 0);
    }
    free(bytes);
}

/* Replaces a link by a file of its own. */
static void replace(const char *name, const void *bytes, size_t count) {
    (void)unlink(folder_path(name));
    folder_write(name, bytes, count);
}

static void test_good_files(void **state) {
    (void)state;
    fresh();
    ls_dataset d;
    assert_int_equal(ls_dataset_open(data_spec("cifar10", ""), LS_SPLIT_TRAIN, &d), LS_OK);
    assert_true(d.count == 50000 && d.channels == 3 && d.height == 32 && d.width == 32 && d.classes == 10);
    assert_int_equal(d.labels[0], 9);
    assert_int_equal(d.labels[49999], 0);
    const uint8_t *last = d.pixels + (size_t)49999 * 3072;
    assert_true(last[0] == '<' && last[1] == (9999 & 255) && last[3071] == 9999 >> 8);
    ls_dataset_close(&d);
    data_sizes_agree(data_spec("cifar10", ""), LS_SPLIT_TEST);
}

static void test_missing_files(void **state) {
    (void)state;
    fresh();
    assert_int_equal(unlink(folder_path("data_batch_4.bin")), 0);
    REFUSED(data_spec("cifar10", ""), LS_SPLIT_TRAIN, "data_batch_4.bin", "cannot be opened");
    SIZES_REFUSED(data_spec("cifar10", ""), LS_SPLIT_TRAIN, "data_batch_4.bin", "cannot be opened");
    replace("data_batch_4", "x", 1);
    REFUSED(data_spec("cifar10", "nowhere"), LS_SPLIT_TEST, "test_batch.bin", "cannot be opened");
    assert_int_equal(unlink(folder_path("data_batch_1.bin")), 0);
    replace("data_batch_1", "x", 1);
    REFUSED(data_spec("cifar10", ""), LS_SPLIT_TRAIN, "data_batch_1.bin", "Python version");
    replace("train.bin", "x", 1);
    replace("test.bin", "x", 1);
    REFUSED(data_spec("cifar10", ""), LS_SPLIT_TRAIN, "train.bin and test.bin", "CIFAR-100");
    assert_int_equal(unlink(folder_path("train.bin")), 0);
    REFUSED("cifar10", LS_SPLIT_TRAIN, "cifar10:DIR");
    REFUSED("cifar10:", LS_SPLIT_TRAIN, "cifar10:DIR");
}

static void test_wrong_sizes(void **state) {
    (void)state;
    fresh();
    unsigned char *bytes = make_file(RECORDS, RECORD + 1);
    replace("data_batch_3.bin", bytes, BYTES - 1);
    SIZES_REFUSED(data_spec("cifar10", ""), LS_SPLIT_TRAIN, "data_batch_3.bin", "expected 30730000 bytes",
                  "found 30729999", "cut");
    REFUSED(data_spec("cifar10", ""), LS_SPLIT_TRAIN, "data_batch_3.bin", "expected 30730000 bytes", "found 30729999");
    replace("data_batch_3.bin", bytes, BYTES + 7);
    REFUSED(data_spec("cifar10", ""), LS_SPLIT_TRAIN, "found 30730007", "not one of CIFAR-10's");
    replace("test_batch.bin", bytes, (size_t)RECORDS * (RECORD + 1));
    REFUSED(data_spec("cifar10", ""), LS_SPLIT_TEST, "test_batch.bin", "found 30740000", "CIFAR-100");
    replace("test_batch.bin", "", 0);
    REFUSED(data_spec("cifar10", ""), LS_SPLIT_TEST, "test_batch.bin", "empty file");
    free(bytes);
}

/* The size of a CIFAR-10 file, but records of CIFAR-100, or a damaged label. */
static void test_wrong_labels(void **state) {
    (void)state;
    fresh();
    unsigned char *bytes = make_file(RECORDS, RECORD);
    bytes[(size_t)777 * RECORD] = 19;
    replace("data_batch_2.bin", bytes, BYTES);
    REFUSED(data_spec("cifar10", ""), LS_SPLIT_TRAIN, "data_batch_2.bin", "byte 2387721 (record 777)",
            "label of 0 to 9", "found 19");
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_files),
        cmocka_unit_test(test_missing_files),
        cmocka_unit_test(test_wrong_sizes),
        cmocka_unit_test(test_wrong_labels),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
