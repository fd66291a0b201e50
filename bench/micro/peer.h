/* The rows of `lockstep micro --peers`. */
#ifndef LS_BENCH_MICRO_PEER_H
#define LS_BENCH_MICRO_PEER_H

#include "bench/micro/micro.h"

/* One side of a ratio: a job on a crew. */
typedef struct ls_micro_side {
    ls_crew_kind kind;
    size_t world;
    ls_micro_job job;
} ls_micro_side;

/* ratio = scale * seconds of theirs / seconds of ours: how much faster ours is, or which share of a roof it reaches. */
typedef struct ls_micro_peer {
    char name[80], against[80];
    ls_micro_side ours, theirs;
    double scale;
    double target; /* the ratio that is aimed at; 0: none */
} ls_micro_peer;

/* Every row for the kinds of ranks and the text in options->only. Owned by the caller, who frees *out. */
ls_rc ls_micro_peer_rows(const ls_micro_options *options, ls_micro_peer **out, size_t *count);

#endif
