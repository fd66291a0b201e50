/* The names that the pickle of a state_dict may use, and what a call of each gives. */
#include <stdio.h>
#include <string.h>

#include "reference/checkpoint/pickle.h"

typedef enum name_kind { NAME_ORDERED_DICT, NAME_TENSOR_V2, NAME_PARAMETER, NAME_STORAGE, NAME_FOREIGN } name_kind;

static const struct {
    const char *module, *name;
    name_kind kind;
    ls_element element; /* of a storage */
} names[] = {
    {"collections", "OrderedDict", NAME_ORDERED_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", NAME_TENSOR_V2, 0},
    {"torch._utils", "_rebuild_parameter", NAME_PARAMETER, 0},
    {"torch", "FloatStorage", NAME_STORAGE, LS_ELEMENT_FLOAT32},
    {"torch", "DoubleStorage", NAME_STORAGE, LS_ELEMENT_FLOAT64},
    {"torch", "LongStorage", NAME_STORAGE, LS_ELEMENT_INT64},
    {"torch", "HalfStorage", NAME_STORAGE, LS_ELEMENT_FLOAT16},
    {"torch", "BFloat16Storage", NAME_STORAGE, LS_ELEMENT_BFLOAT16},
    {"torch", "IntStorage", NAME_FOREIGN, 0},
    {"torch", "ShortStorage", NAME_FOREIGN, 0},
    {"torch", "CharStorage", NAME_FOREIGN, 0},
    {"torch", "ByteStorage", NAME_FOREIGN, 0},
    {"torch", "BoolStorage", NAME_FOREIGN, 0},
    {"torch", "ComplexFloatStorage", NAME_FOREIGN, 0},
    {"torch", "ComplexDoubleStorage", NAME_FOREIGN, 0},
};

static bool same(const char *text, size_t length, const char *expected) {
    return length == strlen(expected) && memcmp(text, expected, length) == 0;
}

static bool starts(const char *text, size_t length, const char *expected) {
    return length >= strlen(expected) && memcmp(text, expected, strlen(expected)) == 0;
}

ls_rc ls_pickle_global(ls_pickle *pickle, const char *module, size_t module_length, const char *name,
                       size_t name_length, ls_pickle_value **out) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!same(module, module_length, names[i].module) || !same(name, name_length, names[i].name)) {
            continue;
        }
        if (names[i].kind == NAME_FOREIGN) {
            return LS_PICKLE_FAIL(pickle,
                                  "expected tensors of float32, float64, float16, bfloat16 or int64, found %s.%s",
                                  names[i].module, names[i].name);
        }
        *out = ls_pickle_value_new(pickle, LS_PICKLE_NAME);
        if (*out == NULL) {
            return LS_BAD_INPUT;
        }
        (*out)->index = i;
        return LS_OK;
    }
    int shown_module = (int)(module_length < 80 ? module_length : 80),
        shown_name = (int)(name_length < 80 ? name_length : 80);
    if (starts(module, module_length, "torch.nn.") || starts(module, module_length, "__main__")) {
        return LS_PICKLE_FAIL(
            pickle,
            "expected a state_dict, found an object of class %.*s.%.*s: a whole pickled module, which "
            "only its own Python code can read; save it with torch.save(model.state_dict(), FILE)",
            shown_module, module, shown_name, name);
    }
    return LS_PICKLE_FAIL(pickle,
                          "the name %.*s.%.*s is not among those that a state_dict needs; save it with "
                          "torch.save(model.state_dict(), FILE)",
                          shown_module, module, shown_name, name);
}

/* Adds room for one more to an array of the reader. */
static void *grow(ls_pickle *pickle, void *old, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) {
        return old;
    }
    size_t more = *capacity == 0 ? 32 : 2 * *capacity;
    void *grown = ls_pickle_alloc(pickle, more, size);
    if (grown != NULL) {
        if (count > 0) {
            memcpy(grown, old, count * size);
        }
        *capacity = more;
    }
    return grown;
}

/* Persistent ids. */

static ls_rc find_storage(ls_pickle *pickle, const ls_pickle_storage *wanted, size_t *index) {
    for (size_t i = pickle->storage_count; i-- > 0;) { /* from the last: shared storages lie close together */
        const ls_pickle_storage *known = &pickle->storages[i];
        if (known->key_length != wanted->key_length || memcmp(known->key, wanted->key, wanted->key_length) != 0) {
            continue;
        }
        if (known->element != wanted->element || known->count != wanted->count) {
            return LS_PICKLE_FAIL(pickle, "storage '%.*s' is told twice, and not alike", (int)known->key_length,
                                  known->key);
        }
        *index = i;
        return LS_OK;
    }
    if (pickle->storage_count == LS_STATE_MAX_TENSORS) {
        return LS_PICKLE_FAIL(pickle, "expected at most %d storages, found more", LS_STATE_MAX_TENSORS);
    }
    ls_pickle_storage *storages =
        grow(pickle, pickle->storages, pickle->storage_count, &pickle->storage_capacity, sizeof *pickle->storages);
    if (storages == NULL) {
        return LS_BAD_INPUT;
    }
    pickle->storages = storages;
    *index = pickle->storage_count;
    pickle->storages[pickle->storage_count++] = *wanted;
    return LS_OK;
}

ls_rc ls_pickle_persistent(ls_pickle *pickle, const ls_pickle_value *id, ls_pickle_value **out) {
    /* ('storage', type, key, location, elements), in the older stream followed by what view of another it is, or None */
    bool good = id->kind == LS_PICKLE_TUPLE && (id->count == 5 || id->count == 6) &&
                ls_pickle_is_text(id->items[0], "storage") && id->items[1]->kind == LS_PICKLE_NAME &&
                id->items[2]->kind == LS_PICKLE_TEXT && id->items[3]->kind == LS_PICKLE_TEXT &&
                id->items[4]->kind == LS_PICKLE_INTEGER && id->items[4]->integer >= 0;
    if (!good || names[id->items[1]->index].kind != NAME_STORAGE) {
        return LS_PICKLE_FAIL(pickle, "expected a storage ('storage', type, key, location, elements), found another "
                                      "persistent id; a whole pickled module has such");
    }
    if (id->count == 6 && id->items[5]->kind != LS_PICKLE_NONE) {
        return LS_PICKLE_FAIL(pickle, "storages that are views of others (PyTorch before 0.4) are not read; save the "
                                      "state_dict with a newer PyTorch");
    }
    ls_pickle_storage storage = {
        .key = id->items[2]->text,
        .key_length = id->items[2]->length,
        .element = names[id->items[1]->index].element,
        .count = (uint64_t)id->items[4]->integer,
    };
    if (storage.key_length == 0 || storage.key_length > 64) {
        return LS_PICKLE_FAIL(pickle, "expected a storage's key of 1 to 64 bytes, found %zu", storage.key_length);
    }
    if (pickle->references++ == 2 * LS_STATE_MAX_TENSORS) { /* each is a search among the storages */
        return LS_PICKLE_FAIL(pickle, "expected at most %d references to storages, found more",
                              2 * LS_STATE_MAX_TENSORS);
    }
    size_t index = 0;
    LS_TRY(find_storage(pickle, &storage, &index));
    *out = ls_pickle_value_new(pickle, LS_PICKLE_STORAGE);
    if (*out == NULL) {
        return LS_BAD_INPUT;
    }
    (*out)->index = index;
    return LS_OK;
}

/* Tensors. */

static ls_rc read_sizes(const ls_pickle *pickle, const ls_pickle_value *tuple, const char *what, size_t *out) {
    for (size_t d = 0; d < tuple->count; d++) {
        if (tuple->items[d]->kind != LS_PICKLE_INTEGER || tuple->items[d]->integer < 0) {
            return LS_PICKLE_FAIL(pickle, "expected a %s of numbers that are 0 or more", what);
        }
        out[d] = (size_t)tuple->items[d]->integer;
    }
    return LS_OK;
}

/* The view must lie within its storage, and must not repeat it: an expanded tensor would take more memory than the file. */
static ls_rc check_view(const ls_pickle *pickle, ls_pickle_tensor *tensor) {
    uint64_t have = pickle->storages[tensor->storage].count;
    tensor->count = 1;
    for (size_t d = 0; d < tensor->dims; d++) {
        if (tensor->shape[d] == 0) {
            tensor->count = 0;
            break;
        }
    }
    uint64_t last = tensor->offset;
    for (size_t d = 0; d < tensor->dims && tensor->count > 0; d++) {
        uint64_t size = tensor->shape[d], steps = size - 1;
        if (size > have / tensor->count || (tensor->stride[d] > 0 && steps > have / tensor->stride[d])) {
            last = have;
            break;
        }
        tensor->count *= size;
        last += steps * tensor->stride[d]; /* both summands are at most have, which fits the file's format */
        if (last >= have) {
            break;
        }
    }
    if (tensor->offset > have || (tensor->count > 0 && last >= have)) {
        char shape[160];
        return LS_PICKLE_FAIL(pickle, "a tensor %s reaches beyond its storage of %llu elements, or repeats it",
                              ls_state_shape_text(tensor->dims, tensor->shape, shape, sizeof shape),
                              (unsigned long long)have);
    }
    return LS_OK;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks[, metadata]) */
static ls_rc call_tensor(ls_pickle *pickle, const ls_pickle_value *arguments, ls_pickle_value **out) {
    ls_pickle_value *const *a = arguments->items;
    if (arguments->count < 6 || arguments->count > 7 || a[0]->kind != LS_PICKLE_STORAGE ||
        a[1]->kind != LS_PICKLE_INTEGER || a[1]->integer < 0 || a[2]->kind != LS_PICKLE_TUPLE ||
        a[3]->kind != LS_PICKLE_TUPLE || a[2]->count != a[3]->count) {
        return LS_PICKLE_FAIL(pickle, "expected a tensor (storage, offset, size, stride, requires_grad, hooks), found "
                                      "other arguments");
    }
    if (a[2]->count > LS_STATE_MAX_DIMS) {
        return LS_PICKLE_FAIL(pickle, "expected a tensor of at most %d dimensions, found %zu", LS_STATE_MAX_DIMS,
                              a[2]->count);
    }
    if (pickle->tensor_count == LS_STATE_MAX_TENSORS) {
        return LS_PICKLE_FAIL(pickle, "expected at most %d tensors, found more", LS_STATE_MAX_TENSORS);
    }
    ls_pickle_tensor tensor = {.storage = a[0]->index, .offset = (uint64_t)a[1]->integer, .dims = a[2]->count};
    LS_TRY(read_sizes(pickle, a[2], "size", tensor.shape));
    LS_TRY(read_sizes(pickle, a[3], "stride", tensor.stride));
    LS_TRY(check_view(pickle, &tensor));
    ls_pickle_tensor *tensors =
        grow(pickle, pickle->tensors, pickle->tensor_count, &pickle->tensor_capacity, sizeof *pickle->tensors);
    *out = ls_pickle_value_new(pickle, LS_PICKLE_TENSOR);
    if (tensors == NULL || *out == NULL) {
        return LS_BAD_INPUT;
    }
    pickle->tensors = tensors;
    (*out)->index = pickle->tensor_count;
    pickle->tensors[pickle->tensor_count++] = tensor;
    return LS_OK;
}

/* OrderedDict(), or as Python 2 wrote it OrderedDict([[key, value], ...]). */
static ls_rc call_ordered_dict(ls_pickle *pickle, const ls_pickle_value *arguments, ls_pickle_value **out) {
    const ls_pickle_value *pairs = arguments->count == 1 ? arguments->items[0] : NULL;
    *out = ls_pickle_value_new(pickle, LS_PICKLE_DICT);
    if (*out == NULL) {
        return LS_BAD_INPUT;
    }
    if (arguments->count == 0) {
        return LS_OK;
    }
    if (pairs == NULL || pairs->kind != LS_PICKLE_LIST) {
        return LS_PICKLE_FAIL(pickle, "expected OrderedDict() of nothing or of a list of pairs");
    }
    (*out)->items = ls_pickle_alloc(pickle, 2 * pairs->count, sizeof(ls_pickle_value *));
    if ((*out)->items == NULL) {
        return LS_BAD_INPUT;
    }
    (*out)->capacity = 2 * pairs->count;
    for (size_t i = 0; i < pairs->count; i++) {
        const ls_pickle_value *pair = pairs->items[i];
        if ((pair->kind != LS_PICKLE_LIST && pair->kind != LS_PICKLE_TUPLE) || pair->count != 2) {
            return LS_PICKLE_FAIL(pickle, "expected OrderedDict() of nothing or of a list of pairs");
        }
        (*out)->items[(*out)->count++] = pair->items[0];
        (*out)->items[(*out)->count++] = pair->items[1];
    }
    return LS_OK;
}

ls_rc ls_pickle_call(ls_pickle *pickle, const ls_pickle_value *callee, const ls_pickle_value *arguments,
                     ls_pickle_value **out) {
    if (callee->kind != LS_PICKLE_NAME || arguments->kind != LS_PICKLE_TUPLE) {
        return LS_PICKLE_FAIL(pickle, "the pickle is damaged: %s is called with %s", ls_pickle_kind_name(callee->kind),
                              ls_pickle_kind_name(arguments->kind));
    }
    switch (names[callee->index].kind) {
    case NAME_ORDERED_DICT:
        return call_ordered_dict(pickle, arguments, out);
    case NAME_TENSOR_V2:
        return call_tensor(pickle, arguments, out);
    case NAME_PARAMETER: /* _rebuild_parameter(tensor, requires_grad, backward_hooks) */
        if (arguments->count < 1 || arguments->items[0]->kind != LS_PICKLE_TENSOR) {
            return LS_PICKLE_FAIL(pickle, "expected a parameter made of a tensor");
        }
        *out = arguments->items[0];
        return LS_OK;
    default:
        return LS_PICKLE_FAIL(pickle, "%s.%s is called; in a state_dict it only names a type",
                              names[callee->index].module, names[callee->index].name);
    }
}
