/* Starting the ranks of a run and watching over them until the last has ended. */
#ifndef LS_IMPLS_LAUNCH_H
#define LS_IMPLS_LAUNCH_H

#include <jansson.h>

#include "gpu/base/error.h"
#include "impls/impl.h"
#include "impls/run.h"

/* What came back from a run. */
typedef struct ls_outcome {
    ls_rc rc;
    int guilty_rank;            /* the rank that died or stalled; -1: none */
    char reason[512];           /* one line when rc is not LS_OK */
    json_t *ranks;              /* array of each rank's result object (see impls/rank.h), ordered by rank; owned */
    char run_dir[LS_PATH_SIZE]; /* still there, with captures, until ls_outcome_release */
    int guard_pid, guard_fd;    /* the process that removes run_dir should this one be killed; the launcher's own */
} ls_outcome;

/* Makes a private folder, starts `program rank ...` as one process (single, dp, ranks as threads), as one process a rank
 * (posix_spawn), or under mpirun (mpi), and waits. Ranks' log lines go to this process's stdout; with quiet they have none. A
 * rank that dies, or makes no progress for run->timeout seconds, ends all of them: SIGTERM (rank programs answer with exit
 * 3), then SIGKILL; the guilty rank is named. When this process is killed, the ranks end by themselves. */
ls_rc ls_launch(const char *program, const ls_run *run, ls_outcome *out);

/* Removes the private folder and frees. Safe on a zeroed outcome. */
void ls_outcome_release(ls_outcome *outcome);

/* Checks what can be known before any rank starts: implementation known and available, devices present, batch sizes
 * possible, rank kind supported, output folder writable, files there. One line and LS_BAD_INPUT. */
ls_rc ls_run_check(const ls_run *run);

/* Whether impl can do what the run asks of its steps (--graph, --nccl-register), and its ranks can meet on this platform; else
 * why not, in words, for a table that skips it. */
bool ls_run_suits(const ls_run *run, const ls_impl *impl, char *why, size_t size);

/* Path of the running program, for starting itself. */
ls_rc ls_launch_self(char *path, size_t size);

/* A free port for rank 0's rendezvous. The socket stays bound, not listening, until the caller closes it when the run is
 * over: so nobody else is given the port, while rank 0 may bind it too (both set SO_REUSEADDR). */
ls_rc ls_launch_reserve_port(int *fd, unsigned short *port);

/* Refuses to run commands that are not rank programs under mpirun or srun with more than one task. */
ls_rc ls_launch_refuse_nested(const char *command);

#endif
