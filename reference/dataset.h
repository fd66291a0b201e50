/* Data sets in host memory: a table of sources, each one file. */
#ifndef LS_REFERENCE_DATASET_H
#define LS_REFERENCE_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/base/error.h"

/* Samples [count][channels][height][width], as bytes (pixels) or as floats (values): exactly one of the two is set. Each has
 * a label of 0 to classes - 1; a data set with targets has classes 0, labels of zero, and target_count floats a sample.
 * Owned: ls_dataset_close frees. */
typedef struct ls_dataset {
    size_t count;
    size_t channels, height, width;
    size_t classes;
    size_t target_count;
    bool floats; /* of values, also where only the sizes are known */
    uint8_t *pixels;
    float *values;
    int32_t *labels;
    float *targets; /* [count][target_count]; NULL: none */
    void *mapping;  /* of the file that pixels lie in, not to be written; NULL: they have memory of their own */
    size_t mapped;
} ls_dataset;

typedef enum ls_split { LS_SPLIT_TRAIN = 0, LS_SPLIT_TEST = 1 } ls_split;

/* Opens "fashion-mnist[:DIR]", "mnist:DIR" (IDX files, gzip or plain), "cifar10:DIR" (the binary version), "idx:DIR" (IDX
 * files of any shape and number of classes), "raw:FILE" (docs/data-formats.md), "synthetic[:N[:CxHxW[:CLASSES]]]" (N training
 * samples, N/6 for testing, at least 1; a fixed function of the index, learnable, 28x28 and 10 classes unless it says
 * otherwise) or "exact[:N]" (small whole numbers with targets, for arithmetic without rounding). Every file is checked completely:
 * magic, sizes, checksum, end, labels in range, equal counts. One line and LS_BAD_INPUT otherwise. */
ls_rc ls_dataset_open(const char *spec, ls_split split, ls_dataset *out);
void ls_dataset_close(ls_dataset *dataset);

/* The sizes alone (every pointer NULL), from the files' headers; classes, target_count and floats as ls_dataset_open says.
 * What the headers do not show is not checked. */
ls_rc ls_dataset_shape(const char *spec, ls_split split, ls_dataset *out);

/* Memory for samples of a data set, one after another: of pixels and values the one that the set has, targets where it has
 * some. */
typedef struct ls_samples {
    uint8_t *pixels;
    float *values;
    int32_t *labels;
    float *targets;
} ls_samples;

/* Copies sample `index` of a data set into place `at`. */
void ls_samples_copy(const ls_dataset *from, size_t index, ls_samples *to, size_t at);

/* Features of a sample. */
static inline size_t ls_dataset_features(const ls_dataset *dataset) {
    return dataset->channels * dataset->height * dataset->width;
}

/* A hash of all samples, labels and targets of an open data set, in their order. */
uint64_t ls_dataset_hash(const ls_dataset *dataset);

/* The usages of all sources, for help and messages: "a, b or c". */
const char *ls_dataset_usages(void);

/* Checks that the spec names a known source, without opening files. */
ls_rc ls_dataset_check_spec(const char *spec);

/* The path of the one file that the spec names, inside spec; NULL: a folder, or none. */
const char *ls_dataset_file(const char *spec);

#endif
