#include "gpu/vgpu/guard.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/arena.h"
#include "gpu/vgpu/fault.h"
#include "gpu/vgpu/runtime.h"

enum { POISON = 0xFF };

static size_t round_up(size_t size, size_t unit) {
    return (size + unit - 1) / unit * unit;
}

static size_t page_size(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t vgpu_guard_whole(size_t size, size_t *lead) {
    *lead = 0;
    if ((!vgpu_mode.guard && vgpu_mode.sched != VGPU_ISOLATE) || size > SIZE_MAX - 4 * page_size()) {
        return size;
    }
    size_t data = round_up(size, page_size());
    if (!vgpu_mode.guard) {
        return data;
    }
    *lead = page_size() + data - round_up(size, VGPU_ALIGNMENT);
    return data + 2 * page_size();
}

bool vgpu_guard_map(char *base, size_t size) {
    if (!vgpu_mode.guard && vgpu_mode.sched != VGPU_ISOLATE) {
        return true;
    }
    vgpu_fault_catch();
    return !vgpu_mode.guard || mprotect(base, size, PROT_NONE) == 0;
}

bool vgpu_guard_begin(char *block, size_t size) {
    size_t data = round_up(size, page_size());
    if (!vgpu_mode.guard) {
        return true;
    }
    if (mprotect(block + page_size(), data, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    memset(block + page_size(), POISON, data);
    return true;
}

static bool untouched(const char *from, const char *to) {
    while (from < to && (unsigned char)*from == POISON) {
        from++;
    }
    return from == to;
}

cudaError_t vgpu_guard_end(char *block, size_t size, int device) {
    if (!vgpu_mode.guard) {
        return cudaSuccess;
    }
    size_t lead = 0;
    (void)vgpu_guard_whole(size, &lead);
    size_t data = round_up(size, page_size());
    char *first = block + page_size();
    bool before = untouched(first, block + lead);
    bool well = before && untouched(block + lead + size, first + data);
    if (!well) {
        ls_notice("guard: bytes right %s an allocation of %zu bytes on device %d were written",
                  before ? "behind" : "before", size, device);
    }
    memset(first, POISON, data);
    if (mprotect(first, data, PROT_NONE) != 0) {
        ls_notice("guard: cannot close %zu freed bytes of device %d", data, device);
        well = false;
    }
    return well ? cudaSuccess : cudaErrorIllegalAddress;
}

/* Where an address lies among the allocations. */
static void describe_address(char *text, size_t size, const void *address, int device) {
    const void *start = address;
    size_t whole = 0;
    (void)vgpu_allocation(&start, &whole);
    if (whole == 0) {
        snprintf(text, size, "memory of device %d that is not allocated, or no longer", device);
    } else if ((uintptr_t)address < (uintptr_t)start) {
        snprintf(text, size, "%zu bytes before an allocation of %zu bytes on device %d",
                 (size_t)((uintptr_t)start - (uintptr_t)address), whole, device);
    } else if ((uintptr_t)address - (uintptr_t)start >= whole) {
        snprintf(text, size, "%zu bytes behind the end of an allocation of %zu bytes on device %d",
                 (size_t)((uintptr_t)address - (uintptr_t)start - whole), whole, device);
    } else {
        snprintf(text, size, "byte %zu of an allocation of %zu bytes on device %d",
                 (size_t)((uintptr_t)address - (uintptr_t)start), whole, device);
    }
}

bool vgpu_guard_explain(const void *address) {
    int device = vgpu_address_device(address);
    vgpu_stream *stream = NULL;
    const vgpu_queued *running = vgpu_running(&stream);
    if (device < 0 || (!vgpu_mode.guard && vgpu_mode.sched != VGPU_ISOLATE)) {
        return false;
    }
    char where[160];
    char what[400] = "the host";
    describe_address(where, sizeof where, address, device);
    if (running != NULL) {
        vgpu_describe_operation(what, sizeof what, running->name, stream->device, vgpu_stream_number(stream),
                                running->place);
    }
    ls_notice(vgpu_mode.guard ? "guard: %s uses %s" : "isolate: %s uses memory that it has not declared: %s", what,
              where);
    return true;
}
