/* A pipe from the processes of a run to the launcher: their stderr, and mpirun's stdout. */
#ifndef LS_IMPLS_RANK_PIPE_H
#define LS_IMPLS_RANK_PIPE_H

#include <stdbool.h>

#include "gpu/base/error.h"

/* A zeroed one is none. */
typedef struct ls_rank_pipe {
    bool open;
    int reader, writer; /* the reader does not block; writer -1: closed */
} ls_rank_pipe;

/* Out of descriptors: one line, LS_DEVICE_FAILED. Owned: ls_rank_pipe_close. */
ls_rc ls_rank_pipe_open(ls_rank_pipe *ends);
void ls_rank_pipe_close(ls_rank_pipe *ends);
/* Closes the writing end, once every process has been started with it. */
void ls_rank_pipe_started(ls_rank_pipe *ends);

#endif
