/* A reader of Python pickles that executes nothing. It knows the opcodes and the few names that a state_dict needs, builds
 * plain values from them, and refuses everything else: no import, no call, no object but those below.
 * Opcodes: Lib/pickletools.py of CPython; names and arguments: torch/_utils.py, torch/serialization.py. */
#ifndef LS_REFERENCE_CHECKPOINT_PICKLE_H
#define LS_REFERENCE_CHECKPOINT_PICKLE_H

#include <stdbool.h>

#include "reference/checkpoint/state.h"

typedef enum ls_pickle_kind {
    LS_PICKLE_NONE = 0,
    LS_PICKLE_BOOL,    /* integer: 0 or 1 */
    LS_PICKLE_INTEGER, /* integer */
    LS_PICKLE_LONG,    /* text, length: little-endian two's complement of more than 8 bytes */
    LS_PICKLE_REAL,
    LS_PICKLE_TEXT,    /* text, length; not ended by a zero */
    LS_PICKLE_NAME,    /* index: one of the allowed globals */
    LS_PICKLE_TUPLE,   /* items */
    LS_PICKLE_LIST,    /* items */
    LS_PICKLE_DICT,    /* items: key, value, key, value, ... as they came */
    LS_PICKLE_STORAGE, /* index: into the reader's storages */
    LS_PICKLE_TENSOR,  /* index: into the reader's tensors */
    LS_PICKLE_MARK,
} ls_pickle_kind;

typedef struct ls_pickle_value ls_pickle_value;

struct ls_pickle_value {
    ls_pickle_kind kind;
    int64_t integer;
    double real;
    const char *text; /* within the pickle */
    size_t length;
    size_t index;
    ls_pickle_value **items;
    size_t count, capacity;
};

/* A persistent id: ('storage', type, key, location, elements). */
typedef struct ls_pickle_storage {
    const char *key; /* within the pickle */
    size_t key_length;
    ls_element element;
    uint64_t count;            /* elements */
    const unsigned char *data; /* NULL until the reader of the file has found it */
} ls_pickle_storage;

/* A view of a storage. */
typedef struct ls_pickle_tensor {
    size_t storage;
    uint64_t offset; /* elements */
    size_t dims;
    size_t shape[LS_STATE_MAX_DIMS];
    size_t stride[LS_STATE_MAX_DIMS]; /* elements */
    size_t count;                     /* the product of shape, at most the storage's count */
} ls_pickle_tensor;

/* A reader over `size` bytes. at: the next byte, where the next pickle starts. */
typedef struct ls_pickle {
    const char *path;  /* for messages */
    const char *where; /* "data.pkl, byte" or "byte" */
    const unsigned char *bytes;
    size_t size, at;
    /* owned by the reader (ls_pickle_free) */
    struct ls_pickle_block *blocks;
    size_t budget; /* bytes of memory that values may still take */
    ls_pickle_value **stack, **memo;
    size_t depth, stack_capacity, memo_capacity;
    ls_pickle_storage *storages;
    size_t storage_count, storage_capacity;
    ls_pickle_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    size_t references; /* to storages, so far */
} ls_pickle;

void ls_pickle_open(ls_pickle *pickle, const char *path, const char *where, const unsigned char *bytes, size_t size);
void ls_pickle_free(ls_pickle *pickle);

/* Reads the pickle at `at` up to its STOP. *out belongs to the reader. One line and LS_BAD_INPUT otherwise. */
ls_rc ls_pickle_read(ls_pickle *pickle, ls_pickle_value **out);

/* The line of a failure at the reader's place. */
void ls_pickle_complain(const ls_pickle *pickle, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same as an expression that compilers know to be LS_BAD_INPUT. */
#define LS_PICKLE_FAIL(...) (ls_pickle_complain(__VA_ARGS__), LS_BAD_INPUT)

/* Zeroed memory of the reader; NULL with one line when the budget is spent or memory is short. */
void *ls_pickle_alloc(ls_pickle *pickle, size_t count, size_t size);
/* A new value of the reader. */
ls_pickle_value *ls_pickle_value_new(ls_pickle *pickle, ls_pickle_kind kind);
/* Whether value is this text. */
bool ls_pickle_is_text(const ls_pickle_value *value, const char *text);
/* "a list", "a tensor": for messages. */
const char *ls_pickle_kind_name(ls_pickle_kind kind);

/* What a state_dict needs of Python's names (pickle_torch.c). */

/* GLOBAL and STACK_GLOBAL: the allowed name module.name, or one line. */
ls_rc ls_pickle_global(ls_pickle *pickle, const char *module, size_t module_length, const char *name,
                       size_t name_length, ls_pickle_value **out);
/* REDUCE: a call of an allowed name. */
ls_rc ls_pickle_call(ls_pickle *pickle, const ls_pickle_value *callee, const ls_pickle_value *arguments,
                     ls_pickle_value **out);
/* BINPERSID: a storage. */
ls_rc ls_pickle_persistent(ls_pickle *pickle, const ls_pickle_value *id, ls_pickle_value **out);

#endif
