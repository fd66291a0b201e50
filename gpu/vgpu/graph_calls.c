/* The calls on captures and graphs. */
#include "gpu/vgpu/graph.h"

typedef struct graph {
    _Alignas(64) vgpu_slot slot;
    pthread_mutex_t lock; /* body, and the life of the handle */
    vgpu_body *body;
} graph;

typedef struct executable {
    _Alignas(64) vgpu_slot slot;
    pthread_mutex_t lock; /* exec, and the life of the handle; held while it is launched */
    vgpu_exec *exec;
} executable;

static void prepare_graph(void *object) {
    pthread_mutex_init(&((graph *)object)->lock, NULL);
}

static void prepare_executable(void *object) {
    pthread_mutex_init(&((executable *)object)->lock, NULL);
}

static vgpu_pool graphs = {
    .object_size = sizeof(graph), .tag = 0x96, .prepare = prepare_graph, .lock = PTHREAD_MUTEX_INITIALIZER};
static vgpu_pool executables = {
    .object_size = sizeof(executable), .tag = 0xe9, .prepare = prepare_executable, .lock = PTHREAD_MUTEX_INITIALIZER};

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    VGPU_ENTER();
    if ((unsigned)mode > cudaStreamCaptureModeRelaxed) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    if (handle == NULL || handle == cudaStreamLegacy) {
        return vgpu_leave(cudaErrorStreamCaptureUnsupported);
    }
    vgpu_stream *stream = vgpu_stream_find(handle);
    return vgpu_leave(stream != NULL ? vgpu_capture_begin(stream, mode) : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *pGraph) {
    VGPU_ENTER();
    vgpu_stream *stream = vgpu_stream_find(handle);
    if (pGraph == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    *pGraph = NULL;
    if (stream == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    vgpu_body *body = NULL;
    cudaError_t status = vgpu_capture_end(stream, &body);
    if (status != cudaSuccess) {
        return vgpu_leave(status);
    }
    graph *made = vgpu_pool_take(&graphs);
    if (made == NULL) {
        vgpu_body_release(body);
        return vgpu_leave(cudaErrorMemoryAllocation);
    }
    made->body = body;
    *pGraph = (cudaGraph_t)vgpu_pool_publish(&graphs, &made->slot);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *pCaptureStatus) {
    VGPU_ENTER();
    vgpu_stream *stream = vgpu_stream_find(handle);
    if (stream == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    if (pCaptureStatus == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    return vgpu_leave(vgpu_capture_status(stream, pCaptureStatus));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    VGPU_ENTER();
    return vgpu_leave(vgpu_capture_exchange_mode(mode));
}

/* The body of a live graph, with a reference for the caller. */
static vgpu_body *body_of(cudaGraph_t handle) {
    graph *g = vgpu_pool_find(&graphs, (uintptr_t)handle);
    vgpu_body *body = NULL;
    if (g != NULL) {
        pthread_mutex_lock(&g->lock);
        if (atomic_load(&g->slot.handle) == (uintptr_t)handle) {
            body = g->body;
            atomic_fetch_add(&body->references, 1);
        }
        pthread_mutex_unlock(&g->lock);
    }
    return body;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t handle, unsigned long long flags) {
    VGPU_ENTER();
    if (pGraphExec == NULL || flags != 0) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    *pGraphExec = NULL;
    vgpu_body *body = body_of(handle);
    if (body == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    vgpu_exec *exec = NULL;
    cudaError_t status = vgpu_exec_open(body, &exec);
    if (status != cudaSuccess) {
        return vgpu_leave(status);
    }
    executable *made = vgpu_pool_take(&executables);
    if (made == NULL) {
        vgpu_exec_close(exec);
        return vgpu_leave(cudaErrorMemoryAllocation);
    }
    made->exec = exec;
    *pGraphExec = (cudaGraphExec_t)vgpu_pool_publish(&executables, &made->slot);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t handle) {
    VGPU_ENTER();
    executable *e = vgpu_pool_find(&executables, (uintptr_t)graphExec);
    vgpu_stream *stream = vgpu_stream_find(handle);
    if (e == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    if (stream == NULL) {
        return vgpu_leave(cudaErrorInvalidResourceHandle);
    }
    if (vgpu_stream_captures(handle)) {
        return vgpu_leave(vgpu_capture_asked_stream(stream));
    }
    pthread_mutex_lock(&e->lock);
    bool alive = atomic_load(&e->slot.handle) == (uintptr_t)graphExec;
    cudaError_t status = alive ? vgpu_exec_launch(e->exec, stream, handle) : cudaErrorInvalidValue;
    pthread_mutex_unlock(&e->lock);
    return vgpu_leave(status);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
    VGPU_ENTER();
    executable *e = vgpu_pool_find(&executables, (uintptr_t)graphExec);
    if (e == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    pthread_mutex_lock(&e->lock);
    bool ended = vgpu_pool_retire(&e->slot, (uintptr_t)graphExec);
    vgpu_exec *exec = ended ? e->exec : NULL;
    pthread_mutex_unlock(&e->lock);
    if (!ended) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    vgpu_exec_close(exec);
    vgpu_pool_release(&executables, &e->slot);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
    VGPU_ENTER();
    graph *g = vgpu_pool_find(&graphs, (uintptr_t)handle);
    if (g == NULL) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    pthread_mutex_lock(&g->lock);
    bool ended = vgpu_pool_retire(&g->slot, (uintptr_t)handle);
    vgpu_body *body = ended ? g->body : NULL;
    pthread_mutex_unlock(&g->lock);
    if (!ended) {
        return vgpu_leave(cudaErrorInvalidValue);
    }
    vgpu_body_release(body);
    vgpu_pool_release(&graphs, &g->slot);
    return cudaSuccess;
}
