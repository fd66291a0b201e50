/* Data sets in host memory: a table of sources, each one file. */
#ifndef LS_REFERENCE_DATASET_H
#define LS_REFERENCE_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/base/error.h"

/* Images as bytes [count][channels][height][width] and a label each. Owned: ls_dataset_close frees. */
typedef struct ls_dataset {
    size_t count;
    size_t channels, height, width;
    size_t classes;
    uint8_t *pixels;
    int32_t *labels;
} ls_dataset;

typedef enum ls_split { LS_SPLIT_TRAIN = 0, LS_SPLIT_TEST = 1 } ls_split;

/* Opens "fashion-mnist[:DIR]", "mnist:DIR" (IDX files, gzip or plain) or "synthetic[:N]" (N training samples, N/6 for
 * testing, at least 1; a fixed function of the index, learnable, 28x28, 10 classes). Every file is checked completely:
 * magic, sizes, checksum, end, labels in range, equal counts. One line and LS_BAD_INPUT otherwise. */
ls_rc ls_dataset_open(const char *spec, ls_split split, ls_dataset *out);
void ls_dataset_close(ls_dataset *dataset);

/* Checks that the spec names a known source, without opening files. */
ls_rc ls_dataset_check_spec(const char *spec);

#endif
