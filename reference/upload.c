#include "reference/upload.h"

#include "reference/cleanup.h"

enum { ALIGNMENT = 256 };

size_t ls_upload_room(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

ls_rc ls_upload_stream(cudaStream_t compute, cudaStream_t *out) {
    int device = 0, engines = 0;
    *out = compute;
    LS_CUDA(cudaGetDevice(&device));
    LS_CUDA(cudaDeviceGetAttribute(&engines, cudaDevAttrAsyncEngineCount, device));
    if (engines > 0) {
        LS_CUDA(cudaStreamCreateWithFlags(out, cudaStreamNonBlocking));
    }
    return LS_OK;
}

static bool is_staged(const ls_upload *upload) {
    return upload->copies != upload->compute;
}

ls_rc ls_upload_open(ls_upload *upload, cudaStream_t compute, cudaStream_t copies, size_t bytes) {
    *upload = (ls_upload){.compute = compute, .copies = copies};
    for (size_t i = 0; i < LS_UPLOAD_STAGES && is_staged(upload); i++) {
        LS_CUDA(cudaEventCreateWithFlags(&upload->stages[i].arrived, cudaEventDisableTiming));
        LS_CUDA(cudaEventCreateWithFlags(&upload->stages[i].free, cudaEventDisableTiming));
    }
    return ls_upload_reserve(upload, bytes);
}

void ls_upload_close(ls_upload *upload, ls_rc *rc) {
    for (size_t i = 0; i < LS_UPLOAD_STAGES; i++) {
        ls_upload_stage *stage = &upload->stages[i];
        LS_CLOSE(*rc, cudaFree(stage->memory)); /* which waits for the device's copies */
        if (stage->arrived != NULL) {
            LS_CLOSE(*rc, cudaEventDestroy(stage->arrived));
        }
        if (stage->free != NULL) {
            LS_CLOSE(*rc, cudaEventDestroy(stage->free));
        }
    }
    *upload = (ls_upload){0};
}

ls_rc ls_upload_reserve(ls_upload *upload, size_t bytes) {
    if (!is_staged(upload) || bytes <= upload->bytes) {
        return LS_OK;
    }
    upload->bytes = 0;
    for (size_t i = 0; i < LS_UPLOAD_STAGES; i++) {
        ls_upload_stage *stage = &upload->stages[i];
        void *memory = stage->memory;
        stage->memory = NULL;
        LS_CUDA(cudaFree(memory)); /* which waits for the copies out of it */
        LS_CUDA(cudaMalloc(&stage->memory, bytes));
    }
    upload->bytes = bytes;
    return LS_OK;
}

/* Bytes that the parts take of a stage. */
static size_t room_of(const ls_upload_part *parts, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += ls_upload_room(parts[i].bytes);
    }
    return bytes;
}

static ls_rc into_stage(const ls_upload_part *parts, size_t count, char *stage, cudaStream_t stream) {
    for (size_t i = 0; i < count; stage += ls_upload_room(parts[i].bytes), i++) {
        LS_CUDA(cudaMemcpyAsync(stage, parts[i].from, parts[i].bytes, cudaMemcpyHostToDevice, stream));
    }
    return LS_OK;
}

static ls_rc out_of_stage(const ls_upload_part *parts, size_t count, const char *stage, cudaStream_t stream) {
    for (size_t i = 0; i < count; stage += ls_upload_room(parts[i].bytes), i++) {
        LS_CUDA(cudaMemcpyAsync(parts[i].to, stage, parts[i].bytes, cudaMemcpyDeviceToDevice, stream));
    }
    return LS_OK;
}

static ls_rc directly(const ls_upload_part *parts, size_t count, cudaStream_t stream) {
    for (size_t i = 0; i < count; i++) {
        LS_CUDA(cudaMemcpyAsync(parts[i].to, parts[i].from, parts[i].bytes, cudaMemcpyHostToDevice, stream));
    }
    return LS_OK;
}

ls_rc ls_upload_run(ls_upload *upload, const ls_upload_part *parts, size_t count) {
    if (!is_staged(upload)) {
        return directly(parts, count, upload->compute);
    }
    if (room_of(parts, count) > upload->bytes) {
        return ls_fail(LS_BAD_INPUT, "upload of a batch: expected at most %zu bytes, found %zu", upload->bytes,
                       room_of(parts, count));
    }
    ls_upload_stage *stage = &upload->stages[upload->next];
    upload->next = (upload->next + 1) % LS_UPLOAD_STAGES;
    LS_CUDA(cudaStreamWaitEvent(upload->copies, stage->free, 0)); /* not recorded yet: free */
    LS_TRY(into_stage(parts, count, stage->memory, upload->copies));
    LS_CUDA(cudaEventRecord(stage->arrived, upload->copies));
    LS_CUDA(cudaStreamWaitEvent(upload->compute, stage->arrived, 0));
    LS_TRY(out_of_stage(parts, count, stage->memory, upload->compute));
    LS_CUDA(cudaEventRecord(stage->free, upload->compute));
    return LS_OK;
}
