/* Making raw containers (docs/data-formats.md), which --data raw:FILE reads. */
#ifndef LS_REFERENCE_RAW_H
#define LS_REFERENCE_RAW_H

#include "reference/dataset.h"

/* Writes both splits, of the same shape and kind, to a temporary file in the same folder, syncs and renames it over path. test
 * may hold no samples. Samples of different kinds or a file that cannot be written: one line and LS_BAD_INPUT. */
ls_rc ls_raw_write(const char *path, const ls_dataset *train, const ls_dataset *test);

#endif
