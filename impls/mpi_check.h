/* MPI calls with their status checked; for what is built with MPI only. */
#ifndef LS_IMPLS_MPI_CHECK_H
#define LS_IMPLS_MPI_CHECK_H

#include <mpi.h>
#include <stddef.h>

#include "impls/mpi_world.h"

/* LS_MPI(call): runs the call; when it fails prints file, line, call and MPI's reason and returns LS_DEVICE_FAILED from the
 * calling function. MPI_COMM_WORLD returns errors after ls_mpi_start. */
#define LS_MPI(call) LS_TRY(ls_mpi_check((call), #call, __FILE__, __LINE__))
ls_rc ls_mpi_check(int status, const char *call, const char *file, int line);

/* Sums count values over all ranks, in place in host memory, in calls of at most `most` values (MPI counts are int). */
ls_rc ls_mpi_sum(void *values, size_t count, MPI_Datatype type, size_t most);

#endif
