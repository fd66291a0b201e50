/* Collectives as nccl-tests measures them: what they are called with, what must come out, and what their bandwidth is. The
 * tables name them; a new collective, type or reduction is one line. */
#ifndef LS_BENCH_MICRO_COLLECTIVE_H
#define LS_BENCH_MICRO_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/micro/page.h"
#include "gpu/gpu.h"

typedef struct ls_micro_type {
    const char *name; /* nccl-tests' */
    size_t size;      /* bytes */
    ncclDataType_t nccl;
    bool in_mpi; /* MPI has it */
    bool is_float;
} ls_micro_type;

typedef struct ls_micro_redop {
    const char *name;
    ncclRedOp_t nccl;
    bool in_mpi; /* MPI has it */
} ls_micro_redop;

/* The arguments of one call; count as the library's function takes it. */
typedef struct ls_micro_call {
    const void *send;
    void *recv;
    size_t count;
    const ls_micro_type *type;
    const ls_micro_redop *redop;
    int root;
    bool in_place;
    ncclComm_t comm;
    cudaStream_t stream;
} ls_micro_call;

typedef struct ls_micro_collective {
    const char *name;
    bool rooted, reduces;
    /* Of the elements of the whole (size/type), what a rank sends and what it receives: 1 all, 0 its part (1/world). */
    bool sends_all, receives_all;
    /* busbw/algbw is factor*(world-1)/world, or 1 when factor is 0 (nccl-tests, doc/PERFORMANCE.md). */
    double factor;
    ncclResult_t (*nccl)(const ls_micro_call *call);
} ls_micro_collective;

/* Ended by a NULL name. */
extern const ls_micro_collective ls_micro_collectives[];
extern const ls_micro_type ls_micro_types[];
extern const ls_micro_redop ls_micro_redops[];

/* Index of a name in its table; SIZE_MAX: not there. */
size_t ls_micro_collective_find(const char *name);
size_t ls_micro_type_find(const char *name);
size_t ls_micro_redop_find(const char *name);

/* Elements of the whole for a size in bytes: rounded down to what all ranks can share evenly where they hold parts. */
size_t ls_micro_elements(const ls_micro_collective *collective, size_t bytes, size_t type_size, size_t world);

/* What the indices of a job name, and its sizes for one rank. */
typedef struct ls_micro_plan {
    const ls_micro_collective *collective;
    const ls_micro_type *type;
    const ls_micro_redop *redop;
    size_t whole, sends, receives; /* elements */
    size_t part;                   /* bytes before this rank's part of the whole */
} ls_micro_plan;

ls_micro_plan ls_micro_plan_make(const ls_micro_job *job, size_t world, size_t rank);
/* The call of a plan, but for its memory, communicator and stream. */
ls_micro_call ls_micro_plan_call(const ls_micro_plan *plan, const ls_micro_job *job);

/* What nccl-tests calls bus bandwidth, for an algorithm bandwidth of 1. */
double ls_micro_bus_factor(const ls_micro_collective *collective, size_t world);

/* Why this combination has no exact expected values or no function ("" : it has): one line. mpi: by MPI. */
const char *ls_micro_refuse(const ls_micro_collective *collective, const ls_micro_type *type,
                            const ls_micro_redop *redop, size_t world, bool mpi);

/* The values that a rank sends, count of them. Small integers that depend on rank and place, so that every sum and product
 * of them over the ranks is exact in every type and order: the tolerance is zero. */
void ls_micro_fill(const ls_micro_collective *collective, const ls_micro_type *type, const ls_micro_redop *redop,
                   size_t world, size_t rank, size_t count, void *values);

/* How many of the `count` elements that rank received differ from what they must be, bit for bit. whole: elements of the
 * whole (ls_micro_elements). */
uint64_t ls_micro_count_wrong(const ls_micro_collective *collective, const ls_micro_type *type,
                              const ls_micro_redop *redop, size_t world, size_t rank, size_t root, size_t whole,
                              size_t count, const void *values);

#endif
