/* A crew: ranks that wait, asleep, for work to measure. Several crews live side by side, so that contenders can take turns. */
#ifndef LS_BENCH_MICRO_CREW_H
#define LS_BENCH_MICRO_CREW_H

#include "bench/micro/page.h"

typedef enum ls_crew_kind {
    LS_CREW_THREADS,   /* of this process */
    LS_CREW_PROCESSES, /* of this program */
    LS_CREW_MPI,       /* processes under mpirun */
    LS_CREW_KINDS
} ls_crew_kind;

/* "threads", "processes", "mpi". */
const char *ls_crew_kind_name(ls_crew_kind kind);

typedef struct ls_crew ls_crew;

/* Starts the ranks, one a device, and waits until they are up. Owned: ls_crew_close. Errors of a rank end the crew and are
 * printed as those of a run. */
ls_rc ls_crew_open(ls_crew_kind kind, size_t world, ls_crew **out);
/* Ends the ranks. Safe on NULL. Threads that hang after a failure end with the process: then this does not return. */
void ls_crew_close(ls_crew *crew);
size_t ls_crew_world(const ls_crew *crew);

/* Opens a job on all ranks in a slot (below LS_MICRO_SLOTS) that is free; closes it. */
ls_rc ls_crew_prepare(ls_crew *crew, size_t slot, const ls_micro_job *job);
ls_rc ls_crew_release(ls_crew *crew, size_t slot);

/* seconds[iterations]: of each, the maximum over the ranks. All ranks do as many. */
ls_rc ls_crew_measure(ls_crew *crew, size_t slot, size_t iterations, double *seconds);
/* A cache line's round trip between ranks 0 and 1 in seconds, the fastest of several measurements (others share the cores); 0
 * with one rank. Uses the last slot. */
ls_rc ls_crew_line_seconds(ls_crew *crew, double *seconds);
/* Wrong elements on all ranks together. */
ls_rc ls_crew_check(ls_crew *crew, size_t slot, uint64_t *wrong);

/* The life of a rank: obeys orders until it is told to quit or one fails. */
struct ls_micro_place;
ls_rc ls_micro_rank_obey(struct ls_micro_place *place);

#endif
