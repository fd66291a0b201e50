#include "impls/rank_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

ls_rc ls_rank_pipe_open(ls_rank_pipe *ends) {
    int both[2];
    if (pipe2(both, O_CLOEXEC) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "pipe: %s", strerror(errno));
    }
    *ends = (ls_rank_pipe){.open = true, .reader = both[0], .writer = both[1]};
    /* only the reading end: the processes' end must block, or lines would be lost */
    if (fcntl(ends->reader, F_SETFL, O_NONBLOCK) != 0) {
        ls_rc rc = ls_fail(LS_DEVICE_FAILED, "fcntl: %s", strerror(errno));
        ls_rank_pipe_close(ends);
        return rc;
    }
    return LS_OK;
}

void ls_rank_pipe_started(ls_rank_pipe *ends) {
    if (ends->open && ends->writer >= 0) {
        (void)close(ends->writer);
        ends->writer = -1;
    }
}

void ls_rank_pipe_close(ls_rank_pipe *ends) {
    if (ends->open) {
        ls_rank_pipe_started(ends);
        (void)close(ends->reader);
        ends->open = false;
    }
}
