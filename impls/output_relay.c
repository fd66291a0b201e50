#include "impls/output_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ls_rc ls_output_relay_open(ls_output_relay *relay) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "pipe: %s", strerror(errno));
    }
    *relay = (ls_output_relay){.open = true, .reader = ends[0], .writer = ends[1]};
    /* only the reading end: mpirun's end must block, or lines would be lost */
    if (fcntl(relay->reader, F_SETFL, O_NONBLOCK) != 0) {
        ls_rc rc = ls_fail(LS_DEVICE_FAILED, "fcntl: %s", strerror(errno));
        ls_output_relay_close(relay);
        return rc;
    }
    return LS_OK;
}

void ls_output_relay_started(ls_output_relay *relay) {
    if (relay->open && relay->writer >= 0) {
        (void)close(relay->writer);
        relay->writer = -1;
    }
}

void ls_output_relay_close(ls_output_relay *relay) {
    if (relay->open) {
        ls_output_relay_started(relay);
        (void)close(relay->reader);
        relay->open = false;
    }
}

void ls_output_relay_read(const ls_output_relay *relay) {
    char block[4096];
    ssize_t count;
    while (relay->open && (count = read(relay->reader, block, sizeof block)) > 0) {
        (void)fwrite(block, 1, (size_t)count, stdout);
        (void)fflush(stdout); /* its error stays with the stream */
    }
}
