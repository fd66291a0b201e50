/* A state: named tensors in order, as PyTorch's state_dict, and texts about them. Files of several formats hold one; the
 * ending of the name tells which (formats.h). Plain data: no device and no model here. */
#ifndef LS_REFERENCE_CHECKPOINT_STATE_H
#define LS_REFERENCE_CHECKPOINT_STATE_H

#include <stdint.h>

#include "gpu/base/error.h"

enum {
    LS_STATE_MAX_DIMS = 8,
    LS_STATE_MAX_TENSORS = 16384, /* more than any network has; what claims more is damaged or hostile */
    LS_STATE_MAX_NAME = 512,      /* bytes of a name */
};

/* What a tensor holds in memory. */
typedef enum ls_element {
    LS_ELEMENT_FLOAT32 = 0,
    LS_ELEMENT_FLOAT64,
    LS_ELEMENT_INT64,
    LS_ELEMENT_FLOAT16,  /* in files only: widened to float32 on reading */
    LS_ELEMENT_BFLOAT16, /* in files only: widened to float32 on reading */
    LS_ELEMENT_COUNT
} ls_element;

/* Bytes of one element, and its name in PyTorch ("float32"). */
size_t ls_state_element_size(ls_element element);
const char *ls_state_element_name(ls_element element);

typedef struct ls_state_tensor {
    char *name;
    ls_element element; /* FLOAT32, FLOAT64 or INT64 */
    size_t dims;        /* 0: a scalar */
    size_t shape[LS_STATE_MAX_DIMS];
    size_t count; /* elements: the product of shape */
    void *data;   /* [count], row-major */
} ls_state_tensor;

typedef struct ls_state_text {
    char *key, *value;
} ls_state_text;

/* Starts as {0}; ls_state_free frees what it holds. */
typedef struct ls_state {
    size_t count, capacity;
    ls_state_tensor *tensors;
    size_t text_count;
    ls_state_text *texts;
} ls_state;

void ls_state_free(ls_state *state);

/* Adds a tensor of zeros behind the others; *out (may be NULL) is valid until the next is added. The product of shape must
 * fit size_t. LS_DEVICE_FAILED with one line when memory is short. */
ls_rc ls_state_add(ls_state *state, const char *name, ls_element element, size_t dims, const size_t *shape,
                   ls_state_tensor **out);

/* NULL: there is none. */
const ls_state_tensor *ls_state_find(const ls_state *state, const char *name);

/* Sets a text (a copy); ls_state_text_of gives it back, NULL when there is none. */
ls_rc ls_state_set_text(ls_state *state, const char *key, const char *value);
const char *ls_state_text_of(const ls_state *state, const char *key);

/* A shape as "[20, 10, 5, 5]" into text; returns text. */
const char *ls_state_shape_text(size_t dims, const size_t *shape, char *text, size_t size);

/* count elements from the little-endian bytes of a file into memory: float16 and bfloat16 become float32 (exactly), the
 * others are copied. */
void ls_state_element_widen(ls_element from, size_t count, const void *bytes, void *out);
/* What they become. */
ls_element ls_state_element_in_memory(ls_element from);

#endif
