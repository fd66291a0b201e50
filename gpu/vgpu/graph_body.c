/* What capturing makes: nodes, and what each comes after. */
#include <stdlib.h>
#include <string.h>

#include "gpu/vgpu/graph.h"

/* --- sets of nodes ---------------------------------------------------------------------------------------------------- */

bool vgpu_node_set_add(vgpu_node_set *set, const vgpu_node_set *more) {
    if (more->count == 0) {
        return true;
    }
    uint32_t *list = realloc(set->list, (set->count + more->count) * sizeof *list);
    if (list == NULL) {
        return false;
    }
    set->list = list;
    size_t had = set->count;
    for (size_t i = 0; i < more->count; i++) {
        size_t k = 0;
        while (k < had && list[k] != more->list[i]) {
            k++;
        }
        if (k == had) {
            list[set->count] = more->list[i];
            set->count++;
        }
    }
    return true;
}

void vgpu_node_set_free(vgpu_node_set *set) {
    free(set->list);
    *set = (vgpu_node_set){0};
}

void vgpu_captured_free(vgpu_captured *captured) {
    vgpu_node_set_free(&captured->nodes);
    captured->capture = 0;
}

bool vgpu_captured_copy(vgpu_captured *to, const vgpu_captured *from) {
    *to = (vgpu_captured){.capture = from->capture};
    return vgpu_node_set_add(&to->nodes, &from->nodes);
}

/* --- what capturing makes --------------------------------------------------------------------------------------------- */

void vgpu_body_release(vgpu_body *body) {
    if (body == NULL || atomic_fetch_sub(&body->references, 1) > 1) {
        return;
    }
    for (size_t i = 0; i < body->count; i++) {
        free(body->nodes[i].access);
        vgpu_node_set_free(&body->nodes[i].before);
    }
    free(body->nodes);
    free(body->devices);
    free(body);
}

static vgpu_node *grow(vgpu_body *body) {
    if (body->count == UINT32_MAX) {
        return NULL;
    }
    if (body->count == body->capacity) {
        size_t capacity = body->capacity == 0 ? 64 : 2 * body->capacity;
        vgpu_node *nodes = aligned_alloc(_Alignof(vgpu_node), capacity * sizeof *nodes);
        if (nodes == NULL) {
            return NULL;
        }
        if (body->count > 0) {
            memcpy(nodes, body->nodes, body->count * sizeof *nodes);
        }
        free(body->nodes);
        body->nodes = nodes;
        body->capacity = capacity;
    }
    return &body->nodes[body->count];
}

bool vgpu_body_add(vgpu_body *body, size_t at, vgpu_node_set *before, const vgpu_request *request) {
    vgpu_node *node = grow(body);
    size_t bytes = request->access_count * sizeof *request->access;
    vgpu_access *access = bytes > 0 ? malloc(bytes) : NULL;
    if (node == NULL || (bytes > 0 && access == NULL)) {
        free(access);
        return false;
    }
    *node = (vgpu_node){.name = request->name,
                        .run = request->run,
                        .access = access,
                        .access_count = request->access_count,
                        .joint = request->joint,
                        .kind = request->kind,
                        .place = vgpu_place,
                        .lane = at,
                        .before = *before,
                        .bytes = request->bytes};
    *before = (vgpu_node_set){0};
    if (bytes > 0) {
        memcpy(access, request->access, bytes);
    }
    if (request->bytes > 0) {
        memcpy(node->payload, request->payload, request->bytes);
    }
    body->count++;
    return true;
}
