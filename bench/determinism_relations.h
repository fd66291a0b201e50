/* Which runs must give the same bits, and where they may differ: one line a relation. */
#ifndef LS_BENCH_DETERMINISM_RELATIONS_H
#define LS_BENCH_DETERMINISM_RELATIONS_H

#include <stdbool.h>
#include <stddef.h>

/* What the two runs of a comparison differ in. */
typedef enum ls_varied {
    LS_VARIED_NOTHING = 0, /* the same command twice */
    LS_VARIED_RANK,        /* the ranks of one run */
    LS_VARIED_LOADER,      /* batches made ahead by two threads, or in the step */
    LS_VARIED_KIND,        /* ranks as threads, or as processes */
    LS_VARIED_BUCKETS,     /* every bucket cap against the last of the list */
    LS_VARIED_ORDER,       /* buckets reduced in reverse */
    LS_VARIED_GRAPH,       /* steps as CUDA graphs, or as they are */
    LS_VARIED_IMPL,        /* another implementation on as many devices */
    LS_VARIED_WORLD,       /* the smallest device count of the list, same global batch */
} ls_varied;

typedef struct ls_relation {
    ls_varied varied;
    const char *impl;     /* NULL: every one */
    const char *other;    /* LS_VARIED_IMPL: the other implementation */
    const char *platform; /* "vgpu", "cuda"; NULL: both */
    size_t equal_up_to;   /* devices up to which bits are promised; SIZE_MAX: always */
    const char *reason;   /* why they are equal, or what differs beyond */
} ls_relation;

/* Ended by a NULL reason. */
extern const ls_relation ls_relations[];

/* "bucket size", "rank" */
const char *ls_varied_name(ls_varied varied);

typedef enum ls_sameness { LS_SAME = 0, LS_DIFFERS_AS_DOCUMENTED, LS_DIFFERS_UNEXPECTEDLY } ls_sameness;

/* "equal", "differs as documented", "differs unexpectedly" */
const char *ls_sameness_name(ls_sameness sameness);

/* What it means that the bits of two runs on so many devices are equal or not. */
ls_sameness ls_relation_judge(const ls_relation *relation, size_t devices, bool equal);

#endif
