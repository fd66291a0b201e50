/* What is measured on the ranks of a crew, and what a rank needs to know to measure it. Adding a kind of work: one struct
 * ls_micro_op and one line in bench/micro/ops.c. */
#ifndef LS_BENCH_MICRO_JOB_H
#define LS_BENCH_MICRO_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "bench/micro/page.h"
#include "gpu/gpu.h"
#include "impls/thread_group.h"

/* A rank of a crew: a thread of this process, a process, or a process under mpirun. */
typedef struct ls_micro_place {
    size_t rank, world;
    int device;
    ls_micro_page *page;
    ls_thread_group *shared; /* ranks as threads; else NULL */
    unsigned short port;     /* ranks as processes: where they may meet; else 0 */
    double timeout;          /* seconds to wait for peers */
    bool mpi;                /* MPI is initialised */
    ncclComm_t comm;         /* once ls_micro_communicator has been called */
    cudaStream_t stream;
} ls_micro_place;

/* Work that every rank of a crew does at the same time. Every function is called by all ranks in the same order. */
typedef struct ls_micro_op {
    const char *name;
    ls_rc (*open)(ls_micro_place *place, const ls_micro_job *job, void **self);
    /* seconds[iterations]: what each took on this rank. Whatever an iteration overwrites is written anew before it, and the
     * ranks meet before it, both outside the clock. */
    ls_rc (*measure)(void *self, size_t iterations, double *seconds);
    /* Wrong elements after one run on known values, on this rank; NULL: there is nothing to check. */
    ls_rc (*check)(void *self, uint64_t *wrong);
    void (*close)(void *self); /* safe on NULL */
} ls_micro_op;

/* NULL-ended. */
extern const ls_micro_op *const ls_micro_ops[];
const ls_micro_op *ls_micro_op_find(const char *name);

/* The place's stream on its device and, with more than one rank, its communicator. Collective. */
ls_rc ls_micro_stream(ls_micro_place *place);
ls_rc ls_micro_communicator(ls_micro_place *place);
/* Frees both; after a failure the communicator is aborted. */
void ls_micro_place_close(ls_micro_place *place, bool failed);

/* For ls_micro_op.measure: per iteration prepare (may be NULL), the ranks meet, and run under the clock. */
ls_rc ls_micro_time(ls_micro_place *place, void *self, ls_rc (*prepare)(void *self), ls_rc (*run)(void *self),
                    size_t iterations, double *seconds);

#endif
