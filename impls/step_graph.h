/* A training step as a CUDA graph (--graph). The first full steps run as they are, so that whatever is allocated or loaded at
 * its first use is there; then one is captured, and from then on a full step is one launch. Steps of fewer samples, the last
 * of an epoch, run as they are. The bits are the same. */
#ifndef LS_IMPLS_STEP_GRAPH_H
#define LS_IMPLS_STEP_GRAPH_H

#include "gpu/gpu.h"
#include "impls/impl.h"

/* Full steps before one is captured: with the second, SGD has left its first step behind and DDP has broadcast buffers. */
enum { LS_GRAPH_WARMUP = 2 };

/* The part of a step that is the same for every batch: all but what ls_replica_load does. */
typedef struct ls_step_parts {
    void *self;
    cudaStream_t stream; /* of the current device: where a capture begins and ends, and the graph is launched */
    /* Enqueues it, on streams that are forked from stream by events and joined to it again. */
    ls_rc (*run)(void *self);
    /* The graph has been, or is about to be, launched in place of run: the host's own counts move on. */
    void (*replayed)(void *self);
    /* Launches the graph; NULL: into stream. */
    ls_rc (*launch)(void *self, cudaGraphExec_t exec);
    ls_counters *counters; /* they go on at each launch as in the captured step */
    ls_protocol *protocol; /* likewise; NULL: none */
} ls_step_parts;

typedef struct ls_step_graph {
    bool wanted;
    size_t full;          /* samples of a full step */
    size_t warm;          /* full steps so far that ran as they are */
    bool capturing;       /* run is being captured: nothing may be asked of streams and events, and no time is taken */
    cudaGraphExec_t exec; /* NULL: none yet */
    /* what a captured step has counted and begun */
    ls_counters counted;
    size_t begun_count;
    ls_collective *begun; /* [begun_count], owned */
} ls_step_graph;

/* For a run's options; full: samples of a full step. */
void ls_step_graph_open(ls_step_graph *graph, const ls_run *run, size_t full);
/* Safe on a zeroed graph. The devices have finished with it. */
void ls_step_graph_close(ls_step_graph *graph);

/* A step of count samples, whose batch has been loaded. */
ls_rc ls_step_graph_run(ls_step_graph *graph, const ls_step_parts *parts, size_t count);

#endif
