/* Shared memory: every access of an element is checked against its cell. */
#include <stdlib.h>
#include <string.h>

#include "gpu/base/error.h"
#include "gpu/vgpu/fiber/block.h"

static const char *const kind_names[LS_FIBER_ACCESS_KINDS] = {"read", "write", "atomic"};

/* A thread of `by` whose access the running thread's does not come after; -1 when there is none. Accesses of one warp are
 * ordered by its __syncwarps. */
static int unordered(const ls_fiber_accesses *by) {
    unsigned self = fiber_now.current, lane = self % FIBER_WARP;
    if (by->first == 0) {
        return -1;
    }
    unsigned warp = (by->first - 1) / FIBER_WARP;
    if (warp != self / FIBER_WARP) {
        return (int)by->first - 1;
    }
    if (by->other != 0) {
        return (int)by->other - 1;
    }
    for (unsigned l = 0; l < FIBER_WARP; l++) {
        if (l != lane && by->time[l] > fiber_now.thread[self].knows[l]) {
            return (int)(warp * FIBER_WARP + l);
        }
    }
    return -1;
}

static void remember(ls_fiber_accesses *by, ls_fiber_place place) {
    unsigned self = fiber_now.current;
    if (by->first == 0) {
        by->first = self + 1;
        by->place = place;
        memset(by->time, 0, sizeof by->time);
    }
    if ((by->first - 1) / FIBER_WARP == self / FIBER_WARP) {
        by->time[self % FIBER_WARP] = fiber_now.thread[self].time;
    } else if (by->other == 0) {
        by->other = self + 1;
    }
}

static bool conflicts(int a, int b) {
    return a == LS_FIBER_WRITE || b == LS_FIBER_WRITE || a != b; /* reads agree with reads, atomics with atomics */
}

/* False out of bounds. */
static bool check(ls_fiber_array *array, size_t index, int kind, ls_fiber_place place) {
    if (index >= array->count) {
        fiber_report(place, "thread %u: shared %s[%zd] is out of bounds (%s), it has %zu elements", fiber_now.current,
                     array->name, (ptrdiff_t)index, kind_names[kind], array->count);
        return false;
    }
    ls_fiber_cell *cell = &array->cells[index];
    if (cell->interval != fiber_now.interval) {
        cell->interval = fiber_now.interval;
        for (int k = 0; k < LS_FIBER_ACCESS_KINDS; k++) {
            cell->by[k].first = 0;
            cell->by[k].other = 0;
        }
    }
    for (int k = 0; k < LS_FIBER_ACCESS_KINDS; k++) {
        int other = conflicts(kind, k) ? unordered(&cell->by[k]) : -1;
        if (other >= 0) {
            fiber_report(place, "threads %u and %d: race on shared %s[%zu]: %s here, %s at %s:%d, no barrier between",
                         fiber_now.current, other, array->name, index, kind_names[kind], kind_names[k],
                         cell->by[k].place.file, cell->by[k].place.line);
        }
    }
    remember(&cell->by[kind], place);
    if (kind != LS_FIBER_WRITE && cell->written != fiber_now.number) {
        fiber_report(place, "thread %u: shared %s[%zu] is used (%s) but not yet written by this block",
                     fiber_now.current, array->name, index, kind_names[kind]);
        memset(array->bytes + index * array->element, LS_FIBER_POISON, array->element);
    }
    cell->written = kind == LS_FIBER_READ ? cell->written : fiber_now.number;
    return true;
}

void ls_fiber_load(ls_fiber_array *array, size_t index, void *value, ls_fiber_place place) {
    if (check(array, index, LS_FIBER_READ, place)) {
        memcpy(value, array->bytes + index * array->element, array->element);
    } else {
        memset(value, LS_FIBER_POISON, array->element);
    }
}

void ls_fiber_store(ls_fiber_array *array, size_t index, const void *value, ls_fiber_place place) {
    if (check(array, index, LS_FIBER_WRITE, place)) {
        memcpy(array->bytes + index * array->element, value, array->element);
    }
}

void *ls_fiber_atomic(ls_fiber_array *array, size_t index, ls_fiber_place place) {
    return check(array, index, LS_FIBER_ATOMIC, place) ? array->bytes + index * array->element : NULL;
}

static ls_fiber_array dynamic = {.name = "dynamic memory"};
static size_t dynamic_bytes;

bool fiber_dynamic_open(size_t bytes) {
    dynamic.bytes = ls_calloc(bytes, 1, "dynamic shared memory");
    dynamic.cells = ls_calloc(bytes, sizeof *dynamic.cells, "the state of dynamic shared memory");
    dynamic.element = 0;
    dynamic.count = 0;
    dynamic_bytes = bytes;
    if (dynamic.bytes == NULL || dynamic.cells == NULL) {
        fiber_dynamic_close();
        return false;
    }
    return true;
}

void fiber_dynamic_close(void) {
    free(dynamic.bytes);
    free(dynamic.cells);
    dynamic.bytes = NULL;
    dynamic.cells = NULL;
}

ls_fiber_array *ls_fiber_dynamic(size_t element, ls_fiber_place place) {
    static ls_fiber_array none = {.name = "dynamic memory"};
    if (dynamic.element != 0 && dynamic.element != element) {
        fiber_report(place, "dynamic shared memory as elements of %zu bytes, but of %zu elsewhere in this launch",
                     element, dynamic.element);
        none.element = element;
        return &none;
    }
    if (dynamic.element == 0) {
        dynamic.element = element;
        dynamic.count = dynamic_bytes / element;
    }
    return &dynamic;
}
