/* .pth files: telling their kinds apart, and a state_dict's tensors from its pickle. */
#include "reference/checkpoint/pth.h"

#include <string.h>

#include "reference/checkpoint/formats.h"

/* Tensors may share storages, and float16 doubles: beyond this factor a file is made to exhaust memory. */
enum { LARGEST_FACTOR = 8 };

static const unsigned char zip_magic[] = {'P', 'K', 3, 4};
/* PROTO 2, LONG1 of 10 bytes: torch.serialization.MAGIC_NUMBER = 0x1950a86a20f9469cfc6c */
static const unsigned char legacy_magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                             0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

static bool starts_with(const ls_file_bytes *file, const void *magic, size_t size) {
    return file->size >= size && memcmp(file->bytes, magic, size) == 0;
}

ls_rc ls_pth_read(const ls_file_bytes *file, ls_state *state) {
    if (starts_with(file, zip_magic, sizeof zip_magic)) {
        return ls_pth_zip_read(file, state);
    }
    if (starts_with(file, legacy_magic, sizeof legacy_magic)) {
        return ls_pth_legacy_read(file, state);
    }
    const char *guess = "";
    if (file->bytes[0] == '<') {
        guess = " (a web page?)";
    } else if (file->size >= 2 && file->bytes[0] == 0x80 && file->bytes[1] <= 5) {
        guess = " (a pickle, but not one of torch.save)";
    } else if (file->size >= 10 && memcmp(file->bytes + 8, "{\"", 2) == 0) {
        guess = " (a safetensors file? rename it)";
    }
    return ls_fail(LS_BAD_INPUT,
                   "%s: byte 0: expected a file of torch.save, a zip archive or a pickle stream, found "
                   "neither%s",
                   file->path, guess);
}

static bool has_key(const ls_pickle_value *dict, const char *key) {
    for (size_t i = 0; i < dict->count; i += 2) {
        if (ls_pickle_is_text(dict->items[i], key)) {
            return true;
        }
    }
    return false;
}

/* What else torch.save is often given. */
static ls_rc check_root(const ls_pickle_value *root, const char *path) {
    if (root->kind != LS_PICKLE_DICT) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: expected a state_dict, found %s; save it with torch.save(model.state_dict(), FILE)", path,
                       ls_pickle_kind_name(root->kind));
    }
    if (has_key(root, "state") && has_key(root, "param_groups")) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: expected a model's state_dict, found an optimizer's (its keys are state and param_groups)",
                       path);
    }
    for (size_t i = 0; i < root->count; i += 2) {
        const ls_pickle_value *key = root->items[i];
        if (root->items[i + 1]->kind == LS_PICKLE_DICT && key->kind == LS_PICKLE_TEXT) {
            return ls_fail(LS_BAD_INPUT,
                           "%s: expected a state_dict, found a dict of several parts; '%.*s' may be one: save it alone "
                           "with torch.save",
                           path, (int)(key->length < 100 ? key->length : 100), key->text);
        }
    }
    return LS_OK;
}

/* A key of the state_dict as a C string into name (LS_STATE_MAX_NAME + 1 bytes). */
static ls_rc read_key(const ls_pickle_value *key, const char *path, char *name) {
    if (key->kind != LS_PICKLE_TEXT) {
        return ls_fail(LS_BAD_INPUT, "%s: expected names as keys of a state_dict, found %s", path,
                       ls_pickle_kind_name(key->kind));
    }
    if (key->length > LS_STATE_MAX_NAME || memchr(key->text, '\0', key->length) != NULL) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: expected names of at most %d bytes in a state_dict, found one of %zu or with a "
                       "zero byte",
                       path, LS_STATE_MAX_NAME, key->length);
    }
    memcpy(name, key->text, key->length);
    name[key->length] = '\0';
    return LS_OK;
}

/* Copies a view element by element, the last dimension quickest. */
static void gather(const ls_pickle_tensor *view, const ls_pickle_storage *storage, ls_state_tensor *tensor) {
    size_t from = ls_state_element_size(storage->element), to = ls_state_element_size(tensor->element);
    const unsigned char *data = storage->data;
    size_t at[LS_STATE_MAX_DIMS] = {0};
    uint64_t element = view->offset;
    for (size_t i = 0; i < tensor->count; i++) {
        ls_state_element_widen(storage->element, 1, data + element * from, (char *)tensor->data + i * to);
        for (size_t d = view->dims; d-- > 0;) {
            element += view->stride[d];
            if (++at[d] < view->shape[d]) {
                break;
            }
            element -= view->shape[d] * view->stride[d];
            at[d] = 0;
        }
    }
}

static bool is_contiguous(const ls_pickle_tensor *view) {
    size_t stride = 1;
    for (size_t d = view->dims; d-- > 0;) {
        if (view->shape[d] != 1 && view->stride[d] != stride) {
            return false;
        }
        stride *= view->shape[d];
    }
    return true;
}

static ls_rc add_tensor(const ls_pickle *pickle, const ls_pickle_tensor *view, const char *name, ls_state *state) {
    const ls_pickle_storage *storage = &pickle->storages[view->storage];
    ls_state_tensor *tensor = NULL;
    LS_TRY(ls_state_add(state, name, ls_state_element_in_memory(storage->element), view->dims, view->shape, &tensor));
    if (tensor->count == 0) {
        return LS_OK;
    }
    if (is_contiguous(view)) {
        ls_state_element_widen(storage->element, tensor->count,
                               storage->data + view->offset * ls_state_element_size(storage->element), tensor->data);
    } else {
        gather(view, storage, tensor);
    }
    return LS_OK;
}

ls_rc ls_pth_collect(ls_pickle *pickle, const ls_pickle_value *root, const ls_file_bytes *file, ls_state *state) {
    LS_TRY(check_root(root, file->path));
    uint64_t total = 0;
    for (size_t i = 0; i < root->count; i += 2) {
        char name[LS_STATE_MAX_NAME + 1];
        const ls_pickle_value *value = root->items[i + 1];
        LS_TRY(read_key(root->items[i], file->path, name));
        if (value->kind != LS_PICKLE_TENSOR) {
            return ls_fail(LS_BAD_INPUT, "%s: expected a tensor as value of '%.100s', found %s", file->path, name,
                           ls_pickle_kind_name(value->kind));
        }
        if (state->count == LS_STATE_MAX_TENSORS || ls_state_find(state, name) != NULL) {
            return state->count == LS_STATE_MAX_TENSORS
                       ? ls_fail(LS_BAD_INPUT, "%s: expected at most %d tensors, found more", file->path,
                                 LS_STATE_MAX_TENSORS)
                       : ls_fail(LS_BAD_INPUT, "%s: the key '%.100s' is there twice", file->path, name);
        }
        const ls_pickle_tensor *view = &pickle->tensors[value->index];
        ls_element element = ls_state_element_in_memory(pickle->storages[view->storage].element);
        total += view->count * ls_state_element_size(element); /* at most 2 * the file a tensor */
        if (total > LARGEST_FACTOR * (uint64_t)file->size) {
            return ls_fail(LS_BAD_INPUT,
                           "%s: tensor '%.100s': expected tensors of at most %d times the file's %zu bytes together, "
                           "found more: they share the same storages",
                           file->path, name, LARGEST_FACTOR, file->size);
        }
        LS_TRY(add_tensor(pickle, view, name, state));
    }
    return LS_OK;
}
