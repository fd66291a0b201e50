/* The progress page of a run: one file in the run's private folder, mapped by the launcher and by every rank. A rank writes
 * its own cache line only; the launcher reads. It tells which rank died, failed or stands still. */
#ifndef LS_IMPLS_PROGRESS_H
#define LS_IMPLS_PROGRESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/base/error.h"

/* What a rank is doing. */
typedef enum ls_stage {
    LS_STAGE_STARTING = 0,
    LS_STAGE_LOADING,
    LS_STAGE_OPENING,
    LS_STAGE_TRAINING,
    LS_STAGE_EVALUATING,
    LS_STAGE_SAVING,
} ls_stage;

/* How far a rank's life has come. A rank that is gone while RUNNING was killed. */
typedef enum ls_rank_state {
    LS_RANK_ABSENT = 0, /* has not registered */
    LS_RANK_RUNNING,
    LS_RANK_FINISHED,
    LS_RANK_FAILED,     /* ended by itself with `code` */
    LS_RANK_TERMINATED, /* ended by SIGTERM or SIGINT */
} ls_rank_state;

typedef struct ls_progress_rank {
    _Alignas(64) _Atomic uint32_t pid;
    _Atomic uint32_t state; /* ls_rank_state */
    _Atomic uint32_t stage; /* ls_stage */
    _Atomic uint32_t code;  /* exit code when FAILED, signal when TERMINATED */
    _Atomic uint32_t order; /* 1 for the first rank that FAILED or was TERMINATED, 2 for the next, ... */
    _Atomic uint64_t phase; /* grows by one at each point of the program that every rank passes */
    _Atomic uint64_t step;
} ls_progress_rank;

typedef struct ls_progress {
    _Alignas(64) uint64_t magic;
    uint64_t ranks;
    _Atomic uint32_t ended;      /* source of `order` */
    _Atomic uint32_t supervisor; /* pid of mpirun; 0: none */
    ls_progress_rank rank[];
} ls_progress;

/* Creates the page for so many ranks in run_dir and maps it. Errors: one line, LS_DEVICE_FAILED. */
ls_rc ls_progress_create(const char *run_dir, size_t ranks, ls_progress **out);
/* Maps an existing page; one line and LS_DEVICE_FAILED when it is not there or of another kind. */
ls_rc ls_progress_open(const char *run_dir, ls_progress **out);
/* Safe on NULL. */
void ls_progress_close(ls_progress *page);

/* Registers the calling process as a rank. rank: NULL when nobody watches; so in all of the following. */
void ls_progress_start(ls_progress_rank *rank);
/* One more point passed, in this stage. */
void ls_progress_bump(ls_progress_rank *rank, ls_stage stage);
/* The step that comes next; counts from 0. */
void ls_progress_step(ls_progress_rank *rank, uint64_t step);
/* Records the end of a rank that is still RUNNING. Safe in a signal handler. */
void ls_progress_end(ls_progress *page, ls_progress_rank *rank, ls_rank_state state, uint32_t code);

/* " at step 57" or " while opening", for messages about a rank. */
void ls_progress_place(const ls_progress_rank *rank, char *text, size_t size);

#endif
