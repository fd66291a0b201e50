#include "reference/checkpoint/pickle.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "reference/checkpoint/pickle_stack.h"

void ls_pickle_open(ls_pickle *pickle, const char *path, const char *where, const unsigned char *bytes, size_t size) {
    *pickle = (ls_pickle){.path = path, .where = where, .bytes = bytes, .size = size, .budget = LS_PICKLE_BUDGET};
}

void ls_pickle_complain(const ls_pickle *pickle, const char *format, ...) {
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    ls_notice("%s: %s %zu: %s", pickle->path, pickle->where, pickle->at, what);
}

/* Arguments of opcodes. */

static ls_rc take(ls_pickle *p, size_t count, const unsigned char **out) {
    if (count > p->size - p->at) {
        return LS_PICKLE_FAIL(p, "expected %zu more bytes of the pickle, found the end after %zu (truncated)", count,
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
    return ls_pickle_push(p, value);
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
    return ls_pickle_push(p, value);
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
        return ls_pickle_push(p, value);
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
    return ls_pickle_push(p, value);
}

/* One line of text, without its end. */
static ls_rc take_line(ls_pickle *p, const char **text, size_t *length) {
    const unsigned char *end = memchr(p->bytes + p->at, '\n', p->size - p->at);
    if (end == NULL) {
        return LS_PICKLE_FAIL(p, "expected a name, found the end (truncated)");
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
    return ls_pickle_push(p, value);
}

static ls_rc read_stack_global(ls_pickle *p) {
    ls_pickle_value *name = NULL, *module = NULL, *value = NULL;
    LS_TRY(ls_pickle_pop(p, &name));
    LS_TRY(ls_pickle_pop(p, &module));
    if (name->kind != LS_PICKLE_TEXT || module->kind != LS_PICKLE_TEXT) {
        return LS_PICKLE_FAIL(p, "the pickle is damaged: a name is no text");
    }
    LS_TRY(ls_pickle_global(p, module->text, module->length, name->text, name->length, &value));
    return ls_pickle_push(p, value);
}

static ls_rc reduce(ls_pickle *p) {
    ls_pickle_value *arguments = NULL, *callee = NULL, *value = NULL;
    LS_TRY(ls_pickle_pop(p, &arguments));
    LS_TRY(ls_pickle_pop(p, &callee));
    LS_TRY(ls_pickle_call(p, callee, arguments, &value));
    return ls_pickle_push(p, value);
}

static ls_rc persistent(ls_pickle *p) {
    ls_pickle_value *id = NULL, *value = NULL;
    LS_TRY(ls_pickle_pop(p, &id));
    LS_TRY(ls_pickle_persistent(p, id, &value));
    return ls_pickle_push(p, value);
}

/* Attributes of an OrderedDict (its _metadata) say nothing about the tensors. */
static ls_rc build(ls_pickle *p) {
    ls_pickle_value *attributes = NULL, *object = NULL;
    LS_TRY(ls_pickle_pop(p, &attributes));
    LS_TRY(ls_pickle_peek(p, 0, &object));
    if (object->kind != LS_PICKLE_DICT || attributes->kind != LS_PICKLE_DICT) {
        return LS_PICKLE_FAIL(p, "attributes are set on %s; only an OrderedDict may have some",
                              ls_pickle_kind_name(object->kind));
    }
    return LS_OK;
}

static ls_rc read_protocol(ls_pickle *p) {
    uint64_t protocol = 0;
    LS_TRY(take_number(p, 1, &protocol));
    return protocol >= 2 && protocol <= 5
               ? LS_OK
               : LS_PICKLE_FAIL(p, "expected pickle protocol 2 to 5, found %llu", (unsigned long long)protocol);
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

/* Opcodes that make containers, fill them or use names. */
static ls_rc run_container_opcode(ls_pickle *p, unsigned char opcode) {
    switch (opcode) {
    case ')': /* EMPTY_TUPLE */
        return ls_pickle_push(p, ls_pickle_value_new(p, LS_PICKLE_TUPLE));
    case 't': /* TUPLE */
        return ls_pickle_make_marked_tuple(p);
    case 0x85: /* TUPLE1 */
    case 0x86: /* TUPLE2 */
    case 0x87: /* TUPLE3 */
        return ls_pickle_make_tuple(p, (size_t)opcode - 0x84);
    case ']': /* EMPTY_LIST */
        return ls_pickle_push(p, ls_pickle_value_new(p, LS_PICKLE_LIST));
    case 'a': /* APPEND */
        return ls_pickle_store_last(p, LS_PICKLE_LIST, 1);
    case 'e': /* APPENDS */
        return ls_pickle_store_marked(p, LS_PICKLE_LIST);
    case '}': /* EMPTY_DICT */
        return ls_pickle_push(p, ls_pickle_value_new(p, LS_PICKLE_DICT));
    case 's': /* SETITEM */
        return ls_pickle_store_last(p, LS_PICKLE_DICT, 2);
    case 'u': /* SETITEMS */
        return ls_pickle_store_marked(p, LS_PICKLE_DICT);
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
        return LS_PICKLE_FAIL(p,
                              "pickle opcode 0x%02x is not among those that a state_dict needs; save it with "
                              "torch.save(model.state_dict(), FILE)",
                              opcode);
    }
}

static ls_rc run_opcode(ls_pickle *p, unsigned char opcode) {
    uint64_t ignored = 0;
    switch (opcode) {
    case 0x80: /* PROTO */
        return read_protocol(p);
    case 0x95: /* FRAME: a hint of length */
        return take_number(p, 8, &ignored);
    case '(': /* MARK */
        return ls_pickle_push(p, ls_pickle_value_new(p, LS_PICKLE_MARK));
    case 'N': /* NONE */
        return ls_pickle_push(p, ls_pickle_value_new(p, LS_PICKLE_NONE));
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
    case 'q': /* BINPUT */
        return with_number(p, 1, ls_pickle_memo_put);
    case 'r': /* LONG_BINPUT */
        return with_number(p, 4, ls_pickle_memo_put);
    case 0x94: /* MEMOIZE */
        return ls_pickle_memo_next(p);
    case 'h': /* BINGET */
        return with_number(p, 1, ls_pickle_memo_get);
    case 'j': /* LONG_BINGET */
        return with_number(p, 4, ls_pickle_memo_get);
    default:
        return run_container_opcode(p, opcode);
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
    LS_TRY(ls_pickle_pop(pickle, out));
    return pickle->depth == 0 ? LS_OK : LS_PICKLE_FAIL(pickle, "the pickle is damaged: it ends with values left over");
}
