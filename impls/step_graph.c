#include "impls/step_graph.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/range.h"

void ls_step_graph_open(ls_step_graph *graph, const ls_run *run, size_t full) {
    *graph = (ls_step_graph){.wanted = run->graph, .full = full};
}

void ls_step_graph_close(ls_step_graph *graph) {
    if (graph->exec != NULL) {
        (void)cudaGraphExecDestroy(graph->exec);
    }
    free(graph->begun);
    *graph = (ls_step_graph){0};
}

/* Every counter that a step moves. */
static void add(ls_counters *to, const ls_counters *more, uint64_t sign) {
    to->allreduces += sign * more->allreduces;
    to->allreduce_bytes += sign * more->allreduce_bytes;
    to->broadcasts += sign * more->broadcasts;
    to->broadcast_bytes += sign * more->broadcast_bytes;
    to->peer_copies += sign * more->peer_copies;
    to->peer_copy_bytes += sign * more->peer_copy_bytes;
}

/* Keeps what the captured step has counted since `before`, and the collectives that it has noted from number first on. */
static ls_rc keep_counts(ls_step_graph *graph, const ls_step_parts *parts, const ls_counters *before, size_t first) {
    graph->counted = *parts->counters;
    add(&graph->counted, before, (uint64_t)-1);
    if (parts->protocol == NULL || parts->protocol->count == first) {
        return LS_OK;
    }
    size_t count = parts->protocol->count - first;
    graph->begun = ls_calloc(count, sizeof *graph->begun, "a captured step's collectives");
    if (graph->begun == NULL) {
        return LS_DEVICE_FAILED;
    }
    memcpy(graph->begun, parts->protocol->collectives + first, count * sizeof *graph->begun);
    graph->begun_count = count;
    return LS_OK;
}

static ls_rc count_again(const ls_step_graph *graph, const ls_step_parts *parts) {
    add(parts->counters, &graph->counted, 1);
    for (size_t i = 0; i < graph->begun_count; i++) {
        LS_TRY(ls_protocol_note(parts->protocol, graph->begun[i]));
    }
    parts->replayed(parts->self);
    return LS_OK;
}

/* Calls of other threads, such as the watch over NCCL and the loaders, are no concern of this thread's capture. */
static ls_rc capture(ls_step_graph *graph, const ls_step_parts *parts, cudaGraph_t *out) {
    LS_CUDA(cudaStreamBeginCapture(parts->stream, cudaStreamCaptureModeThreadLocal));
    graph->capturing = true;
    ls_rc rc = parts->run(parts->self);
    graph->capturing = false;
    /* Ended after a failure, too, whose line has been printed. */
    cudaError_t ended = cudaStreamEndCapture(parts->stream, out);
    return rc != LS_OK ? rc : ls_cuda_check(ended, "cudaStreamEndCapture", __FILE__, __LINE__);
}

static ls_rc make(ls_step_graph *graph, const ls_step_parts *parts) {
    LS_RANGE("graph capture");
    ls_counters before = *parts->counters;
    size_t noted = parts->protocol != NULL ? parts->protocol->count : 0;
    cudaGraph_t captured = NULL;
    ls_rc rc = capture(graph, parts, &captured);
    if (rc == LS_OK) {
        rc = ls_cuda_check(cudaGraphInstantiate(&graph->exec, captured, 0), "cudaGraphInstantiate", __FILE__, __LINE__);
    }
    if (captured != NULL) {
        (void)cudaGraphDestroy(captured);
    }
    return rc == LS_OK ? keep_counts(graph, parts, &before, noted) : rc;
}

ls_rc ls_step_graph_run(ls_step_graph *graph, const ls_step_parts *parts, size_t count) {
    if (!graph->wanted || count != graph->full) {
        return parts->run(parts->self);
    }
    if (graph->exec == NULL && graph->warm < LS_GRAPH_WARMUP) {
        graph->warm++;
        return parts->run(parts->self);
    }
    if (graph->exec == NULL) {
        LS_TRY(make(graph, parts));
    } else {
        LS_TRY(count_again(graph, parts));
    }
    parts->counters->graph_launches++;
    LS_RANGE("graph launch");
    if (parts->launch != NULL) {
        return parts->launch(parts->self, graph->exec);
    }
    LS_CUDA(cudaGraphLaunch(graph->exec, parts->stream));
    return LS_OK;
}
