#include "reference/checkpoint/pickle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for the values of LS_STATE_MAX_TENSORS tensors, some fifty of 80 bytes each, and for what grows by doubling. */
enum { BUDGET = 128 << 20, BLOCK = 64 << 10, MEMO_LIMIT = 1 << 20 };

struct ls_pickle_block {
    struct ls_pickle_block *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

void ls_pickle_open(ls_pickle *pickle, const char *path, const char *where, const unsigned char *bytes, size_t size) {
    *pickle = (ls_pickle){.path = path, .where = where, .bytes = bytes, .size = size, .budget = BUDGET};
}

void ls_pickle_free(ls_pickle *pickle) {
    while (pickle->blocks != NULL) {
        struct ls_pickle_block *next = pickle->blocks->next;
        free(pickle->blocks);
        pickle->blocks = next;
    }
    *pickle = (ls_pickle){0};
}

ls_rc ls_pickle_fail(const ls_pickle *pickle, const char *format, ...) {
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return ls_fail(LS_BAD_INPUT, "%s: %s %zu: %s", pickle->path, pickle->where, pickle->at, what);
}

void *ls_pickle_alloc(ls_pickle *pickle, size_t count, size_t size) {
    if (count > pickle->budget / size) {
        ls_pickle_fail(pickle, "expected a state_dict, found one that takes more than %d MiB without its tensors",
                       BUDGET >> 20);
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

static ls_rc push(ls_pickle *p, ls_pickle_value *value) {
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
static ls_rc peek(const ls_pickle *p, size_t below, ls_pickle_value **out) {
    if (p->depth <= below || p->stack[p->depth - 1 - below]->kind == LS_PICKLE_MARK) {
        return ls_pickle_fail(p, "the pickle is damaged: an opcode wants more values than there are");
    }
    *out = p->stack[p->depth - 1 - below];
    return LS_OK;
}

static ls_rc pop(ls_pickle *p, ls_pickle_value **out) {
    LS_TRY(peek(p, 0, out));
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
    return ls_pickle_fail(p, "the pickle is damaged: an opcode wants a mark, and there is none");
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
static ls_rc make_tuple(ls_pickle *p, size_t count) {
    ls_pickle_value *unused = NULL;
    for (size_t i = 0; i < count; i++) {
        LS_TRY(peek(p, i, &unused));
    }
    ls_pickle_value *tuple = ls_pickle_value_new(p, LS_PICKLE_TUPLE);
    if (tuple == NULL) {
        return LS_BAD_INPUT;
    }
    LS_TRY(append(p, tuple, p->stack + p->depth - count, count));
    p->depth -= count;
    return push(p, tuple);
}

static ls_rc make_marked_tuple(ls_pickle *p) {
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
    return push(p, tuple);
}

/* SETITEM(S) and APPEND(S): the values from stack index first on go into the container below them. */
static ls_rc store(ls_pickle *p, ls_pickle_kind kind, size_t first, size_t drop) {
    size_t count = p->depth - first;
    size_t below = first - drop; /* drop: 1 with a mark between */
    if (below == 0 || p->stack[below - 1]->kind != kind) {
        return ls_pickle_fail(p, "the pickle is damaged: expected %s to put values into, found %s",
                              ls_pickle_kind_name(kind),
                              below == 0 ? "nothing" : ls_pickle_kind_name(p->stack[below - 1]->kind));
    }
    if (kind == LS_PICKLE_DICT && count % 2 != 0) {
        return ls_pickle_fail(p, "the pickle is damaged: a key of a dict has no value");
    }
    if (count > 0) {
        LS_TRY(append(p, p->stack[below - 1], p->stack + first, count));
    }
    p->depth = below;
    return LS_OK;
}

static ls_rc store_marked(ls_pickle *p, ls_pickle_kind kind) {
    size_t mark = 0;
    LS_TRY(find_mark(p, &mark));
    return store(p, kind, mark + 1, 1);
}

static ls_rc store_last(ls_pickle *p, ls_pickle_kind kind, size_t count) {
    ls_pickle_value *unused = NULL;
    for (size_t i = 0; i <= count; i++) {
        LS_TRY(peek(p, i, &unused));
    }
    return store(p, kind, p->depth - count, 0);
}

/* The memo. */

static ls_rc memo_put(ls_pickle *p, size_t index) {
    ls_pickle_value *value = NULL;
    LS_TRY(peek(p, 0, &value));
    if (index >= MEMO_LIMIT) {
        return ls_pickle_fail(p, "expected at most %d remembered values, found number %zu", MEMO_LIMIT, index);
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

static ls_rc memo_get(ls_pickle *p, size_t index) {
    if (index >= p->memo_capacity || p->memo[index] == NULL) {
        return ls_pickle_fail(p, "the pickle is damaged: value %zu is used before it is there", index);
    }
    return push(p, p->memo[index]);
}

/* MEMOIZE: the next free number, which is the count of those before. */
static ls_rc memo_next(ls_pickle *p) {
    size_t next = 0;
    for (size_t low = 0, high = p->memo_capacity; low < high;) { /* protocol 4 numbers without gaps */
        size_t middle = low + (high - low) / 2;
        if (p->memo[middle] != NULL) {
            low = next = middle + 1;
        } else {
            high = middle;
        }
    }
    return memo_put(p, next);
}

/* Arguments of opcodes. */

static ls_rc take(ls_pickle *p, size_t count, const unsigned char **out) {
    if (count > p->size - p->at) {
        return ls_pickle_fail(p, "expected %zu more bytes of the pickle, found the end after %zu (truncated)", count,
                              p->size - p->at);
    }
    *out = p->bytes + p->at;
    p->at += count;
    return LS_OK;
}

/* An unsigned little-endian number of `width` bytes. */
static ls_rc take_number(ls_pickle *p, size_t width, uint64_t *out) {
    const unsigned char *raw = NULL;
    LS_TRY(take(p, width, &raw));
    *out = 0;
    for (size_t i = 0; i < width; i++) {
        *out |= (uint64_t)raw[i] << (8 * i);
    }
    return LS_OK;
}

static ls_rc push_integer(ls_pickle *p, ls_pickle_kind kind, int64_t integer) {
    ls_pickle_value *value = ls_pickle_value_new(p, kind);
    if (value != NULL) {
        value->integer = integer;
    }
    return push(p, value);
}

static ls_rc read_text(ls_pickle *p, size_t width) {
    uint64_t length = 0;
    const unsigned char *raw = NULL;
    LS_TRY(take_number(p, width, &length));
    LS_TRY(take(p, length > SIZE_MAX ? SIZE_MAX : (size_t)length, &raw));
    ls_pickle_value *value = ls_pickle_value_new(p, LS_PICKLE_TEXT);
    if (value != NULL) {
        value->text = (const char *)raw;
        value->length = (size_t)length;
    }
    return push(p, value);
}

/* LONG1: two's complement of any length. Up to 8 bytes it is an integer. */
static ls_rc read_long(ls_pickle *p) {
    uint64_t length = 0;
    const unsigned char *raw = NULL;
    LS_TRY(take_number(p, 1, &length));
    LS_TRY(take(p, (size_t)length, &raw));
    if (length > 8) {
        ls_pickle_value *value = ls_pickle_value_new(p, LS_PICKLE_LONG);
        if (value != NULL) {
            value->text = (const char *)raw;
            value->length = (size_t)length;
        }
        return push(p, value);
    }
    uint64_t bits = length > 0 && raw[length - 1] >= 0x80 ? UINT64_MAX : 0;
    for (size_t i = (size_t)length; i-- > 0;) {
        bits = bits << 8 | raw[i];
    }
    return push_integer(p, LS_PICKLE_INTEGER, (int64_t)bits);
}

static ls_rc read_real(ls_pickle *p) {
    const unsigned char *raw = NULL;
    LS_TRY(take(p, 8, &raw));
    uint64_t bits = 0;
    for (size_t i = 0; i < 8; i++) {
        bits = bits << 8 | raw[i];
    }
    ls_pickle_value *value = ls_pickle_value_new(p, LS_PICKLE_REAL);
    if (value != NULL) {
        memcpy(&value->real, &bits, sizeof bits);
    }
    return push(p, value);
}

/* One line of text, without its end. */
static ls_rc take_line(ls_pickle *p, const char **text, size_t *length) {
    const unsigned char *end = memchr(p->bytes + p->at, '\n', p->size - p->at);
    if (end == NULL) {
        return ls_pickle_fail(p, "expected a name, found the end (truncated)");
    }
    *text = (const char *)p->bytes + p->at;
    *length = (size_t)(end - (p->bytes + p->at));
    p->at += *length + 1;
    return LS_OK;
}

static ls_rc read_global(ls_pickle *p) {
    const char *module = NULL, *name = NULL;
    size_t module_length = 0, name_length = 0;
    ls_pickle_value *value = NULL;
    LS_TRY(take_line(p, &module, &module_length));
    LS_TRY(take_line(p, &name, &name_length));
    LS_TRY(ls_pickle_global(p, module, module_length, name, name_length, &value));
    return push(p, value);
}

static ls_rc read_stack_global(ls_pickle *p) {
    ls_pickle_value *name = NULL, *module = NULL, *value = NULL;
    LS_TRY(pop(p, &name));
    LS_TRY(pop(p, &module));
    if (name->kind != LS_PICKLE_TEXT || module->kind != LS_PICKLE_TEXT) {
        return ls_pickle_fail(p, "the pickle is damaged: a name is no text");
    }
    LS_TRY(ls_pickle_global(p, module->text, module->length, name->text, name->length, &value));
    return push(p, value);
}

static ls_rc reduce(ls_pickle *p) {
    ls_pickle_value *arguments = NULL, *callee = NULL, *value = NULL;
    LS_TRY(pop(p, &arguments));
    LS_TRY(pop(p, &callee));
    LS_TRY(ls_pickle_call(p, callee, arguments, &value));
    return push(p, value);
}

static ls_rc persistent(ls_pickle *p) {
    ls_pickle_value *id = NULL, *value = NULL;
    LS_TRY(pop(p, &id));
    LS_TRY(ls_pickle_persistent(p, id, &value));
    return push(p, value);
}

/* Attributes of an OrderedDict (its _metadata) say nothing about the tensors. */
static ls_rc build(ls_pickle *p) {
    ls_pickle_value *attributes = NULL, *object = NULL;
    LS_TRY(pop(p, &attributes));
    LS_TRY(peek(p, 0, &object));
    if (object->kind != LS_PICKLE_DICT || attributes->kind != LS_PICKLE_DICT) {
        return ls_pickle_fail(p, "attributes are set on %s; only an OrderedDict may have some",
                              ls_pickle_kind_name(object->kind));
    }
    return LS_OK;
}

static ls_rc read_protocol(ls_pickle *p) {
    uint64_t protocol = 0;
    LS_TRY(take_number(p, 1, &protocol));
    return protocol >= 2 && protocol <= 5
               ? LS_OK
               : ls_pickle_fail(p, "expected pickle protocol 2 to 5, found %llu", (unsigned long long)protocol);
}

static ls_rc with_number(ls_pickle *p, size_t width, ls_rc (*use)(ls_pickle *, size_t)) {
    uint64_t number = 0;
    LS_TRY(take_number(p, width, &number));
    return use(p, (size_t)number);
}

static ls_rc read_integer(ls_pickle *p, size_t width) {
    uint64_t number = 0;
    LS_TRY(take_number(p, width, &number));
    return push_integer(p, LS_PICKLE_INTEGER, width == 4 ? (int64_t)(int32_t)(uint32_t)number : (int64_t)number);
}

static ls_rc run_opcode(ls_pickle *p, unsigned char opcode) {
    uint64_t ignored = 0;
    switch (opcode) {
    case 0x80: /* PROTO */
        return read_protocol(p);
    case 0x95: /* FRAME: a hint of length */
        return take_number(p, 8, &ignored);
    case '(': /* MARK */
        return push(p, ls_pickle_value_new(p, LS_PICKLE_MARK));
    case 'N': /* NONE */
        return push(p, ls_pickle_value_new(p, LS_PICKLE_NONE));
    case 0x88: /* NEWTRUE */
        return push_integer(p, LS_PICKLE_BOOL, 1);
    case 0x89: /* NEWFALSE */
        return push_integer(p, LS_PICKLE_BOOL, 0);
    case 'K': /* BININT1 */
        return read_integer(p, 1);
    case 'M': /* BININT2 */
        return read_integer(p, 2);
    case 'J': /* BININT */
        return read_integer(p, 4);
    case 0x8a: /* LONG1 */
        return read_long(p);
    case 'G': /* BINFLOAT */
        return read_real(p);
    case 'U':  /* SHORT_BINSTRING, of Python 2 */
    case 0x8c: /* SHORT_BINUNICODE */
        return read_text(p, 1);
    case 'T': /* BINSTRING, of Python 2 */
    case 'X': /* BINUNICODE */
        return read_text(p, 4);
    case ')': /* EMPTY_TUPLE */
        return push(p, ls_pickle_value_new(p, LS_PICKLE_TUPLE));
    case 't': /* TUPLE */
        return make_marked_tuple(p);
    case 0x85: /* TUPLE1 */
    case 0x86: /* TUPLE2 */
    case 0x87: /* TUPLE3 */
        return make_tuple(p, (size_t)opcode - 0x84);
    case ']': /* EMPTY_LIST */
        return push(p, ls_pickle_value_new(p, LS_PICKLE_LIST));
    case 'a': /* APPEND */
        return store_last(p, LS_PICKLE_LIST, 1);
    case 'e': /* APPENDS */
        return store_marked(p, LS_PICKLE_LIST);
    case '}': /* EMPTY_DICT */
        return push(p, ls_pickle_value_new(p, LS_PICKLE_DICT));
    case 's': /* SETITEM */
        return store_last(p, LS_PICKLE_DICT, 2);
    case 'u': /* SETITEMS */
        return store_marked(p, LS_PICKLE_DICT);
    case 'q': /* BINPUT */
        return with_number(p, 1, memo_put);
    case 'r': /* LONG_BINPUT */
        return with_number(p, 4, memo_put);
    case 0x94: /* MEMOIZE */
        return memo_next(p);
    case 'h': /* BINGET */
        return with_number(p, 1, memo_get);
    case 'j': /* LONG_BINGET */
        return with_number(p, 4, memo_get);
    case 'c': /* GLOBAL */
        return read_global(p);
    case 0x93: /* STACK_GLOBAL */
        return read_stack_global(p);
    case 'R': /* REDUCE */
        return reduce(p);
    case 'b': /* BUILD */
        return build(p);
    case 'Q': /* BINPERSID */
        return persistent(p);
    default:
        p->at--;
        return ls_pickle_fail(p,
                              "pickle opcode 0x%02x is not among those that a state_dict needs; save it with "
                              "torch.save(model.state_dict(), FILE)",
                              opcode);
    }
}

ls_rc ls_pickle_read(ls_pickle *pickle, ls_pickle_value **out) {
    const unsigned char *opcode = NULL;
    pickle->depth = 0;
    pickle->memo_capacity = 0;
    pickle->memo = NULL;
    for (;;) {
        LS_TRY(take(pickle, 1, &opcode));
        if (*opcode == '.') {
            break;
        }
        LS_TRY(run_opcode(pickle, *opcode));
    }
    LS_TRY(pop(pickle, out));
    return pickle->depth == 0 ? LS_OK : ls_pickle_fail(pickle, "the pickle is damaged: it ends with values left over");
}
