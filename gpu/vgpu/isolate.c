/* LOCKSTEP_VGPU_SCHED=isolate: proves that kernels declare all that they use.
 *
 * One operation of the process runs at a time. While a kernel runs, device memory is closed but for the pages of what it has
 * declared, and those that it only reads are read-only. Bytes that share a page with declared ones are judged by running the kernel
 * twice: the second time everything that it has not declared to read holds other values. Both runs must write the same values, all
 * over what is declared to be written, and nothing else. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/runtime.h"

enum { OTHER_VALUES = 0x5A };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The pages of the declared ranges, without overlaps, in order; each with what it held. */
typedef struct span {
    char *from;
    size_t bytes;
    bool writable;
    unsigned char *how;              /* [bytes]: VGPU_READ, VGPU_WRITE as declared */
    unsigned char *before, *written; /* [bytes]: contents at first, and after the first run */
} span;

typedef struct spans {
    span list[VGPU_MAX_ACCESSES];
    size_t count;
} spans;

static int by_address(const void *a, const void *b) {
    const span *left = a;
    const span *right = b;
    return left->from < right->from ? -1 : left->from > right->from;
}

static void list_spans(const vgpu_queued *queued, spans *out) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    span list[VGPU_MAX_ACCESSES];
    size_t count = 0;
    for (size_t i = 0; i < queued->access_count; i++) {
        const vgpu_access *access = &queued->access[i];
        if (access->pointer != NULL && access->bytes > 0) {
            uintptr_t from = (uintptr_t)access->pointer / page * page;
            uintptr_t to = ((uintptr_t)access->pointer + access->bytes + page - 1) / page * page;
            list[count] = (span){.from = (char *)from, .bytes = to - from, .writable = (access->how & VGPU_WRITE) != 0};
            count++;
        }
    }
    qsort(list, count, sizeof list[0], by_address);
    out->count = 0;
    for (size_t i = 0; i < count; i++) {
        span *last = out->count > 0 ? &out->list[out->count - 1] : NULL;
        if (last != NULL && list[i].from < last->from + last->bytes) {
            size_t end = (size_t)(list[i].from - last->from) + list[i].bytes;
            last->bytes = end > last->bytes ? end : last->bytes;
            last->writable = last->writable || list[i].writable;
        } else {
            out->list[out->count] = list[i];
            out->count++;
        }
    }
}

static void free_spans(spans *all) {
    for (size_t i = 0; i < all->count; i++) {
        free(all->list[i].how);
        free(all->list[i].before);
        free(all->list[i].written);
    }
}

static bool keep_contents(const vgpu_queued *queued, spans *all) {
    for (size_t i = 0; i < all->count; i++) {
        span *s = &all->list[i];
        s->how = calloc(s->bytes, 1);
        s->before = malloc(s->bytes);
        s->written = malloc(s->bytes);
        if (s->how == NULL || s->before == NULL || s->written == NULL) {
            return false;
        }
        memcpy(s->before, s->from, s->bytes);
        for (size_t a = 0; a < queued->access_count; a++) {
            const vgpu_access *access = &queued->access[a];
            uintptr_t at = (uintptr_t)access->pointer - (uintptr_t)s->from;
            for (size_t b = 0; access->pointer != NULL && at < s->bytes && b < access->bytes; b++) {
                s->how[at + b] |= (unsigned char)access->how;
            }
        }
    }
    return true;
}

/* Runs the kernel on its declared pages alone. */
static cudaError_t run_alone(vgpu_queued *queued, const spans *all) {
    for (int device = 0; device < vgpu_get_settings()->devices; device++) {
        vgpu_memory_protect(device, PROT_NONE);
    }
    for (size_t i = 0; i < all->count; i++) {
        const span *s = &all->list[i];
        if (vgpu_address_device(s->from) >= 0) { /* pinned host memory stays open */
            mprotect(s->from, s->bytes, s->writable ? PROT_READ | PROT_WRITE : PROT_READ);
        }
    }
    cudaError_t status = queued->run(queued->payload);
    for (int device = 0; device < vgpu_get_settings()->devices; device++) {
        vgpu_memory_protect(device, PROT_READ | PROT_WRITE);
    }
    return status;
}

static cudaError_t complain(const vgpu_queued *queued, const char *what, const char *address) {
    char operation[400];
    vgpu_stream *stream = NULL;
    const void *start = address;
    size_t whole = 0;
    (void)vgpu_running(&stream);
    int device = vgpu_allocation(&start, &whole);
    vgpu_describe_operation(operation, sizeof operation, queued->name, stream->device, vgpu_stream_number(stream),
                            queued->place);
    ls_notice("isolate: %s %s: byte %zu of an allocation of %zu bytes on device %d", operation, what,
              (size_t)(address - (const char *)start), whole, device);
    return cudaErrorLaunchFailure;
}

/* After the first run: nothing but what is declared to be written has changed. Sets the stage for the second. */
static cudaError_t judge_first(const vgpu_queued *queued, spans *all) {
    for (size_t i = 0; i < all->count; i++) {
        span *s = &all->list[i];
        memcpy(s->written, s->from, s->bytes);
        for (size_t b = 0; b < s->bytes; b++) {
            if (!(s->how[b] & VGPU_WRITE) && s->written[b] != s->before[b]) {
                return complain(queued, "writes what it has not declared to write", s->from + b);
            }
            s->from[b] = (char)(s->how[b] & VGPU_READ ? s->before[b] : s->before[b] ^ OTHER_VALUES);
        }
    }
    return cudaSuccess;
}

/* After the second run, and puts the memory into the state after the first. */
static cudaError_t judge_second(const vgpu_queued *queued, spans *all) {
    cudaError_t status = cudaSuccess;
    for (size_t i = 0; i < all->count; i++) {
        span *s = &all->list[i];
        for (size_t b = 0; b < s->bytes; b++) {
            if (status == cudaSuccess && (s->how[b] & VGPU_WRITE) && (unsigned char)s->from[b] != s->written[b]) {
                status = complain(queued,
                                  "reads what it has not declared to read, or leaves unwritten what it has declared to "
                                  "write",
                                  s->from + b);
            }
            s->from[b] = (char)s->written[b];
        }
    }
    return status;
}

static cudaError_t run_twice(vgpu_queued *queued) {
    spans all;
    list_spans(queued, &all);
    if (!keep_contents(queued, &all)) {
        free_spans(&all);
        return cudaErrorMemoryAllocation;
    }
    cudaError_t status = run_alone(queued, &all);
    status = status == cudaSuccess ? judge_first(queued, &all) : status;
    status = status == cudaSuccess ? run_alone(queued, &all) : status;
    status = status == cudaSuccess ? judge_second(queued, &all) : status;
    free_spans(&all);
    return status;
}

cudaError_t vgpu_isolate_run(vgpu_queued *queued, int device) {
    if (queued->kind == VGPU_COLLECTIVE && queued->joint.ranks > 1) {
        ls_notice(
            "isolate: a collective of several ranks would wait for work that is held up (device %d); use one rank",
            device);
        return cudaErrorNotSupported;
    }
    if (queued->kind == VGPU_HOST_FUNCTION) {
        return queued->run(queued->payload);
    }
    pthread_mutex_lock(&lock);
    cudaError_t status = queued->kind == VGPU_KERNEL ? run_twice(queued) : queued->run(queued->payload);
    pthread_mutex_unlock(&lock);
    return status;
}
