/* Segments in order of address, without overlaps. An access splits those that it cuts; a write makes its range one segment
 * again. As in FastTrack (Flanagan, Freund 2009) only the last write and the reads after it are kept: whatever is not ordered
 * after an earlier use is not ordered after these either, or was reported before. */
#include "gpu/vgpu/shadow.h"

#include <stdlib.h>
#include <string.h>

typedef struct segment {
    uintptr_t from, to;
    bool written;
    vgpu_use write;
    vgpu_use *reads; /* owned; at most one a timeline */
    size_t read_count;
} segment;

static struct {
    segment *list;
    size_t count, capacity;
} shadow;

/* Index of the first segment that ends beyond address. */
static size_t first_beyond(uintptr_t address) {
    size_t low = 0;
    size_t high = shadow.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (shadow.list[middle].to <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Makes room for one more at index. */
static bool insert(size_t index, segment made) {
    if (shadow.count == shadow.capacity) {
        size_t capacity = shadow.capacity == 0 ? 256 : 2 * shadow.capacity;
        segment *list = realloc(shadow.list, capacity * sizeof *list);
        if (list == NULL) {
            return false;
        }
        shadow.list = list;
        shadow.capacity = capacity;
    }
    memmove(&shadow.list[index + 1], &shadow.list[index], (shadow.count - index) * sizeof made);
    shadow.list[index] = made;
    shadow.count++;
    return true;
}

/* Makes address a border between segments, if a segment holds it. */
static bool split(uintptr_t address) {
    size_t i = first_beyond(address);
    if (i == shadow.count || shadow.list[i].from >= address) {
        return true;
    }
    segment right = shadow.list[i];
    right.from = address;
    right.reads = NULL;
    if (right.read_count > 0) {
        right.reads = malloc(right.read_count * sizeof *right.reads);
        if (right.reads == NULL) {
            return false;
        }
        memcpy(right.reads, shadow.list[i].reads, right.read_count * sizeof *right.reads);
    }
    if (!insert(i + 1, right)) {
        free(right.reads);
        return false;
    }
    shadow.list[i].to = address;
    return true;
}

/* Drops the segments inside from..to, at whose ends there are borders. */
static void drop(uintptr_t from, uintptr_t to) {
    size_t first = first_beyond(from);
    size_t last = first;
    while (last < shadow.count && shadow.list[last].from < to) {
        free(shadow.list[last].reads);
        last++;
    }
    if (last > first) { /* else the list may not have been made yet */
        memmove(&shadow.list[first], &shadow.list[last], (shadow.count - last) * sizeof *shadow.list);
        shadow.count -= last - first;
    }
}

bool vgpu_shadow_clear(const void *pointer, size_t bytes) {
    uintptr_t from = (uintptr_t)pointer;
    if (!split(from) || !split(from + bytes)) {
        return false;
    }
    drop(from, from + bytes);
    return true;
}

static uintptr_t later(uintptr_t a, uintptr_t b) {
    return a > b ? a : b;
}

static uintptr_t earlier(uintptr_t a, uintptr_t b) {
    return a < b ? a : b;
}

bool vgpu_shadow_conflict(const vgpu_access *access, vgpu_ordered ordered, void *context, vgpu_conflict *out) {
    uintptr_t from = (uintptr_t)access->pointer;
    uintptr_t to = from + access->bytes;
    for (size_t i = first_beyond(from); i < shadow.count && shadow.list[i].from < to; i++) {
        const segment *s = &shadow.list[i];
        const vgpu_use *found = s->written && !ordered(&s->write, context) ? &s->write : NULL;
        bool writes = found != NULL;
        for (size_t r = 0; r < s->read_count && found == NULL && (access->how & VGPU_WRITE); r++) {
            found = ordered(&s->reads[r], context) ? NULL : &s->reads[r];
        }
        if (found != NULL) {
            *out = (vgpu_conflict){*found, writes, later(s->from, from), earlier(s->to, to)};
            return true;
        }
    }
    return false;
}

static bool add_read(segment *s, const vgpu_use *use) {
    for (size_t r = 0; r < s->read_count; r++) {
        if (s->reads[r].timeline == use->timeline) { /* what is ordered after the later one is ordered after both */
            s->reads[r] = *use;
            return true;
        }
    }
    vgpu_use *reads = realloc(s->reads, (s->read_count + 1) * sizeof *reads);
    if (reads == NULL) {
        return false;
    }
    s->reads = reads;
    s->reads[s->read_count] = *use;
    s->read_count++;
    return true;
}

/* A read: every segment of the range has it, and what no segment covers gets one. */
static bool record_read(uintptr_t from, uintptr_t to, const vgpu_use *use) {
    size_t i = first_beyond(from);
    while (from < to) {
        if (i == shadow.count || shadow.list[i].from > from) {
            uintptr_t end = i < shadow.count ? earlier(shadow.list[i].from, to) : to;
            if (!insert(i, (segment){.from = from, .to = end})) {
                return false;
            }
        }
        if (!add_read(&shadow.list[i], use)) {
            return false;
        }
        from = shadow.list[i].to;
        i++;
    }
    return true;
}

bool vgpu_shadow_record(const vgpu_access *access, const vgpu_use *use) {
    uintptr_t from = (uintptr_t)access->pointer;
    uintptr_t to = from + access->bytes;
    if (!split(from) || !split(to)) {
        return false;
    }
    if (!(access->how & VGPU_WRITE)) {
        return record_read(from, to, use);
    }
    drop(from, to);
    return insert(first_beyond(from), (segment){.from = from, .to = to, .written = true, .write = *use});
}
