/* Starting ranks under Open MPI's mpirun. */
#ifndef LS_IMPLS_LAUNCH_MPI_H
#define LS_IMPLS_LAUNCH_MPI_H

#include "impls/supervise.h"

/* Starts `program rank-guard exec mpirun ... argv` as watch->children[0], with every file of mpirun inside run_dir. */
ls_rc ls_launch_mpi(const char *program, char **argv, size_t world, const char *run_dir, ls_environment *environment,
                    ls_watch *watch);

#endif
