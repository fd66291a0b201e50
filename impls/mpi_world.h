/* What this process is among MPI's, for programs built with MPI and without. */
#ifndef LS_IMPLS_MPI_WORLD_H
#define LS_IMPLS_MPI_WORLD_H

#include <stddef.h>

#include "gpu/base/error.h"

typedef struct ls_mpi_world {
    size_t rank, size, local_rank; /* local_rank: among the processes that share this host's memory */
} ls_mpi_world;

/* Initialises MPI (MPI_THREAD_FUNNELED), unless it is already, and fills world. A launcher that started several processes
 * which each see a world of one (the mpirun of another MPI), and a program built without MPI, are refused with LS_BAD_INPUT. */
ls_rc ls_mpi_start(ls_mpi_world *world);

/* MPI_Finalize, or after a failure MPI_Abort with LS_DEVICE_FAILED, which ends the peers that wait for this rank and does
 * not return. No-op when MPI is not initialised or already finalised. */
void ls_mpi_stop(int failed);

/* "Open MPI v4.1.4", or "built without MPI"; at most size bytes. */
ls_rc ls_mpi_describe(char *text, size_t size);

#endif
