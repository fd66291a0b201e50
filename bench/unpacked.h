/* The training set unpacked once for many runs: inflating it again in every rank would take longer than a few steps. */
#ifndef LS_BENCH_UNPACKED_H
#define LS_BENCH_UNPACKED_H

#include "impls/launch.h"
#include "reference/dataset.h"

typedef struct ls_unpacked {
    ls_outcome folder;       /* holds the private folder; it goes even when this program is killed */
    char data[LS_PATH_SIZE]; /* what ranks are given as --data */
} ls_unpacked;

/* Writes the training set that data_spec names as plain IDX files into a private folder. Where that gains nothing (synthetic
 * data, or plain binary files) or cannot be (no room), data is data_spec itself. Owned: ls_unpacked_remove. */
ls_rc ls_unpacked_make(const char *program, const char *data_spec, const ls_dataset *train, ls_unpacked *out);
void ls_unpacked_remove(ls_unpacked *unpacked);

#endif
