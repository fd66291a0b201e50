/* Making raw containers (docs/data-formats.md), which --data raw:FILE reads. */
#ifndef LS_REFERENCE_RAW_H
#define LS_REFERENCE_RAW_H

#include "reference/dataset.h"

/* Writes both splits, of the same shape and kind, over path as a whole (ls_file_create, whose check ls_file_check_output is for
 * before). test may hold no samples. Samples of different kinds or a file that cannot be written: one line and LS_BAD_INPUT. */
ls_rc ls_raw_write(const char *path, const ls_dataset *train, const ls_dataset *test);

#endif
