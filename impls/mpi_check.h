/* MPI calls with their status checked, and what this process is among MPI's. */
#ifndef LS_IMPLS_MPI_CHECK_H
#define LS_IMPLS_MPI_CHECK_H

#include <mpi.h>
#include <stddef.h>

#include "gpu/base/error.h"

/* LS_MPI(call): runs the call; when it fails prints file, line, call and MPI's reason and returns LS_DEVICE_FAILED from the
 * calling function. MPI_COMM_WORLD returns errors after ls_mpi_start. */
#define LS_MPI(call) LS_TRY(ls_mpi_check((call), #call, __FILE__, __LINE__))
ls_rc ls_mpi_check(int status, const char *call, const char *file, int line);

typedef struct ls_mpi_world {
    size_t rank, size, local_rank; /* local_rank: among the processes that share this host's memory */
} ls_mpi_world;

/* Initialises MPI (MPI_THREAD_FUNNELED), unless it is already, and fills world. A launcher that started several processes
 * which each see a world of one (the mpirun of another MPI) is refused with LS_BAD_INPUT. */
ls_rc ls_mpi_start(ls_mpi_world *world);

/* MPI_Finalize, or after a failure MPI_Abort with LS_DEVICE_FAILED, which ends the peers that wait for this rank and does
 * not return. No-op when MPI is not initialised or already finalised. */
void ls_mpi_stop(int failed);

/* Sums count values over all ranks, in place in host memory, in calls of at most `most` values (MPI counts are int). */
ls_rc ls_mpi_sum(void *values, size_t count, MPI_Datatype type, size_t most);

#endif
