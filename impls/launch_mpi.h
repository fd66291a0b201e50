/* Starting ranks under Open MPI's mpirun. */
#ifndef LS_IMPLS_LAUNCH_MPI_H
#define LS_IMPLS_LAUNCH_MPI_H

#include "impls/supervise.h"

/* Starts `program arguments...` as world ranks under mpirun (and a guard that ends them with this process), with every file of
 * mpirun inside run_dir, whose variables are added to environment. arguments: NULL-ended. */
ls_rc ls_launch_mpirun(const char *program, char **arguments, size_t world, const char *run_dir,
                       ls_environment *environment, const ls_spawn_files *files, ls_child *child);

/* Starts `program rank-guard exec mpirun ... argv` as watch->children[0], with every file of mpirun inside run_dir. */
ls_rc ls_launch_mpi(const char *program, char **argv, size_t world, const char *run_dir, ls_environment *environment,
                    ls_watch *watch);

#endif
