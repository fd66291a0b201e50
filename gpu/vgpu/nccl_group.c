/* Group calls: what is called between ncclGroupStart and ncclGroupEnd is kept and started together. */
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/nccl_internal.h"

typedef struct group_state {
    int depth;
    ncclResult_t result; /* the first error of a call inside the group: then nothing is started */
    char *items[2];      /* operations and joins */
    size_t counts[2], capacities[2];
} group_state;

enum { OPERATIONS = 0, JOINS = 1 };

static _Thread_local group_state group;

bool nccl_group_open(void) {
    return group.depth > 0;
}

ncclResult_t nccl_group_note(ncclResult_t result) {
    if (group.depth > 0 && group.result == ncclSuccess) {
        group.result = result;
    }
    return result;
}

static ncclResult_t keep(int list, const void *item, size_t size) {
    if (group.counts[list] == group.capacities[list]) {
        size_t capacity = group.capacities[list] > 0 ? 2 * group.capacities[list] : 16;
        char *grown = realloc(group.items[list], capacity * size);
        if (grown == NULL) {
            return nccl_group_note(nccl_fail(ncclSystemError, "out of memory for a group of %zu calls", capacity));
        }
        group.items[list] = grown;
        group.capacities[list] = capacity;
    }
    memcpy(group.items[list] + group.counts[list] * size, item, size);
    group.counts[list]++;
    return ncclSuccess;
}

ncclResult_t nccl_group_join(const nccl_join *join) {
    return keep(JOINS, join, sizeof *join);
}

ncclResult_t nccl_group_operation(nccl_operation operation) {
    const nccl_operation *kept = (const nccl_operation *)(const void *)group.items[OPERATIONS];
    operation.place = group.counts[OPERATIONS];
    operation.turn = 0;
    for (size_t i = operation.place; i-- > 0 && operation.turn == 0;) {
        operation.turn = kept[i].comm == operation.comm ? kept[i].turn + 1 : 0;
    }
    return keep(OPERATIONS, &operation, sizeof operation);
}

/* Every communicator's first operation, then every second one, and so on: a stream that is full blocks the thread, and must
 * not keep back what its queue waits for. */
static int by_turn(const void *left, const void *right) {
    const nccl_operation *a = left, *b = right;
    if (a->turn != b->turn) {
        return a->turn < b->turn ? -1 : 1;
    }
    return a->place < b->place ? -1 : a->place > b->place;
}

ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (group.depth == 0) {
        return nccl_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    }
    if (group.depth > 1) {
        group.depth--;
        return ncclSuccess;
    }
    group_state ended = group;
    memset(&group, 0, sizeof group);
    ncclResult_t result = ended.result;
    if (result == ncclSuccess && ended.counts[JOINS] > 0) {
        result = nccl_join_all((nccl_join *)(void *)ended.items[JOINS], ended.counts[JOINS]);
    }
    if (result == ncclSuccess && ended.counts[OPERATIONS] > 0) {
        qsort(ended.items[OPERATIONS], ended.counts[OPERATIONS], sizeof(nccl_operation), by_turn);
        result = nccl_launch((nccl_operation *)(void *)ended.items[OPERATIONS], ended.counts[OPERATIONS]);
    }
    free(ended.items[OPERATIONS]);
    free(ended.items[JOINS]);
    return result;
}
