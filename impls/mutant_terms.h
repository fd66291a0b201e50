/* Faults of a reduction (gpu/base/mutant.h): the term that the last rank, or device, puts in, and the sum that comes out, are
 * tampered with for the whole gradient, or for one item of it in each step. In the ordinary build nothing is left of this. */
#ifndef LS_IMPLS_MUTANT_TERMS_H
#define LS_IMPLS_MUTANT_TERMS_H

#include "gpu/gpu.h"
#include "impls/buckets.h"

/* Where a reduction is under way. */
typedef struct ls_mutant_place {
    const ls_model *model;
    ls_dtype dtype;
    const ls_bucket_plan *plan; /* NULL: without buckets */
    uint64_t step;              /* from 0 */
    cudaStream_t stream;        /* on which the reduction is enqueued */
    bool last;                  /* this is the term of the last rank, or device */
} ls_mutant_place;

#ifdef LOCKSTEP_MUTANTS

/* Before the reduction of [offset, offset + count) of a flat gradient: faults of this term. flat also names the memory from step
 * to step. */
ls_rc ls_mutant_term(const ls_mutant_place *place, size_t offset, size_t count, void *flat);
/* After it: faults of the sum. */
ls_rc ls_mutant_sum(const ls_mutant_place *place, size_t offset, size_t count, void *flat);

#else

static inline ls_rc ls_mutant_term(const ls_mutant_place *place, size_t offset, size_t count, const void *flat) {
    (void)place;
    (void)offset;
    (void)count;
    (void)flat;
    return LS_OK;
}

static inline ls_rc ls_mutant_sum(const ls_mutant_place *place, size_t offset, size_t count, const void *flat) {
    return ls_mutant_term(place, offset, count, flat);
}

#endif
#endif
