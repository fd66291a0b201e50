#include "impls/protocol.h"

#include <stdio.h>
#include <stdlib.h>

ls_rc ls_protocol_note(ls_protocol *protocol, ls_collective collective) {
    if (!protocol->record) {
        return LS_OK;
    }
    if (protocol->count == protocol->capacity) {
        size_t capacity = protocol->capacity == 0 ? 64 : 2 * protocol->capacity;
        ls_collective *grown = realloc(protocol->collectives, capacity * sizeof *grown);
        if (grown == NULL) {
            return ls_fail(LS_DEVICE_FAILED, "out of memory for a record of %zu collectives", capacity);
        }
        protocol->collectives = grown;
        protocol->capacity = capacity;
    }
    protocol->collectives[protocol->count++] = collective;
    return LS_OK;
}

ls_rc ls_protocol_allreduce(ls_protocol *protocol, ls_dtype dtype, size_t count) {
    return ls_protocol_note(protocol, (ls_collective){.kind = LS_COLLECTIVE_ALLREDUCE,
                                                      .element = (uint32_t)ls_dtype_size(dtype),
                                                      .floats = 1,
                                                      .count = count});
}

ls_rc ls_protocol_broadcast(ls_protocol *protocol, ls_dtype dtype, size_t count, size_t root) {
    return ls_protocol_note(protocol, (ls_collective){.kind = LS_COLLECTIVE_BROADCAST,
                                                      .element = (uint32_t)ls_dtype_size(dtype),
                                                      .floats = 1,
                                                      .root = (uint32_t)root,
                                                      .count = count});
}

void ls_protocol_forget(ls_protocol *protocol) {
    protocol->count = 0;
}

void ls_protocol_close(ls_protocol *protocol) {
    free(protocol->collectives);
    *protocol = (ls_protocol){0};
}

void ls_collective_describe(const ls_collective *collective, char *text, size_t size) {
    bool broadcast = collective->kind == LS_COLLECTIVE_BROADCAST;
    char root[32] = "";
    if (broadcast) {
        snprintf(root, sizeof root, " from rank %u", collective->root);
    }
    snprintf(text, size, "%s of %llu %s%u%s", broadcast ? "broadcast" : "allreduce",
             (unsigned long long)collective->count, collective->floats != 0 ? "float" : "int", 8 * collective->element,
             root);
}
