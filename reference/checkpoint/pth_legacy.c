/* The older stream of torch.save (_use_new_zipfile_serialization=False; torch/serialization.py, _legacy_save): five pickles,
 * one after the other: a magic number, the protocol's version, what machine wrote it, the object, the list of its storages'
 * keys; then each storage of the list as its number of elements (64 bits) and its bytes. */
#include <string.h>

#include "reference/checkpoint/formats.h"
#include "reference/checkpoint/pth.h"

enum { PROTOCOL = 1001 };

/* Magic number (which ls_pth_read has seen), version and machine. */
static ls_rc read_front(ls_pickle *pickle) {
    ls_pickle_value *magic = NULL, *version = NULL, *machine = NULL;
    LS_TRY(ls_pickle_read(pickle, &magic));
    LS_TRY(ls_pickle_read(pickle, &version));
    if (version->kind != LS_PICKLE_INTEGER || version->integer != PROTOCOL) {
        return LS_PICKLE_FAIL(pickle, "expected version %d of the pickle stream, found another", PROTOCOL);
    }
    LS_TRY(ls_pickle_read(pickle, &machine));
    for (size_t i = 0; machine->kind == LS_PICKLE_DICT && i < machine->count; i += 2) {
        if (ls_pickle_is_text(machine->items[i], "little_endian") && machine->items[i + 1]->integer == 0) {
            return LS_PICKLE_FAIL(pickle, "the file was written on a big-endian machine");
        }
    }
    return LS_OK;
}

static ls_pickle_storage *find(ls_pickle *pickle, const ls_pickle_value *key) {
    for (size_t i = 0; i < pickle->storage_count; i++) {
        ls_pickle_storage *storage = &pickle->storages[i];
        if (key->kind == LS_PICKLE_TEXT && key->length == storage->key_length &&
            memcmp(key->text, storage->key, key->length) == 0) {
            return storage;
        }
    }
    return NULL;
}

static ls_rc read_storage(ls_pickle *pickle, const ls_pickle_value *key) {
    ls_pickle_storage *storage = find(pickle, key);
    if (storage == NULL || storage->data != NULL) {
        return LS_PICKLE_FAIL(pickle, "the list of storages names one that %s",
                              storage == NULL ? "no tensor uses" : "it has named before");
    }
    int shown = (int)storage->key_length;
    uint64_t count = 0;
    if (pickle->size - pickle->at < sizeof count) {
        return LS_PICKLE_FAIL(pickle, "expected storage '%.*s', found the end (truncated)", shown, storage->key);
    }
    memcpy(&count, pickle->bytes + pickle->at, sizeof count); /* little-endian, as this program */
    if (count != storage->count) {
        return LS_PICKLE_FAIL(pickle, "expected the %llu elements of storage '%.*s', found %llu",
                              (unsigned long long)storage->count, shown, storage->key, (unsigned long long)count);
    }
    pickle->at += sizeof count;
    size_t left = pickle->size - pickle->at;
    if (count > left / ls_state_element_size(storage->element)) {
        return LS_PICKLE_FAIL(pickle,
                              "expected %llu elements of storage '%.*s', found the end after %zu bytes (truncated)",
                              (unsigned long long)count, shown, storage->key, left);
    }
    storage->data = pickle->bytes + pickle->at;
    pickle->at += (size_t)count * ls_state_element_size(storage->element);
    return LS_OK;
}

static ls_rc read_storages(ls_pickle *pickle, const ls_pickle_value *keys) {
    if (keys->kind != LS_PICKLE_LIST || keys->count > LS_STATE_MAX_TENSORS) {
        return LS_PICKLE_FAIL(pickle, "expected the list of storages, found %s", ls_pickle_kind_name(keys->kind));
    }
    for (size_t i = 0; i < keys->count; i++) {
        LS_TRY(read_storage(pickle, keys->items[i]));
    }
    for (size_t i = 0; i < pickle->storage_count; i++) {
        if (pickle->storages[i].data == NULL) {
            return LS_PICKLE_FAIL(pickle, "storage '%.*s' is missing", (int)pickle->storages[i].key_length,
                                  pickle->storages[i].key);
        }
    }
    return pickle->at == pickle->size
               ? LS_OK
               : LS_PICKLE_FAIL(pickle, "expected the end after the storages, found %zu more bytes",
                                pickle->size - pickle->at);
}

static ls_rc read_stream(ls_pickle *pickle, const ls_file_bytes *file, ls_state *state) {
    ls_pickle_value *root = NULL, *keys = NULL;
    LS_TRY(read_front(pickle));
    LS_TRY(ls_pickle_read(pickle, &root));
    LS_TRY(ls_pickle_read(pickle, &keys));
    LS_TRY(read_storages(pickle, keys));
    return ls_pth_collect(pickle, root, file, state);
}

ls_rc ls_pth_legacy_read(const ls_file_bytes *file, ls_state *state) {
    ls_pickle pickle;
    ls_pickle_open(&pickle, file->path, "byte", file->bytes, file->size);
    ls_rc rc = read_stream(&pickle, file, state);
    ls_pickle_free(&pickle);
    return rc;
}
