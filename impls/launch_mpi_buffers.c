#include "impls/launch_mpi_buffers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "impls/interrupt.h"
#include "impls/launch_mpi.h"
#include "impls/spawn.h"

enum {
    PROBE_MS = 30000, /* the probe starts mpirun, MPI and a device in each rank */
    END_MS = 5000,    /* for mpirun to end its ranks */
    SLICE_MS = 100,   /* how soon an interrupt is seen */
};

static struct decision {
    bool made, works;
    char why[160];
} decision;

static bool ends_within(ls_child *child, int milliseconds) {
    for (int waited = 0; !ls_child_poll(child) && waited < milliseconds && ls_interrupt_signal() == 0;
         waited += SLICE_MS) {
        struct pollfd fd = {.fd = child->pidfd, .events = POLLIN};
        (void)poll(&fd, 1, SLICE_MS);
    }
    return ls_child_poll(child);
}

/* How the probe ended: true when it left with 0 in time. */
static bool await(ls_child *child, char *why, size_t size) {
    if (!ends_within(child, PROBE_MS)) {
        (void)snprintf(why, size, "an allreduce of device memory has not ended within %d s", PROBE_MS / 1000);
        ls_child_signal(child, SIGTERM); /* mpirun ends its ranks then */
        if (!ends_within(child, END_MS)) {
            ls_child_signal(child, SIGKILL);
        }
        return false;
    }
    bool well = WIFEXITED(child->status) && WEXITSTATUS(child->status) == 0;
    if (!well) {
        (void)snprintf(why, size, "an allreduce of device memory failed in a process of its own");
    }
    return well;
}

static ls_rc probe(const char *program, const char *run_dir, size_t world) {
    ls_environment environment = {0};
    ls_child child = {0};
    char *words[] = {(char *)program, (char *)"mpi-probe", NULL};
    int silent = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (silent < 0) {
        return ls_fail(LS_DEVICE_FAILED, "cannot open /dev/null");
    }
    ls_rc rc = ls_environment_copy(&environment);
    if (rc == LS_OK) {
        ls_spawn_files files = {.in = -1, .out = -1, .error = silent};
        rc = ls_launch_mpirun(program, words + 1, world, run_dir, &environment, &files, &child);
    }
    if (rc == LS_OK) {
        decision.works = await(&child, decision.why, sizeof decision.why);
        ls_child_close(&child);
    }
    ls_environment_free(&environment);
    (void)close(silent);
    return rc;
}

ls_rc ls_mpi_buffers_decide(const char *program, const char *run_dir, ls_run *run) {
    if (run->mpi_buffers == LS_MPI_BUFFERS_HOST) {
        return LS_OK;
    }
    if (!decision.made) {
        if (ls_mpi_takes_device_pointers()) {
            LS_TRY(probe(program, run_dir, run->devices < 2 ? run->devices : 2));
        } else {
            (void)snprintf(decision.why, sizeof decision.why,
                           "this MPI library does not take device pointers (MPIX_Query_cuda_support)");
        }
        decision.made = true;
    }
    if (!decision.works && run->mpi_buffers == LS_MPI_BUFFERS_DEVICE) {
        return ls_fail(LS_BAD_INPUT, "--mpi-buffers device: %s; use host or auto", decision.why);
    }
    run->mpi_buffers = decision.works ? LS_MPI_BUFFERS_DEVICE : LS_MPI_BUFFERS_HOST;
    return LS_OK;
}

const char *ls_mpi_buffers_name(const ls_run *run) {
    bool on_device = run->mpi_buffers == LS_MPI_BUFFERS_DEVICE ||
                     (run->mpi_buffers == LS_MPI_BUFFERS_AUTO && decision.made && decision.works);
    return on_device ? "device" : "host";
}
