#include "reference/checkpoint/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    size_t size;
    const char *name;
    ls_element in_memory;
} elements[LS_ELEMENT_COUNT] = {
    [LS_ELEMENT_FLOAT32] = {4, "float32", LS_ELEMENT_FLOAT32},
    [LS_ELEMENT_FLOAT64] = {8, "float64", LS_ELEMENT_FLOAT64},
    [LS_ELEMENT_INT64] = {8, "int64", LS_ELEMENT_INT64},
    [LS_ELEMENT_FLOAT16] = {2, "float16", LS_ELEMENT_FLOAT32},
    [LS_ELEMENT_BFLOAT16] = {2, "bfloat16", LS_ELEMENT_FLOAT32},
};

size_t ls_state_element_size(ls_element element) {
    return elements[element].size;
}

const char *ls_state_element_name(ls_element element) {
    return elements[element].name;
}

ls_element ls_state_element_in_memory(ls_element from) {
    return elements[from].in_memory;
}

void ls_state_free(ls_state *state) {
    for (size_t i = 0; i < state->count; i++) {
        free(state->tensors[i].name);
        free(state->tensors[i].data);
    }
    for (size_t i = 0; i < state->text_count; i++) {
        free(state->texts[i].key);
        free(state->texts[i].value);
    }
    free(state->tensors);
    free(state->texts);
    *state = (ls_state){0};
}

static ls_rc out_of_memory(const char *what) {
    return ls_fail(LS_DEVICE_FAILED, "out of memory for %s of a state", what);
}

ls_rc ls_state_add(ls_state *state, const char *name, ls_element element, size_t dims, const size_t *shape,
                   ls_state_tensor **out) {
    if (state->count == state->capacity) {
        size_t capacity = state->capacity == 0 ? 16 : 2 * state->capacity;
        ls_state_tensor *grown = realloc(state->tensors, capacity * sizeof *grown);
        if (grown == NULL) {
            return out_of_memory("the tensors");
        }
        state->tensors = grown;
        state->capacity = capacity;
    }
    ls_state_tensor tensor = {.element = element, .dims = dims, .count = 1};
    for (size_t d = 0; d < dims; d++) {
        tensor.shape[d] = shape[d];
        tensor.count *= shape[d];
    }
    tensor.name = strdup(name);
    tensor.data = ls_calloc(tensor.count, ls_state_element_size(element), name);
    if (tensor.name == NULL || tensor.data == NULL) {
        free(tensor.name);
        free(tensor.data);
        return tensor.data == NULL ? LS_DEVICE_FAILED : out_of_memory("a name");
    }
    state->tensors[state->count] = tensor;
    if (out != NULL) {
        *out = &state->tensors[state->count];
    }
    state->count++;
    return LS_OK;
}

const ls_state_tensor *ls_state_find(const ls_state *state, const char *name) {
    for (size_t i = 0; i < state->count; i++) {
        if (strcmp(state->tensors[i].name, name) == 0) {
            return &state->tensors[i];
        }
    }
    return NULL;
}

static ls_state_text *find_text(const ls_state *state, const char *key) {
    for (size_t i = 0; i < state->text_count; i++) {
        if (strcmp(state->texts[i].key, key) == 0) {
            return &state->texts[i];
        }
    }
    return NULL;
}

ls_rc ls_state_set_text(ls_state *state, const char *key, const char *value) {
    ls_state_text *old = find_text(state, key);
    char *copy = strdup(value);
    if (copy == NULL) {
        return out_of_memory("a text");
    }
    if (old != NULL) {
        free(old->value);
        old->value = copy;
        return LS_OK;
    }
    ls_state_text *grown = realloc(state->texts, (state->text_count + 1) * sizeof *grown);
    char *key_copy = strdup(key);
    if (grown != NULL) {
        state->texts = grown;
    }
    if (grown == NULL || key_copy == NULL) {
        free(copy);
        free(key_copy);
        return out_of_memory("a text");
    }
    state->texts[state->text_count++] = (ls_state_text){.key = key_copy, .value = copy};
    return LS_OK;
}

const char *ls_state_text_of(const ls_state *state, const char *key) {
    const ls_state_text *text = find_text(state, key);
    return text != NULL ? text->value : NULL;
}

const char *ls_state_shape_text(size_t dims, const size_t *shape, char *text, size_t size) {
    size_t at = (size_t)snprintf(text, size, "[");
    for (size_t d = 0; d < dims && at < size; d++) {
        at += (size_t)snprintf(text + at, size - at, d > 0 ? ", %zu" : "%zu", shape[d]);
    }
    if (at < size) {
        snprintf(text + at, size - at, "]");
    }
    return text;
}

/* IEEE 754 binary16 to binary32: the exponent's bias goes from 15 to 127; subnormals become normal. */
static uint32_t half_bits(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000U) << 16;
    uint32_t exponent = (half >> 10) & 0x1fU;
    uint32_t fraction = half & 0x3ffU;
    if (exponent == 0x1f) {
        return sign | 0x7f800000U | fraction << 13;
    }
    if (exponent == 0) {
        if (fraction == 0) {
            return sign;
        }
        exponent = 1;
        while ((fraction & 0x400U) == 0) {
            fraction <<= 1;
            exponent--; /* wraps below 1; the sum with the bias comes right again */
        }
        fraction &= 0x3ffU;
    }
    return sign | (exponent + (127U - 15U)) << 23 | fraction << 13;
}

void ls_state_element_widen(ls_element from, size_t count, const void *bytes, void *out) {
    if (from != LS_ELEMENT_FLOAT16 && from != LS_ELEMENT_BFLOAT16) {
        if (count > 0) {
            memcpy(out, bytes, count * ls_state_element_size(from));
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t narrow;
        memcpy(&narrow, (const char *)bytes + i * sizeof narrow, sizeof narrow);
        uint32_t wide = from == LS_ELEMENT_FLOAT16 ? half_bits(narrow) : (uint32_t)narrow << 16;
        memcpy((char *)out + i * sizeof wide, &wide, sizeof wide);
    }
}
