/* lockstep data import: a raw container from any data set, or from plain arrays. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/data.h"
#include "bench/flags.h"
#include "gpu/base/path.h"
#include "reference/file.h"
#include "reference/raw.h"

static const char usage[] = "lockstep data import FILE --from SPEC, or FILE --train-x X --train-y Y --shape CxHxW ...";

typedef struct request {
    const char *path, *from;
    const char *train_x, *train_y, *test_x, *test_y;
    const char *shape, *dtype, *label_dtype;
    size_t classes, targets;
} request;

/* "CxHxW", "HxW" or "W", each at least 1. */
static ls_rc parse_shape(const char *text, ls_data_plain *plain) {
    size_t sides[3] = {1, 1, 1}, count = 0;
    const char *at = text;
    bool good = true;
    while (good && count < 3) {
        char *end = NULL;
        errno = 0;
        unsigned long long side = strtoull(at, &end, 10);
        good = at[0] >= '0' && at[0] <= '9' && errno == 0 && side >= 1 && side <= 1 << 24;
        sides[count++] = good ? (size_t)side : 0;
        if (!good || *end == '\0') {
            at = end;
            break;
        }
        good = *end == 'x' && count < 3;
        at = end + 1;
    }
    if (!good || *at != '\0') {
        return ls_fail(LS_BAD_INPUT, "option '--shape': '%s' is not CxHxW, HxW or W with sides from 1 to %d", text,
                       1 << 24);
    }
    plain->width = sides[count - 1];
    plain->height = count > 1 ? sides[count - 2] : 1;
    plain->channels = count > 2 ? sides[0] : 1;
    size_t limit = (size_t)1 << 31;
    if (plain->height > limit / plain->width || plain->channels > limit / plain->width / plain->height) {
        return ls_fail(LS_BAD_INPUT, "option '--shape': expected at most %zu numbers a sample, found %s", limit, text);
    }
    return LS_OK;
}

static ls_rc parse_types(const request *r, ls_data_plain *plain) {
    plain->sample_size = strcmp(r->dtype, "uint8") == 0     ? 1
                         : strcmp(r->dtype, "float32") == 0 ? 4
                         : strcmp(r->dtype, "float64") == 0 ? 8
                                                            : 0;
    plain->label_size = strcmp(r->label_dtype, "uint8") == 0   ? 1
                        : strcmp(r->label_dtype, "int32") == 0 ? 4
                        : strcmp(r->label_dtype, "int64") == 0 ? 8
                                                               : 0;
    if (plain->sample_size == 0) {
        return ls_fail(LS_BAD_INPUT, "option '--dtype': '%s' is not uint8, float32 or float64", r->dtype);
    }
    if (plain->label_size == 0) {
        return ls_fail(LS_BAD_INPUT, "option '--label-dtype': '%s' is not uint8, int32 or int64", r->label_dtype);
    }
    return LS_OK;
}

static ls_rc read_plain(const request *r, ls_dataset *train, ls_dataset *test) {
    ls_data_plain plain = {.target_count = r->targets, .classes = r->classes};
    if (r->train_x == NULL || r->train_y == NULL || r->shape == NULL || (r->test_x == NULL) != (r->test_y == NULL)) {
        return ls_fail(LS_BAD_INPUT,
                       "data import: expected --from SPEC, or --train-x, --train-y and --shape (and --test-x "
                       "with --test-y)");
    }
    LS_TRY(parse_shape(r->shape, &plain));
    LS_TRY(parse_types(r, &plain));
    plain.samples = r->train_x;
    plain.answers = r->train_y;
    LS_TRY(ls_data_plain_read(&plain, train));
    if (r->test_x == NULL) {
        return LS_OK;
    }
    plain.samples = r->test_x;
    plain.answers = r->test_y;
    return ls_data_plain_read(&plain, test);
}

static ls_rc read_spec(const request *r, ls_dataset *train, ls_dataset *test) {
    if (r->train_x != NULL || r->train_y != NULL || r->test_x != NULL || r->test_y != NULL || r->shape != NULL) {
        return ls_fail(LS_BAD_INPUT, "data import: expected --from or the files of plain arrays, found both");
    }
    LS_TRY(ls_dataset_open(r->from, LS_SPLIT_TRAIN, train));
    return ls_dataset_open(r->from, LS_SPLIT_TEST, test);
}

/* Before anything is read. A container may be made anew from itself (--from raw:FILE): it is replaced once it has been read. */
static ls_rc check_output(const request *r, const char *path) {
    const char *const inputs[][2] = {
        {"--train-x", r->train_x}, {"--train-y", r->train_y}, {"--test-x", r->test_x}, {"--test-y", r->test_y}};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        if (inputs[i][1] != NULL && ls_path_same(inputs[i][1], path)) {
            return ls_fail(LS_BAD_INPUT, "data import: the file to make, %s, is that of %s; give it another name", path,
                           inputs[i][0]);
        }
    }
    return ls_file_check_output("data import", path);
}

ls_rc ls_data_import(int argc, char **argv) {
    request r = {.dtype = "uint8", .label_dtype = "uint8"};
    const ls_flag flags[] = {
        {"--from", "SPEC", LS_FLAG_TEXT, &r.from, 0, 0, "a data set as --data takes it"},
        {"--train-x", "FILE", LS_FLAG_TEXT, &r.train_x, 0, 0, "training samples as plain numbers, row by row"},
        {"--train-y", "FILE", LS_FLAG_TEXT, &r.train_y, 0, 0, "their labels or targets"},
        {"--test-x", "FILE", LS_FLAG_TEXT, &r.test_x, 0, 0, "test samples (default: none)"},
        {"--test-y", "FILE", LS_FLAG_TEXT, &r.test_y, 0, 0, "their labels or targets"},
        {"--shape", "CxHxW", LS_FLAG_TEXT, &r.shape, 0, 0, "of a sample; HxW: one channel; W: one row"},
        {"--dtype", "TYPE", LS_FLAG_TEXT, &r.dtype, 0, 0, "of samples: uint8, float32 or float64 [uint8]"},
        {"--label-dtype", "TYPE", LS_FLAG_TEXT, &r.label_dtype, 0, 0, "of labels: uint8, int32 or int64 [uint8]"},
        {"--classes", "N", LS_FLAG_SIZE, &r.classes, 1, 1 << 24, "classes [the largest training label and one]"},
        {"--targets", "N", LS_FLAG_SIZE, &r.targets, 1, 1 << 24, "N float32 targets a sample in place of labels"},
        {0}};
    ls_flag_words words;
    bool help = false;
    LS_TRY(ls_flags_parse(flags, usage, argc, argv, 1, &words, &help));
    if (help) {
        return LS_OK;
    }
    if (words.count == 0) {
        return ls_fail(LS_BAD_INPUT, "data import needs the file to make: %s", usage);
    }
    LS_TRY(check_output(&r, words.words[0]));
    ls_dataset train = {0}, test = {0};
    ls_rc rc = r.from != NULL ? read_spec(&r, &train, &test) : read_plain(&r, &train, &test);
    if (rc == LS_OK) {
        rc = ls_raw_write(words.words[0], &train, &test);
    }
    if (rc == LS_OK) {
        printf("%s: %zu training and %zu test samples of %zux%zux%zu; use it as --data raw:%s\n", words.words[0],
               train.count, test.count, train.channels, train.height, train.width, words.words[0]);
    }
    ls_dataset_close(&train);
    ls_dataset_close(&test);
    return rc;
}
