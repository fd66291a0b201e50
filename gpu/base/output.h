/* What a program prints on stdout has to arrive: a full disk or a closed file is an error like any other. */
#ifndef LS_GPU_BASE_OUTPUT_H
#define LS_GPU_BASE_OUTPUT_H

#include "gpu/base/error.h"

/* Flushes stdout at the end of a program that would return rc. Returns rc, or LS_BAD_INPUT in place of LS_OK when something
 * could not be written. One line says so unless rc is that of a failure which has had its line on stderr. */
ls_rc ls_output_end(ls_rc rc);

#endif
