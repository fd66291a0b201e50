/* CIFAR-10's binary version: five training files and one test file, records of a label byte and 3072 bytes of an image, red,
 * green and blue planes of 32 rows, without a header (https://www.cs.toronto.edu/~kriz/cifar.html). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "reference/data/bytes.h"
#include "reference/data/source.h"

enum { SIDE = 32, CHANNELS = 3, CLASSES = 10, IMAGE_BYTES = CHANNELS * SIDE * SIDE, RECORD = 1 + IMAGE_BYTES };
enum { FILE_RECORDS = 10000, FILE_BYTES = FILE_RECORDS * RECORD, TRAIN_FILES = 5 };
enum { CIFAR100_RECORD = 1 + RECORD }; /* two labels */

static ls_rc check(const char *argument) {
    if (argument == NULL || argument[0] == '\0') {
        return ls_fail(LS_BAD_INPUT,
                       "--data cifar10: expected cifar10:DIR with data_batch_1.bin to data_batch_5.bin and "
                       "test_batch.bin, the binary version of CIFAR-10");
    }
    return LS_OK;
}

static ls_rc path_of(const char *folder, ls_split split, size_t number, char *path, size_t size) {
    int used = split == LS_SPLIT_TEST ? snprintf(path, size, "%s/test_batch.bin", folder)
                                      : snprintf(path, size, "%s/data_batch_%zu.bin", folder, number + 1);
    if (used < 0 || (size_t)used >= size) {
        return ls_fail(LS_BAD_INPUT, "data folder: its path is too long: %s", folder);
    }
    return LS_OK;
}

static bool has_file(const char *folder, const char *name) {
    char path[PATH_MAX];
    struct stat info;
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && stat(path, &info) == 0;
}

/* A file that is not there: perhaps the folder is of something similar. */
static ls_rc fail_missing(const char *folder, const char *path) {
    const char *hint = "";
    if (has_file(folder, "train.bin") && has_file(folder, "test.bin")) {
        hint = "; the folder holds train.bin and test.bin, so probably CIFAR-100, which is another data set";
    } else if (has_file(folder, "data_batch_1")) {
        hint = "; the folder holds data_batch_1, so probably the Python version: get the binary version";
    } else if (has_file(folder, "cifar-10-batches-bin")) {
        hint = "; name the folder cifar-10-batches-bin in it";
    }
    return ls_fail(LS_BAD_INPUT, "%s: cannot be opened: %s%s", path, strerror(ENOENT), hint);
}

/* Checks the size of a file, which says all that can be known before the labels. */
static ls_rc check_size(const char *folder, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 && errno == ENOENT) {
        return fail_missing(folder, path);
    }
    if (stat(path, &info) != 0) {
        return ls_fail(LS_BAD_INPUT, "%s: cannot be reached: %s", path, strerror(errno));
    }
    long long size = (long long)info.st_size;
    if (!S_ISREG(info.st_mode) || size == 0 || size == FILE_BYTES) {
        return LS_OK; /* opening the file tells of the others */
    }
    const char *hint = size < FILE_BYTES ? "it is cut; download it again" : "it is not one of CIFAR-10's files";
    if (size % CIFAR100_RECORD == 0 && size / CIFAR100_RECORD % FILE_RECORDS == 0) {
        hint = "records of 3074 bytes are CIFAR-100's, which has two labels a record and is another data set";
    }
    return ls_fail(LS_BAD_INPUT, "%s: expected %d bytes, %d records of %d, found %lld: %s", path, FILE_BYTES,
                   FILE_RECORDS, RECORD, size, hint);
}

static ls_rc read_records(ls_bytes *bytes, const char *path, uint8_t *pixels, int32_t *labels) {
    unsigned char label = 0;
    for (size_t i = 0; i < FILE_RECORDS; i++) {
        size_t got = 0, more = 0;
        LS_TRY(ls_bytes_read(bytes, &label, 1, &got));
        LS_TRY(ls_bytes_read(bytes, pixels + i * IMAGE_BYTES, IMAGE_BYTES, &more));
        if (got + more < RECORD) {
            return ls_fail(LS_BAD_INPUT, "%s: byte %llu (record %zu): expected a record of %d bytes, found the end",
                           path, (unsigned long long)ls_bytes_offset(bytes), i, RECORD);
        }
        if (label >= CLASSES) {
            return ls_fail(
                LS_BAD_INPUT,
                "%s: byte %zu (record %zu): expected a label of 0 to %d, found %u; the file is damaged or not "
                "CIFAR-10's",
                path, i * RECORD, i, CLASSES - 1, (unsigned)label);
        }
        labels[i] = label;
    }
    return LS_OK;
}

static ls_rc shape_of(const char *argument, ls_split split, ls_dataset *out) {
    char path[PATH_MAX];
    size_t files = split == LS_SPLIT_TEST ? 1 : TRAIN_FILES;
    for (size_t i = 0; i < files; i++) {
        LS_TRY(path_of(argument, split, i, path, sizeof path));
        LS_TRY(check_size(argument, path));
    }
    *out = (ls_dataset){
        .count = files * FILE_RECORDS, .channels = CHANNELS, .height = SIDE, .width = SIDE, .classes = CLASSES};
    return LS_OK;
}

static ls_rc read_file(const char *path, uint8_t *pixels, int32_t *labels) {
    ls_bytes *bytes = NULL;
    LS_TRY(ls_bytes_open_plain(path, &bytes)); /* a label may look like the blank before a web page */
    ls_rc rc = read_records(bytes, path, pixels, labels);
    ls_bytes_close(bytes);
    return rc;
}

static ls_rc open_files(const char *argument, ls_split split, ls_dataset *out) {
    char path[PATH_MAX];
    LS_TRY(shape_of(argument, split, out));
    out->pixels = ls_calloc(out->count, IMAGE_BYTES, "CIFAR-10's images");
    out->labels = ls_calloc(out->count, sizeof *out->labels, "CIFAR-10's labels");
    ls_rc rc = out->pixels != NULL && out->labels != NULL ? LS_OK : LS_DEVICE_FAILED;
    for (size_t first = 0; first < out->count && rc == LS_OK; first += FILE_RECORDS) {
        rc = path_of(argument, split, first / FILE_RECORDS, path, sizeof path);
        if (rc == LS_OK) {
            rc = read_file(path, out->pixels + first * IMAGE_BYTES, out->labels + first);
        }
    }
    if (rc != LS_OK) {
        ls_dataset_close(out);
    }
    return rc;
}

const ls_data_source ls_data_cifar10 = {
    .name = "cifar10", .usage = "cifar10:DIR", .check = check, .open = open_files, .shape = shape_of};
