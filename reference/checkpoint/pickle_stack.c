/* Memory, stack and memo of the reader of pickles. */
#include "reference/checkpoint/pickle_stack.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 << 10, MEMO_LIMIT = 1 << 20 };

struct ls_pickle_block {
    struct ls_pickle_block *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

void ls_pickle_free(ls_pickle *pickle) {
    while (pickle->blocks != NULL) {
        struct ls_pickle_block *next = pickle->blocks->next;
        free(pickle->blocks);
        pickle->blocks = next;
    }
    *pickle = (ls_pickle){0};
}

void *ls_pickle_alloc(ls_pickle *pickle, size_t count, size_t size) {
    if (count > pickle->budget / size) {
        ls_pickle_complain(pickle, "expected a state_dict, found one that takes more than %d MiB without its tensors",
                           LS_PICKLE_BUDGET >> 20);
        return NULL;
    }
    size_t bytes = (count * size + 15) / 16 * 16;
    struct ls_pickle_block *block = pickle->blocks;
    if (block == NULL || block->size - block->used < bytes) {
        size_t room = bytes > BLOCK ? bytes : BLOCK;
        block = ls_calloc(1, sizeof *block + room, "a pickle");
        if (block == NULL) {
            return NULL;
        }
        block->size = room;
        block->next = pickle->blocks;
        pickle->blocks = block;
    }
    void *memory = block->bytes + block->used;
    block->used += bytes;
    pickle->budget -= bytes < pickle->budget ? bytes : pickle->budget;
    return memory;
}

ls_pickle_value *ls_pickle_value_new(ls_pickle *pickle, ls_pickle_kind kind) {
    ls_pickle_value *value = ls_pickle_alloc(pickle, 1, sizeof *value);
    if (value != NULL) {
        value->kind = kind;
    }
    return value;
}

bool ls_pickle_is_text(const ls_pickle_value *value, const char *text) {
    return value->kind == LS_PICKLE_TEXT && value->length == strlen(text) &&
           memcmp(value->text, text, value->length) == 0;
}

const char *ls_pickle_kind_name(ls_pickle_kind kind) {
    static const char *const names[] = {
        [LS_PICKLE_NONE] = "None",       [LS_PICKLE_BOOL] = "a bool",       [LS_PICKLE_INTEGER] = "an integer",
        [LS_PICKLE_LONG] = "an integer", [LS_PICKLE_REAL] = "a float",      [LS_PICKLE_TEXT] = "a text",
        [LS_PICKLE_NAME] = "a name",     [LS_PICKLE_TUPLE] = "a tuple",     [LS_PICKLE_LIST] = "a list",
        [LS_PICKLE_DICT] = "a dict",     [LS_PICKLE_STORAGE] = "a storage", [LS_PICKLE_TENSOR] = "a tensor",
        [LS_PICKLE_MARK] = "a mark",
    };
    return names[kind];
}

/* The stack. */

ls_rc ls_pickle_push(ls_pickle *p, ls_pickle_value *value) {
    if (value == NULL) {
        return LS_BAD_INPUT; /* told by the allocation */
    }
    if (p->depth == p->stack_capacity) {
        size_t capacity = p->stack_capacity == 0 ? 256 : 2 * p->stack_capacity;
        ls_pickle_value **grown = ls_pickle_alloc(p, capacity, sizeof(ls_pickle_value *));
        if (grown == NULL) {
            return LS_BAD_INPUT;
        }
        if (p->depth > 0) {
            memcpy(grown, p->stack, p->depth * sizeof(ls_pickle_value *));
        }
        p->stack = grown;
        p->stack_capacity = capacity;
    }
    p->stack[p->depth++] = value;
    return LS_OK;
}

/* The value `below` the top; a mark is none. */
ls_rc ls_pickle_peek(const ls_pickle *p, size_t below, ls_pickle_value **out) {
    if (p->depth <= below || p->stack[p->depth - 1 - below]->kind == LS_PICKLE_MARK) {
        return LS_PICKLE_FAIL(p, "the pickle is damaged: an opcode wants more values than there are");
    }
    *out = p->stack[p->depth - 1 - below];
    return LS_OK;
}

ls_rc ls_pickle_pop(ls_pickle *p, ls_pickle_value **out) {
    LS_TRY(ls_pickle_peek(p, 0, out));
    p->depth--;
    return LS_OK;
}

/* The stack index of the last mark. */
static ls_rc find_mark(const ls_pickle *p, size_t *index) {
    for (size_t i = p->depth; i-- > 0;) {
        if (p->stack[i]->kind == LS_PICKLE_MARK) {
            *index = i;
            return LS_OK;
        }
    }
    return LS_PICKLE_FAIL(p, "the pickle is damaged: an opcode wants a mark, and there is none");
}

/* Adds to the items of a tuple, list or dict. */
static ls_rc append(ls_pickle *p, ls_pickle_value *to, ls_pickle_value *const *items, size_t count) {
    if (to->capacity - to->count < count) {
        size_t capacity = to->count + count > 2 * to->capacity ? to->count + count : 2 * to->capacity;
        ls_pickle_value **grown = ls_pickle_alloc(p, capacity, sizeof(ls_pickle_value *));
        if (grown == NULL) {
            return LS_BAD_INPUT;
        }
        if (to->count > 0) {
            memcpy(grown, to->items, to->count * sizeof(ls_pickle_value *));
        }
        to->items = grown;
        to->capacity = capacity;
    }
    if (count > 0) {
        memcpy(to->items + to->count, items, count * sizeof(ls_pickle_value *));
    }
    to->count += count;
    return LS_OK;
}

/* The last `count` values as one tuple. */
ls_rc ls_pickle_make_tuple(ls_pickle *p, size_t count) {
    ls_pickle_value *unused = NULL;
    for (size_t i = 0; i < count; i++) {
        LS_TRY(ls_pickle_peek(p, i, &unused));
    }
    ls_pickle_value *tuple = ls_pickle_value_new(p, LS_PICKLE_TUPLE);
    if (tuple == NULL) {
        return LS_BAD_INPUT;
    }
    LS_TRY(append(p, tuple, p->stack + p->depth - count, count));
    p->depth -= count;
    return ls_pickle_push(p, tuple);
}

ls_rc ls_pickle_make_marked_tuple(ls_pickle *p) {
    size_t mark = 0;
    LS_TRY(find_mark(p, &mark));
    ls_pickle_value *tuple = ls_pickle_value_new(p, LS_PICKLE_TUPLE);
    if (tuple == NULL) {
        return LS_BAD_INPUT;
    }
    if (p->depth > mark + 1) {
        LS_TRY(append(p, tuple, p->stack + mark + 1, p->depth - mark - 1));
    }
    p->depth = mark;
    return ls_pickle_push(p, tuple);
}

/* SETITEM(S) and APPEND(S): the values from stack index first on go into the container below them. */
static ls_rc store(ls_pickle *p, ls_pickle_kind kind, size_t first, size_t drop) {
    size_t count = p->depth - first;
    size_t below = first - drop; /* drop: 1 with a mark between */
    if (below == 0 || p->stack[below - 1]->kind != kind) {
        return LS_PICKLE_FAIL(p, "the pickle is damaged: expected %s to put values into, found %s",
                              ls_pickle_kind_name(kind),
                              below == 0 ? "nothing" : ls_pickle_kind_name(p->stack[below - 1]->kind));
    }
    if (kind == LS_PICKLE_DICT && count % 2 != 0) {
        return LS_PICKLE_FAIL(p, "the pickle is damaged: a key of a dict has no value");
    }
    if (count > 0) {
        LS_TRY(append(p, p->stack[below - 1], p->stack + first, count));
    }
    p->depth = below;
    return LS_OK;
}

ls_rc ls_pickle_store_marked(ls_pickle *p, ls_pickle_kind kind) {
    size_t mark = 0;
    LS_TRY(find_mark(p, &mark));
    return store(p, kind, mark + 1, 1);
}

ls_rc ls_pickle_store_last(ls_pickle *p, ls_pickle_kind kind, size_t count) {
    ls_pickle_value *unused = NULL;
    for (size_t i = 0; i <= count; i++) {
        LS_TRY(ls_pickle_peek(p, i, &unused));
    }
    return store(p, kind, p->depth - count, 0);
}

/* The memo. */

ls_rc ls_pickle_memo_put(ls_pickle *p, size_t index) {
    ls_pickle_value *value = NULL;
    LS_TRY(ls_pickle_peek(p, 0, &value));
    if (index >= MEMO_LIMIT) {
        return LS_PICKLE_FAIL(p, "expected at most %d remembered values, found number %zu", MEMO_LIMIT, index);
    }
    if (index >= p->memo_capacity) {
        size_t capacity = index + 1 > 2 * p->memo_capacity ? index + 1 : 2 * p->memo_capacity;
        ls_pickle_value **grown = ls_pickle_alloc(p, capacity, sizeof(ls_pickle_value *));
        if (grown == NULL) {
            return LS_BAD_INPUT;
        }
        if (p->memo_capacity > 0) {
            memcpy(grown, p->memo, p->memo_capacity * sizeof(ls_pickle_value *));
        }
        p->memo = grown;
        p->memo_capacity = capacity;
    }
    p->memo[index] = value;
    return LS_OK;
}

ls_rc ls_pickle_memo_get(ls_pickle *p, size_t index) {
    if (index >= p->memo_capacity || p->memo[index] == NULL) {
        return LS_PICKLE_FAIL(p, "the pickle is damaged: value %zu is used before it is there", index);
    }
    return ls_pickle_push(p, p->memo[index]);
}

/* MEMOIZE: the next free number, which is the count of those before. */
ls_rc ls_pickle_memo_next(ls_pickle *p) {
    size_t next = 0;
    for (size_t low = 0, high = p->memo_capacity; low < high;) { /* protocol 4 numbers without gaps */
        size_t middle = low + (high - low) / 2;
        if (p->memo[middle] != NULL) {
            low = next = middle + 1;
        } else {
            high = middle;
        }
    }
    return ls_pickle_memo_put(p, next);
}
