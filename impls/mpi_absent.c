/* In place of mpi.c and mpi_check.c where the build found no MPI: the implementation is listed, with the reason why it is SKIPPED. */
#include <stdio.h>

#include "impls/launch_mpi_buffers.h"
#include "impls/mpi_world.h"
#include "impls/table.h"

static const char *const reason =
    "built without MPI; install Debian's libopenmpi-dev and openmpi-bin, then configure and build again";

ls_rc ls_mpi_start(ls_mpi_world *world) {
    *world = (ls_mpi_world){0};
    return ls_fail(LS_BAD_INPUT, "%s", reason);
}

void ls_mpi_stop(int failed) {
    (void)failed;
}

ls_rc ls_mpi_describe(char *text, size_t size) {
    (void)snprintf(text, size, "built without MPI");
    return LS_OK;
}

bool ls_mpi_takes_device_pointers(void) {
    return false;
}

ls_rc ls_mpi_probe_main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    return ls_fail(LS_BAD_INPUT, "mpi-probe: %s", reason);
}

static size_t mpi_ranks(size_t devices) {
    return devices;
}

static bool mpi_available(char *why, size_t size) {
    (void)snprintf(why, size, "%s", reason);
    return false;
}

/* A rank that somebody starts all the same; nothing else is called of an implementation that did not open. */
static ls_rc mpi_open(const ls_run *run, const ls_rank *rank, const ls_model *model, size_t max_batch, void **self) {
    (void)run;
    (void)rank;
    (void)model;
    (void)max_batch;
    *self = NULL;
    return ls_fail(LS_BAD_INPUT, "mpi cannot run here: %s", reason);
}

const ls_impl ls_impl_mpi = {
    .name = "mpi",
    .summary = "one process a device under mpirun, MPI_Allreduce of buckets, in host memory by default",
    .capabilities = LS_CAP_MPIRUN | LS_CAP_BUCKETS | LS_CAP_MULTI_DEVICE,
    .reduction = LS_REDUCTION_MEAN,
    .available = mpi_available,
    .ranks = mpi_ranks,
    .open = mpi_open,
};
