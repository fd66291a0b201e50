/* IDX files: good ones in every spelling, and every bad one with the line that it must give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "reference/dataset.h"
#include "reference/idx.h"
#include "tests/reference/folder.h"

enum { IMAGES = 5, SIDE = 28, IMAGE_BYTES = 16 + IMAGES * SIDE * SIDE, LABEL_BYTES = 8 + IMAGES };

static unsigned char image_file[IMAGE_BYTES];
static unsigned char label_file[LABEL_BYTES];

static void put_word(unsigned char *at, uint32_t word) {
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(word >> (24 - 8 * i));
    }
}

static int set_up(void **state) {
    if (folder_make(state) != 0) {
        return -1;
    }
    put_word(image_file, 0x803);
    put_word(image_file + 4, IMAGES);
    put_word(image_file + 8, SIDE);
    put_word(image_file + 12, SIDE);
    for (int i = 0; i < IMAGES * SIDE * SIDE; i++) {
        image_file[16 + i] = (unsigned char)(i * 7 + i / 784);
    }
    put_word(label_file, 0x801);
    put_word(label_file + 4, IMAGES);
    for (int i = 0; i < IMAGES; i++) {
        label_file[8 + i] = (unsigned char)(9 - i);
    }
    return 0;
}

/* Compresses into memory as gzip; the caller frees. */
static unsigned char *gzip(const void *bytes, size_t count, size_t *size) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
    *size = deflateBound(&z, count);
    unsigned char *out = malloc(*size);
    assert_non_null(out);
    z.next_in = (unsigned char *)(uintptr_t)bytes;
    z.avail_in = (uInt)count;
    z.next_out = out;
    z.avail_out = (uInt)*size;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    *size -= z.avail_out;
    deflateEnd(&z);
    return out;
}

static void write_gzip(const char *name, const void *bytes, size_t count) {
    size_t size = 0;
    unsigned char *packed = gzip(bytes, count, &size);
    folder_write(name, packed, size);
    free(packed);
}

/* Runs a call with stderr in a file and checks for exactly one line that holds every one of the words. */
static char error_text[4096];
static int saved_stderr;

static void catch_errors(void) {
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    int file = open(folder_path("stderr"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(saved_stderr >= 0 && file >= 0);
    assert_true(dup2(file, STDERR_FILENO) >= 0);
    close(file);
}

static void release_errors(void) {
    fflush(stderr);
    ssize_t size = pread(STDERR_FILENO, error_text, sizeof error_text - 1, 0);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    assert_true(size >= 0);
    error_text[size] = '\0';
}

static void assert_one_line(const char *const *words) {
    size_t length = strlen(error_text);
    if (length == 0 || strchr(error_text, '\n') != error_text + length - 1) {
        fail_msg("expected one line, found: %s", error_text);
    }
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strstr(error_text, words[i]) == NULL) {
            fail_msg("expected '%s' in: %s", words[i], error_text);
        }
    }
}

#define ASSERT_IDX_REFUSED(name, dims, ...)                                            \
    do {                                                                               \
        ls_idx idx;                                                                    \
        catch_errors();                                                                \
        ls_rc rc = ls_idx_read(folder_path(name), dims, &idx);                         \
        release_errors();                                                              \
        assert_int_equal(rc, LS_BAD_INPUT);                                            \
        assert_null(idx.content.data);                                                 \
        assert_one_line((const char *const[]){"lockstep: ", name, __VA_ARGS__, NULL}); \
    } while (0)

#define ASSERT_DATA_REFUSED(spec, ...)                                           \
    do {                                                                         \
        ls_dataset dataset;                                                      \
        catch_errors();                                                          \
        ls_rc rc = ls_dataset_open(spec, LS_SPLIT_TRAIN, &dataset);              \
        release_errors();                                                        \
        assert_int_equal(rc, LS_BAD_INPUT);                                      \
        assert_null(dataset.pixels);                                             \
        assert_one_line((const char *const[]){"lockstep: ", __VA_ARGS__, NULL}); \
    } while (0)

static void check_images(const char *name) {
    ls_idx idx;
    assert_int_equal(ls_idx_read(folder_path(name), 3, &idx), LS_OK);
    assert_int_equal(idx.dims, 3);
    assert_int_equal(idx.shape[0], IMAGES);
    assert_int_equal(idx.shape[1], SIDE);
    assert_int_equal(idx.shape[2], SIDE);
    assert_int_equal(idx.count, IMAGES * SIDE * SIDE);
    assert_memory_equal(idx.content.data, image_file + 16, idx.count);
    ls_content_release(&idx.content);
}

static void test_good_files(void **state) {
    (void)state;
    folder_write("plain", image_file, IMAGE_BYTES);
    check_images("plain");
    write_gzip("packed.gz", image_file, IMAGE_BYTES);
    check_images("packed.gz");
    write_gzip("packed-without-ending", image_file, IMAGE_BYTES);
    check_images("packed-without-ending");
    folder_write("plain-with-ending.gz", image_file, IMAGE_BYTES);
    check_images("plain-with-ending.gz");
}

/* RFC 1952: a gzip file may have several members; their contents follow one another. */
static void test_two_members(void **state) {
    (void)state;
    size_t first_size = 0;
    size_t second_size = 0;
    unsigned char *first = gzip(image_file, 1000, &first_size);
    unsigned char *second = gzip(image_file + 1000, IMAGE_BYTES - 1000, &second_size);
    unsigned char *both = malloc(first_size + second_size);
    assert_non_null(both);
    memcpy(both, first, first_size);
    memcpy(both + first_size, second, second_size);
    folder_write("members.gz", both, first_size + second_size);
    check_images("members.gz");
    free(first);
    free(second);
    free(both);
}

static void test_not_a_data_file(void **state) {
    (void)state;
    ASSERT_IDX_REFUSED("absent", 3, "cannot be opened", "No such file");
    folder_write("empty", "", 0);
    ASSERT_IDX_REFUSED("empty", 3, "byte 0", "empty file");
    assert_int_equal(mkdir(folder_path("a-folder"), 0700), 0);
    ASSERT_IDX_REFUSED("a-folder", 3, "expected a file, found a folder");
    assert_int_equal(mkfifo(folder_path("a-pipe"), 0600), 0);
    ASSERT_IDX_REFUSED("a-pipe", 3, "expected a file, found a device"); /* without waiting for somebody who writes */
    if (geteuid() != 0) {                                               /* root reads everything */
        folder_write("locked", image_file, IMAGE_BYTES);
        assert_int_equal(chmod(folder_path("locked"), 0), 0);
        ASSERT_IDX_REFUSED("locked", 3, "cannot be opened", "denied");
    }
    const char page[] = "\n <!DOCTYPE html><html><body>404</body></html>";
    folder_write("page.gz", page, sizeof page - 1);
    ASSERT_IDX_REFUSED("page.gz", 3, "byte 2", "expected a data file", "HTML", "download it again");
}

static void test_wrong_header(void **state) {
    (void)state;
    folder_write("labels", label_file, LABEL_BYTES);
    ASSERT_IDX_REFUSED("labels", 3, "byte 0", "expected the IDX magic number 0x00000803", "found 0x00000801",
                       "label file");
    folder_write("images", image_file, IMAGE_BYTES);
    ASSERT_IDX_REFUSED("images", 1, "expected the IDX magic number 0x00000801", "found 0x00000803", "image file");
    unsigned char floats[20] = {0, 0, 0x0d, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1};
    folder_write("floats", floats, sizeof floats);
    ASSERT_IDX_REFUSED("floats", 3, "found 0x00000d03", "another element type");
    folder_write("short-header", image_file, 10);
    ASSERT_IDX_REFUSED("short-header", 3, "byte 10", "IDX header", "truncated");
    unsigned char none[8] = {0, 0, 8, 1, 0, 0, 0, 0};
    folder_write("none", none, sizeof none);
    ASSERT_IDX_REFUSED("none", 1, "byte 4", "at least 1 in dimension 0", "found 0");
    /* a second compression is what the first byte of the content then shows */
    size_t size = 0;
    unsigned char *packed = gzip(image_file, IMAGE_BYTES, &size);
    write_gzip("twice.gz", packed, size);
    ASSERT_IDX_REFUSED("twice.gz", 3, "byte 0", "found 0x1f8b0800");
    free(packed);
}

/* Sizes are checked before memory is asked for: the product overflows, exceeds the limit, or exceeds the file. */
static void test_absurd_sizes(void **state) {
    (void)state;
    unsigned char header[64];
    memcpy(header, image_file, sizeof header);
    put_word(header + 4, 0xffffffffU);
    put_word(header + 8, 0xffffffffU);
    put_word(header + 12, 0xffffffffU);
    folder_write("overflow", header, sizeof header);
    ASSERT_IDX_REFUSED("overflow", 3, "byte 4", "at most 2147483648 bytes", "dimension 0 is 4294967295");
    put_word(header + 4, 60000);
    put_word(header + 8, 65535);
    put_word(header + 12, 1);
    folder_write("large", header, sizeof header);
    ASSERT_IDX_REFUSED("large", 3, "byte 8", "at most 2147483648 bytes", "dimension 1 is 65535");
    memcpy(header, image_file, 16);
    put_word(header + 4, 2000000);
    folder_write("lying", header, sizeof header);
    ASSERT_IDX_REFUSED("lying", 3, "byte 16", "expected 1568000000 bytes", "more than 48");
    write_gzip("lying.gz", header, sizeof header);
    ASSERT_IDX_REFUSED("lying.gz", 3, "byte 16", "expected 1568000000 bytes");
}

static void test_cut_and_long_content(void **state) {
    (void)state;
    folder_write("cut", image_file, IMAGE_BYTES - 1);
    ASSERT_IDX_REFUSED("cut", 3, "byte 16", "expected 3920 bytes", "more than 3919", "truncated");
    write_gzip("cut-inside.gz", image_file, IMAGE_BYTES - 1);
    ASSERT_IDX_REFUSED("cut-inside.gz", 3, "byte 3935", "expected 3920 bytes", "found 3919", "truncated");
    unsigned char longer[IMAGE_BYTES + 3] = {0};
    memcpy(longer, image_file, IMAGE_BYTES);
    folder_write("long", longer, sizeof longer);
    ASSERT_IDX_REFUSED("long", 3, "byte 3936", "expected the end after 3920 bytes", "more bytes");
    write_gzip("long.gz", longer, sizeof longer);
    ASSERT_IDX_REFUSED("long.gz", 3, "byte 3936", "expected the end after 3920 bytes", "more bytes");
}

/* Nobody may write the file: its pages are shared. It is checked like any other, and one that may be written is copied. */
static void test_mapped(void **state) {
    (void)state;
    enum { ROWS = 20, COLUMNS = 700, HEADER = 16 }; /* several pages */
    static unsigned char file[HEADER + ROWS * COLUMNS + 1] = {
        0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, ROWS, 0, 0, COLUMNS / 256, COLUMNS % 256};
    for (size_t i = HEADER; i < sizeof file; i++) {
        file[i] = (unsigned char)(i * 7 + i / 256);
    }
    const char *path = folder_path("fixed");
    for (int mode = 0444; mode <= 0644; mode += 0200) {
        folder_write("fixed", file, sizeof file - 1);
        assert_int_equal(chmod(path, (mode_t)mode), 0);
        ls_idx idx;
        assert_int_equal(ls_idx_read(path, 3, &idx), LS_OK);
        assert_int_equal(idx.content.mapping != NULL, mode == 0444);
        assert_memory_equal(idx.content.data, file + HEADER, ROWS * COLUMNS);
        ls_content_release(&idx.content);
        assert_int_equal(unlink(path), 0);
    }
    folder_write("longer", file, sizeof file);
    assert_int_equal(chmod(folder_path("longer"), 0444), 0);
    ASSERT_IDX_REFUSED("longer", 3, "found more bytes");
    folder_write("shorter", file, sizeof file - 2);
    assert_int_equal(chmod(folder_path("shorter"), 0444), 0);
    ASSERT_IDX_REFUSED("shorter", 3, "truncated");
}

/* Every prefix of a gzip file, every single flipped byte of its trailer, and bytes after it. */
static void test_damaged_gzip(void **state) {
    (void)state;
    size_t size = 0;
    unsigned char *packed = gzip(image_file, IMAGE_BYTES, &size);
    for (size_t keep = 2; keep < size; keep++) {
        folder_write("prefix.gz", packed, keep);
        ls_idx idx;
        catch_errors();
        ls_rc rc = ls_idx_read(folder_path("prefix.gz"), 3, &idx);
        release_errors();
        assert_int_equal(rc, LS_BAD_INPUT);
        assert_one_line((const char *const[]){"prefix.gz", "truncated", NULL});
    }
    for (size_t i = 1; i <= 8; i++) {
        packed[size - i] ^= 0x10;
        folder_write("crc.gz", packed, size);
        ASSERT_IDX_REFUSED("crc.gz", 3, "checksum", "check)", "download it again");
        packed[size - i] ^= 0x10;
    }
    packed[12] ^= 0xff;
    folder_write("damaged.gz", packed, size);
    ASSERT_IDX_REFUSED("damaged.gz", 3, "byte ", "damaged");
    packed[12] ^= 0xff;
    unsigned char *tail = calloc(size + 4, 1);
    assert_non_null(tail);
    memcpy(tail, packed, size);
    folder_write("tail.gz", tail, size + 4);
    ASSERT_IDX_REFUSED("tail.gz", 3, "expected its end after the gzip stream", "found 0x00");
    free(tail);
    free(packed);
}

static void test_file_names(void **state) {
    (void)state;
    static const char *const images[] = {"train-images-idx3-ubyte.gz", "train-images-idx3-ubyte",
                                         "train-images.idx3-ubyte.gz", "train-images.idx3-ubyte"};
    static const char *const labels[] = {"train-labels-idx1-ubyte.gz", "train-labels-idx1-ubyte",
                                         "train-labels.idx1-ubyte.gz", "train-labels.idx1-ubyte"};
    char spec[128];
    snprintf(spec, sizeof spec, "mnist:%s", folder);
    for (size_t i = 0; i < 4; i++) {
        if (strstr(images[i], ".gz") != NULL) {
            write_gzip(images[i], image_file, IMAGE_BYTES);
            write_gzip(labels[i], label_file, LABEL_BYTES);
        } else {
            folder_write(images[i], image_file, IMAGE_BYTES);
            folder_write(labels[i], label_file, LABEL_BYTES);
        }
        ls_dataset dataset;
        assert_int_equal(ls_dataset_open(spec, LS_SPLIT_TRAIN, &dataset), LS_OK);
        assert_int_equal(dataset.count, IMAGES);
        assert_int_equal(dataset.channels * dataset.height * dataset.width, SIDE * SIDE);
        assert_int_equal(dataset.classes, 10);
        assert_memory_equal(dataset.pixels, image_file + 16, IMAGES * SIDE * SIDE);
        for (int n = 0; n < IMAGES; n++) {
            assert_int_equal(dataset.labels[n], 9 - n);
        }
        ls_dataset_close(&dataset);
        ls_dataset_close(&dataset); /* harmless twice */
        assert_int_equal(unlink(folder_path(images[i])), 0);
        assert_int_equal(unlink(folder_path(labels[i])), 0);
    }
}

static void test_pairs_that_do_not_fit(void **state) {
    (void)state;
    char spec[128];
    snprintf(spec, sizeof spec, "mnist:%s", folder);
    ASSERT_DATA_REFUSED(spec, folder, "train-images-idx3-ubyte", "found neither");
    folder_write("train-images-idx3-ubyte", image_file, IMAGE_BYTES);
    ASSERT_DATA_REFUSED(spec, folder, "train-labels-idx1-ubyte", "found neither");
    unsigned char labels[LABEL_BYTES];
    memcpy(labels, label_file, sizeof labels);
    labels[8 + 3] = 10;
    folder_write("train-labels-idx1-ubyte", labels, sizeof labels);
    ASSERT_DATA_REFUSED(spec, "train-labels-idx1-ubyte", "byte 11", "record 3", "label of 0 to 9", "found 10");
    put_word(labels + 4, IMAGES - 1);
    labels[8 + 3] = 0;
    folder_write("train-labels-idx1-ubyte", labels, sizeof labels - 1);
    ASSERT_DATA_REFUSED(spec, "train-images-idx3-ubyte", "byte 4", "labels, 4", "found 5");
    folder_write("train-labels-idx1-ubyte", label_file, LABEL_BYTES);
    unsigned char small[16 + IMAGES * 27 * 27] = {0};
    memcpy(small, image_file, 16);
    put_word(small + 8, 27);
    put_word(small + 12, 27);
    folder_write("train-images-idx3-ubyte", small, sizeof small);
    ASSERT_DATA_REFUSED(spec, "train-images-idx3-ubyte", "byte 8", "images of 28x28", "found 27x27");
    assert_int_equal(unlink(folder_path("train-images-idx3-ubyte")), 0);
    assert_int_equal(unlink(folder_path("train-labels-idx1-ubyte")), 0);
}

static void test_specs(void **state) {
    (void)state;
    ASSERT_DATA_REFUSED("cifar", "raw:FILE, synthetic[:N", "or exact[:N]", "found 'cifar'");
    ASSERT_DATA_REFUSED("mnis", "found 'mnis'");
    ASSERT_DATA_REFUSED("", "found ''");
    ASSERT_DATA_REFUSED("mnist", "mnist:DIR");
    ASSERT_DATA_REFUSED("mnist:", "mnist:DIR");
    ASSERT_DATA_REFUSED("fashion-mnist:", "folder after the colon");
    ASSERT_DATA_REFUSED("fashion-mnist:/nowhere/at/all", "/nowhere/at/all", "found neither");
    ASSERT_DATA_REFUSED("synthetic:0", "from 1 to", "found '0'");
    ASSERT_DATA_REFUSED("synthetic:-3", "found '-3'");
    ASSERT_DATA_REFUSED("synthetic:12x", "found '12x'");
    ASSERT_DATA_REFUSED("synthetic:", "found ''");
    ASSERT_DATA_REFUSED("synthetic:99999999999999999999", "found '9999");
    assert_int_equal(ls_dataset_check_spec("fashion-mnist:/any"), LS_OK);
    assert_int_equal(ls_dataset_check_spec("synthetic"), LS_OK);
}

static void test_synthetic(void **state) {
    (void)state;
    ls_dataset large;
    ls_dataset small;
    ls_dataset test;
    assert_int_equal(ls_dataset_open("synthetic:1000", LS_SPLIT_TRAIN, &large), LS_OK);
    assert_int_equal(ls_dataset_open("synthetic:5", LS_SPLIT_TRAIN, &small), LS_OK);
    assert_int_equal(ls_dataset_open("synthetic:5", LS_SPLIT_TEST, &test), LS_OK);
    assert_int_equal(large.count, 1000);
    assert_int_equal(test.count, 1);
    size_t features = large.channels * large.height * large.width;
    assert_memory_equal(large.pixels, small.pixels, 5 * features); /* a function of the index alone */
    assert_memory_equal(large.labels, small.labels, 5 * sizeof *small.labels);
    size_t of_class[10] = {0};
    for (size_t i = 0; i < large.count; i++) {
        assert_in_range(large.labels[i], 0, 9);
        of_class[large.labels[i]]++;
        assert_memory_not_equal(large.pixels + i * features, test.pixels, features);
    }
    for (size_t c = 0; c < 10; c++) {
        assert_true(of_class[c] > 50);
    }
    ls_dataset_close(&large);
    ls_dataset_close(&small);
    ls_dataset_close(&test);
}

/* Debian's package, where it is installed: sizes and the known class balance. */
static void test_fashion_mnist(void **state) {
    (void)state;
    if (access("/usr/share/datasets/fashion-mnist", R_OK) != 0) {
        skip();
    }
    ls_dataset dataset;
    assert_int_equal(ls_dataset_open("fashion-mnist", LS_SPLIT_TEST, &dataset), LS_OK);
    assert_int_equal(dataset.count, 10000);
    size_t of_class[10] = {0};
    for (size_t i = 0; i < dataset.count; i++) {
        of_class[dataset.labels[i]]++;
    }
    for (size_t c = 0; c < 10; c++) {
        assert_int_equal(of_class[c], 1000);
    }
    ls_dataset_close(&dataset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_files),      cmocka_unit_test(test_two_members),
        cmocka_unit_test(test_not_a_data_file), cmocka_unit_test(test_wrong_header),
        cmocka_unit_test(test_absurd_sizes),    cmocka_unit_test(test_cut_and_long_content),
        cmocka_unit_test(test_mapped),          cmocka_unit_test(test_damaged_gzip),
        cmocka_unit_test(test_file_names),      cmocka_unit_test(test_pairs_that_do_not_fit),
        cmocka_unit_test(test_specs),           cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_fashion_mnist),
    };
    return cmocka_run_group_tests(tests, set_up, folder_remove);
}
