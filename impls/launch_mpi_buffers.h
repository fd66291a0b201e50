/* Where MPI reads and writes gradients (--mpi-buffers): in host memory, to which they are copied first, or on the device itself.
 * A device pointer is given to MPI only when the library says that it takes one, and an allreduce of device memory in processes
 * of their own came to the right sums: a library that says so and cannot ends the process. */
#ifndef LS_IMPLS_LAUNCH_MPI_BUFFERS_H
#define LS_IMPLS_LAUNCH_MPI_BUFFERS_H

#include "gpu/base/error.h"
#include "impls/run.h"

/* Whether the MPI library says that it takes device pointers; false without MPI. */
bool ls_mpi_takes_device_pointers(void);

/* Before ranks start: turns `auto` into `device` where it works and into `host` elsewhere, and refuses `device` where it does not
 * work (one line, LS_BAD_INPUT). Starts the probe at most once a process; run_dir is a folder for what mpirun leaves. */
ls_rc ls_mpi_buffers_decide(const char *program, const char *run_dir, ls_run *run);

/* "host" or "device": what the runs of this process use. */
const char *ls_mpi_buffers_name(const ls_run *run);

/* A rank's own look: `device` with a library that does not take device pointers is refused; `auto`, which a launcher of its own
 * would have decided, is `host`. */
ls_rc ls_mpi_buffers_of_rank(const ls_run *run, bool *on_device);

/* The probe, as the hidden command `mpi-probe` under mpirun: sums device memory over the ranks. LS_OK when the sums are right. */
ls_rc ls_mpi_probe_main(int argc, char **argv);

#endif
