/* What the ranks of a run print under mpirun, on its way through the launcher to its stdout: mpirun itself drops, without a word
 * and with exit code 0, what it cannot write. */
#ifndef LS_IMPLS_OUTPUT_RELAY_H
#define LS_IMPLS_OUTPUT_RELAY_H

#include <stdbool.h>

#include "gpu/base/error.h"

/* A pipe; a zeroed one is none. */
typedef struct ls_output_relay {
    bool open;
    int reader, writer; /* -1: closed; the reader does not block */
} ls_output_relay;

/* Out of descriptors: one line, LS_DEVICE_FAILED. Owned: ls_output_relay_close. */
ls_rc ls_output_relay_open(ls_output_relay *relay);
void ls_output_relay_close(ls_output_relay *relay);
/* Closes the writing end, once mpirun has been started with it. */
void ls_output_relay_started(ls_output_relay *relay);

/* Prints what is there. What cannot be written stays an error of stdout, for ls_output_end; when nobody reads stdout any more the
 * run is interrupted by SIGPIPE (impls/interrupt.h). */
void ls_output_relay_read(const ls_output_relay *relay);

#endif
