/* Evidence that communication runs under backward: events on the two streams, read a few steps later, when they have passed
 * anyway, so that measuring never waits. */
#ifndef LS_IMPLS_DDP_OVERLAP_H
#define LS_IMPLS_DDP_OVERLAP_H

#include <stdbool.h>

#include "gpu/gpu.h"
#include "impls/impl.h"

enum {
    LS_OVERLAP_SLOTS = 8,   /* steps that may be under way before one goes unmeasured */
    LS_OVERLAP_KEPT = 1024, /* latest steps over which the median is taken */
};

typedef struct ls_ddp_overlap {
    struct {
        cudaEvent_t reduction; /* the stream of the first allreduce, just before it */
        cudaEvent_t backward;  /* compute stream, just after backward's last kernel */
        bool recorded;
    } slots[LS_OVERLAP_SLOTS];
    size_t next;
    bool measuring; /* this step has a slot */
    uint64_t steps, measured;
    float leads[LS_OVERLAP_KEPT]; /* milliseconds from the reduction's start to backward's end; a ring */
} ls_ddp_overlap;

/* Makes the events on the current device. On failure ls_ddp_overlap_close frees what was made. */
ls_rc ls_ddp_overlap_open(ls_ddp_overlap *overlap);
void ls_ddp_overlap_close(ls_ddp_overlap *overlap);

/* Around a step: takes a slot, if the oldest one's events have passed, and gives it up to be read. */
void ls_ddp_overlap_begin(ls_ddp_overlap *overlap);
void ls_ddp_overlap_end(ls_ddp_overlap *overlap);
/* In between, once each: the first allreduce comes next on stream; the last gradient's kernel came last on stream. */
ls_rc ls_ddp_overlap_reduction(ls_ddp_overlap *overlap, cudaStream_t stream);
ls_rc ls_ddp_overlap_backward(ls_ddp_overlap *overlap, cudaStream_t stream);

/* Reads what has passed into the overlap_ members of out. */
void ls_ddp_overlap_read(ls_ddp_overlap *overlap, ls_counters *out);

#endif
