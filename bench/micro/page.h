/* The page that a crew of ranks and the program that commands it share: orders, a barrier, and the times of each rank.
 * Plain data, mapped at different addresses by different processes. */
#ifndef LS_BENCH_MICRO_PAGE_H
#define LS_BENCH_MICRO_PAGE_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "impls/run.h"

enum {
    LS_MICRO_CHUNK = 1024, /* iterations of one order */
    LS_MICRO_SLOTS = 4,    /* jobs that are open at the same time */
    LS_MICRO_NAME_SIZE = 24,
};

/* When an operation of a stream begins and ends. */
typedef enum ls_micro_clock {
    LS_MICRO_CLOCK_STREAM, /* events before and after it on the stream: what a step sees */
    LS_MICRO_CLOCK_HOST,   /* the calling thread's: with the hand-over to the stream and the wait for it */
} ls_micro_clock;

/* One piece of work; a kind of work reads the fields that it knows. */
typedef struct ls_micro_job {
    char op[LS_MICRO_NAME_SIZE]; /* of ls_micro_ops */

    /* collectives (bench/micro/collective.h): indices of its tables */
    size_t collective, type, redop;
    size_t root;
    size_t bytes; /* the size as nccl-tests counts it; also of the loops over memory */
    bool in_place;
    ls_micro_clock clock;

    /* steps of training */
    char model[LS_MODEL_TEXT_SIZE];
    ls_dtype dtype;
    size_t batch; /* a device */
} ls_micro_job;

typedef enum ls_micro_verb {
    LS_MICRO_OPEN,
    LS_MICRO_MEASURE,
    LS_MICRO_CHECK,
    LS_MICRO_CLOSE,
    LS_MICRO_QUIT,
} ls_micro_verb;

typedef struct ls_micro_order {
    ls_micro_verb verb;
    size_t slot;
    size_t iterations; /* of MEASURE, at most LS_MICRO_CHUNK */
    ls_micro_job job;  /* of OPEN */
} ls_micro_order;

typedef struct ls_micro_page_rank {
    _Alignas(64) sem_t go;
    _Alignas(64) _Atomic int rc; /* of the last order; not LS_OK: the rank does nothing more */
    uint64_t wrong;              /* of CHECK */
    double seconds[LS_MICRO_CHUNK];
} ls_micro_page_rank;

typedef struct ls_micro_page {
    uint64_t magic;
    size_t world;
    ls_micro_order order; /* written before `go` of each rank */
    ncclUniqueId id;      /* of the ranks' communicator, by rank 0 */
    sem_t done;           /* posted by each rank after each order */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t generation; /* barriers passed */
    _Alignas(64) _Atomic uint32_t ball;       /* between ranks 0 and 1: bench/micro/op_line.c */
    ls_micro_page_rank rank[];
} ls_micro_page;

/* Maps a new page for so many ranks: in a file of this name, or shared within this process when path is NULL. Owned:
 * ls_micro_page_close. */
ls_rc ls_micro_page_create(const char *path, size_t world, ls_micro_page **out);
/* Maps the page of a file. */
ls_rc ls_micro_page_open(const char *path, ls_micro_page **out);
void ls_micro_page_close(ls_micro_page *page);

/* Waits until every rank has come: a short spin, then yields. Ranks that fail never come; whoever commands the crew ends it
 * then. */
void ls_micro_page_barrier(ls_micro_page *page);

#endif
