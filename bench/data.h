/* The parts of `lockstep data`. */
#ifndef LS_BENCH_DATA_H
#define LS_BENCH_DATA_H

#include "reference/dataset.h"

/* Each takes the words after its name. */
ls_rc ls_data_import(int argc, char **argv);
ls_rc ls_data_check(int argc, char **argv);
ls_rc ls_data_show(int argc, char **argv);

/* One plain array: samples and answers of a split as numbers alone, row by row, little-endian. */
typedef struct ls_data_plain {
    const char *samples, *answers; /* files */
    size_t channels, height, width;
    size_t sample_size;  /* bytes a number: 1 (uint8), 4 (float32), 8 (float64) */
    size_t label_size;   /* bytes a label: 1 (uint8), 4 (int32), 8 (int64); unused with targets */
    size_t target_count; /* float32 targets a sample; 0: labels */
    size_t classes;      /* 0: the largest label and one, which is then stored here */
} ls_data_plain;

/* Reads and checks the files of a split; the data set is owned by the caller. */
ls_rc ls_data_plain_read(ls_data_plain *plain, ls_dataset *out);

#endif
