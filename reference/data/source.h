/* The table of data sources: one file each, one line each in reference/dataset.c. */
#ifndef LS_REFERENCE_DATA_SOURCE_H
#define LS_REFERENCE_DATA_SOURCE_H

#include "reference/data/bytes.h"
#include "reference/dataset.h"

typedef struct ls_data_source {
    const char *name;
    const char *usage; /* how a spec of it is written */
    bool one_file;     /* what follows the colon is the path of the one file that is read */
    /* Checks what follows the colon (NULL without a colon) without opening files; one line and LS_BAD_INPUT. */
    ls_rc (*check)(const char *argument);
    /* Reads a split and checks it completely; out is zeroed, and closed again after a failure. */
    ls_rc (*open)(const char *argument, ls_split split, ls_dataset *out);
    /* The sizes alone, see ls_dataset_shape; out is zeroed. */
    ls_rc (*shape)(const char *argument, ls_split split, ls_dataset *out);
} ls_data_source;

/* Gives the data set the content of a file as its pixels. */
static inline void ls_dataset_take_pixels(ls_dataset *out, const ls_content *content) {
    out->pixels = content->data;
    out->mapping = content->mapping;
    out->mapped = content->mapped;
}

extern const ls_data_source ls_data_fashion_mnist;
extern const ls_data_source ls_data_mnist;
extern const ls_data_source ls_data_cifar10;
extern const ls_data_source ls_data_idx;
extern const ls_data_source ls_data_raw;
extern const ls_data_source ls_data_synthetic;
extern const ls_data_source ls_data_exact;

#endif
