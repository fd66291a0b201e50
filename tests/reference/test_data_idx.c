/* Folders of IDX files of any shape and number of classes. */
#include "tests/reference/data_files.h"

#include <unistd.h>

enum { N = 6, C = 2, H = 3, W = 4 };

static void put_word(unsigned char *at, uint32_t word) {
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(word >> (24 - 8 * i));
    }
}

/* dims 4: [count][C][H][W], 3: [count][H][W]. */
static void write_images(const char *name, size_t dims, size_t count) {
    unsigned char bytes[4 + 16 + N * C * H * W];
    const size_t shape[4] = {count, C, H, W};
    size_t at = 4, values = count * H * W * (dims == 4 ? C : 1);
    put_word(bytes, 0x800 + (uint32_t)dims);
    for (size_t d = 0; d < 4; d++) {
        if (d != 1 || dims == 4) {
            put_word(bytes + at, (uint32_t)shape[d]);
            at += 4;
        }
    }
    for (size_t i = 0; i < values; i++) {
        bytes[at + i] = (unsigned char)(i * 3 + 1);
    }
    folder_write(name, bytes, at + values);
}

static void write_labels(const char *name, size_t count, unsigned char first) {
    unsigned char bytes[8 + N];
    put_word(bytes, 0x801);
    put_word(bytes + 4, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        bytes[8 + i] = (unsigned char)(first + i);
    }
    folder_write(name, bytes, 8 + count);
}

static void fresh(size_t dims) {
    char command[128];
    snprintf(command, sizeof command, "rm -f '%s'/*", folder);
    assert_int_equal(system(command), 0);
    write_images("emnist-letters-train-images-idx-ubyte", dims, N);
    write_labels("emnist-letters-train-labels-idx1-ubyte", N, 21);
    write_images("t10k-images", dims, N - 1);
    write_labels("t10k-labels", N - 1, 0);
}

static void test_shapes_and_classes(void **state) {
    (void)state;
    for (size_t dims = 3; dims <= 4; dims++) {
        fresh(dims);
        ls_dataset d;
        assert_int_equal(ls_dataset_open(data_spec("idx", ""), LS_SPLIT_TRAIN, &d), LS_OK);
        assert_true(d.count == N && d.channels == (dims == 4 ? C : 1) && d.height == H && d.width == W);
        assert_int_equal(d.classes, 27); /* the largest label is 26 */
        assert_int_equal(d.labels[N - 1], 26);
        size_t features = ls_dataset_features(&d);
        assert_int_equal(d.pixels[N * features - 1], (unsigned char)((N * features - 1) * 3 + 1));
        ls_dataset_close(&d);
        data_sizes_agree(data_spec("idx", ""), LS_SPLIT_TRAIN);
        data_sizes_agree(data_spec("idx", ""), LS_SPLIT_TEST);
    }
}

static void test_file_names(void **state) {
    (void)state;
    REFUSED("idx", LS_SPLIT_TRAIN, "idx:DIR");
    REFUSED("idx:/nowhere/at/all", LS_SPLIT_TRAIN, "/nowhere/at/all", "folder of IDX files");
    fresh(3);
    assert_int_equal(unlink(folder_path("t10k-labels")), 0);
    REFUSED(data_spec("idx", ""), LS_SPLIT_TEST, "\"test\" or \"t10k\" and \"label\"", "found none");
    write_labels("test-labels", N - 1, 0);
    data_sizes_agree(data_spec("idx", ""), LS_SPLIT_TEST);
    write_labels("t10k-labels", N - 1, 0);
    REFUSED(data_spec("idx", ""), LS_SPLIT_TEST, "one file of test labels", "t10k-labels and test-labels");
    SIZES_REFUSED(data_spec("idx", ""), LS_SPLIT_TEST, "one file of test labels");
}

static void test_contents(void **state) {
    (void)state;
    fresh(4);
    write_labels("t10k-labels", N - 1, 23);
    REFUSED(data_spec("idx", ""), LS_SPLIT_TEST, "t10k-labels", "byte 12 (record 4)", "label of 0 to 26", "found 27");
    write_labels("t10k-labels", N - 2, 0);
    REFUSED(data_spec("idx", ""), LS_SPLIT_TEST, "t10k-images", "has labels, 4", "found 5");
    SIZES_REFUSED(data_spec("idx", ""), LS_SPLIT_TEST, "t10k-images", "has labels, 4", "found 5");
    write_labels("t10k-images", N - 1, 0);
    REFUSED(data_spec("idx", ""), LS_SPLIT_TEST, "t10k-images", "0x00000803 to 0x00000804", "found 0x00000801");
    unsigned char absurd[20] = {0, 0, 8, 4};
    memset(absurd + 4, 0xff, 16);
    folder_write("t10k-images", absurd, sizeof absurd);
    SIZES_REFUSED(data_spec("idx", ""), LS_SPLIT_TEST, "t10k-images", "at most 2147483648 bytes");
    fresh(4);
    assert_int_equal(truncate(folder_path("t10k-images"), 50), 0);
    REFUSED(data_spec("idx", ""), LS_SPLIT_TEST, "t10k-images", "truncated");
    SIZES_REFUSED(data_spec("idx", ""), LS_SPLIT_TEST, "t10k-images", "truncated");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_and_classes),
        cmocka_unit_test(test_file_names),
        cmocka_unit_test(test_contents),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
