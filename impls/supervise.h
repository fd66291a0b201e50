/* Watching over the ranks of a run until the last has ended. */
#ifndef LS_IMPLS_SUPERVISE_H
#define LS_IMPLS_SUPERVISE_H

#include "impls/error_lines.h"
#include "impls/launch.h"
#include "impls/progress.h"
#include "impls/rank_pipe.h"
#include "impls/spawn.h"

/* The processes that the launcher started: one for all ranks, one a rank, or mpirun. */
typedef struct ls_watch {
    const ls_run *run;
    ls_progress *page;
    ls_error_lines *lines;
    ls_rank_pipe output; /* of mpirun, which drops what it cannot write; other ranks have this process's stdout */
    size_t count;
    ls_child *children;
    bool mpirun;
    bool hung_up;  /* every process has closed its stderr */
    bool silent;   /* and mpirun its stdout */
    int *rank_fds; /* [page->ranks]: pidfds of ranks that mpirun started; -1: not known (yet) */
} ls_watch;

/* Waits until all have ended, or ends them: when one fails, stalls, or this process is interrupted. Fills outcome->rc,
 * guilty_rank and reason, and prints the one line that the ranks have not printed themselves. */
void ls_supervise(ls_watch *watch, ls_outcome *outcome);

/* After the first rank has failed, how long the others may take to show whether they failed before it. */
enum { LS_SETTLE_MS = 200 };

/* Waits until every process has ended, at most so long, and reads what they write meanwhile; true when all have. */
bool ls_watch_wait(ls_watch *watch, int limit_ms);

/* Reads what the ranks have written, without waiting. */
void ls_watch_read(ls_watch *watch);

/* Frees what the watch owns, once every process has ended: all but run. Safe on a zeroed one. */
void ls_watch_close(ls_watch *watch);

/* Ends every process of the run and reaps it: SIGTERM, 2 seconds, SIGKILL. stopped: a rank that gets SIGKILL at once. */
void ls_watch_end(ls_watch *watch, int stopped);

/* Who is to blame. */
typedef struct ls_verdict {
    bool found;
    int rank; /* -1: none in particular */
    uint32_t pid;
    ls_rc rc;
    bool said;      /* by the rank itself, when it printed a line */
    int signal;     /* that killed it; 0: none */
    char what[160]; /* "was killed by signal 9 (Killed)" */
    char how[16];   /* " (stopped)" */
} ls_verdict;

/* The rank that failed, seen from ended children and the page; found is false when none has. */
ls_verdict ls_verdict_of_ended(const ls_watch *watch);
/* A rank whose process is stopped; false when none is. */
bool ls_verdict_of_stopped(const ls_watch *watch, ls_verdict *verdict);
/* Whether a rank that mpirun started is gone without having recorded an end; mpirun is about to say how. */
bool ls_verdict_rank_gone(const ls_watch *watch, size_t *rank);
/* The rank that holds up the others, who have made no progress for so many seconds. */
ls_verdict ls_verdict_of_stalled(const ls_watch *watch, double seconds);

#endif
