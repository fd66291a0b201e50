/* What can be said about a request before it is queued. */
#include <stdio.h>
#include <string.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/runtime.h"

__thread struct vgpu_place vgpu_place;
unsigned char vgpu_wants_access;
vgpu_modes vgpu_mode;

static _Thread_local struct {
    vgpu_access list[VGPU_MAX_ACCESSES];
    size_t count;
} declared;

void vgpu_declare_access(const vgpu_access *list, size_t count) {
    declared.count = count < VGPU_MAX_ACCESSES ? count : VGPU_MAX_ACCESSES;
    memcpy(declared.list, list, declared.count * sizeof *list);
}

size_t vgpu_take_declaration(const vgpu_access **list) {
    size_t count = declared.count;
    declared.count = 0;
    *list = declared.list;
    return count;
}

const char *vgpu_source_name(const char *file) {
    while (strncmp(file, "../", 3) == 0) {
        file += 3;
    }
    return file;
}

/* Kernels' names are the text of a macro's argument, with parentheses and template arguments. */
void vgpu_describe_operation(char *text, size_t size, const char *name, int device, unsigned stream,
                             struct vgpu_place place) {
    char where[256] = "";
    char queue[32];
    const char *start = name + strspn(name, "(");
    if (place.file != NULL) {
        snprintf(where, sizeof where, ", %s:%d", vgpu_source_name(place.file), place.line);
    }
    snprintf(queue, sizeof queue, stream == 0 ? "default stream" : "stream %u", stream);
    snprintf(text, size, "%.*s (%s of device %d%s)", (int)strcspn(start, "<)"), start, queue, device, where);
}

unsigned vgpu_stream_number(const vgpu_stream *stream) {
    return stream == &vgpu_device_get(stream->device)->legacy ? 0 : stream->slot.index + 1;
}

static cudaError_t refuse(const vgpu_stream *stream, const vgpu_request *request, const char *why) {
    char what[400];
    vgpu_describe_operation(what, sizeof what, request->name, stream->device, vgpu_stream_number(stream), vgpu_place);
    ls_notice("%s: %s %s",
              vgpu_mode.guard                   ? "guard"
              : vgpu_mode.sched == VGPU_ISOLATE ? "isolate"
                                                : "check",
              what, why);
    return cudaErrorIllegalAddress;
}

/* Each range lies inside one live allocation that the stream's device can reach. */
static cudaError_t check_access(const vgpu_stream *stream, const vgpu_request *request, const vgpu_access *access) {
    char why[160];
    size_t remaining = 0;
    int device = vgpu_pointer_device(access->pointer, &remaining);
    const char *verb = access->how & VGPU_WRITE ? "writes" : "reads";
    if (device < 0 && vgpu_host_pinned(access->pointer, &remaining, NULL)) {
        device = stream->device;
    }
    if (device < 0 || remaining < access->bytes) {
        snprintf(why, sizeof why, "%s %zu bytes at %p, of which %zu lie in an allocation", verb, access->bytes,
                 access->pointer, device < 0 ? 0 : remaining);
        return refuse(stream, request, why);
    }
    bool reaches = device == stream->device || request->kind == VGPU_PEER_COPY ||
                   (atomic_load(&vgpu_device_get(stream->device)->peers) >> device & 1) != 0;
    if (vgpu_mode.guard && !reaches) {
        snprintf(why, sizeof why,
                 "%s memory of device %d, to which its device has no access: call cudaDeviceEnablePeerAccess, or copy "
                 "with cudaMemcpyPeerAsync",
                 verb, device);
        return refuse(stream, request, why);
    }
    return cudaSuccess;
}

cudaError_t vgpu_inspect(vgpu_stream *stream, const vgpu_request *request) {
    cudaError_t status = cudaSuccess;
    if (request->kind == VGPU_KERNEL && request->access_count == 0) {
        status = refuse(stream, request, "does not declare what memory it uses");
    }
    for (size_t i = 0; i < request->access_count && status == cudaSuccess; i++) {
        if (request->access[i].pointer != NULL && request->access[i].bytes > 0) {
            status = check_access(stream, request, &request->access[i]);
        }
    }
    if (status == cudaSuccess && vgpu_mode.sched == VGPU_CHECK) {
        status = vgpu_check_queue(stream, request);
    }
    if (status != cudaSuccess) {
        vgpu_device_fail(stream->device, status);
    }
    return status;
}
