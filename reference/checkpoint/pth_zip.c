/* The zip archive of torch.save: <stem>/data.pkl, a pickle, and one entry <stem>/data/<key> a storage, all stored without
 * compression (caffe2/serialize/inline_container.h). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "reference/checkpoint/formats.h"
#include "reference/checkpoint/pth.h"

enum { MAX_ENTRIES = LS_STATE_MAX_TENSORS + 64, NAME_SIZE = 512, END_RECORD = 22 };

static const char pickle_name[] = "/data.pkl";

typedef struct archive {
    const ls_file_bytes *file;
    zip_t *zip;
    char stem[NAME_SIZE];    /* the folder that all entries lie in */
    uint64_t unpacked;       /* bytes of the entries read so far */
    unsigned char **entries; /* owned, so that storages can point into them */
    size_t entry_count;
} archive;

/* A zip archive ends in its directory and an end record, with at most 64 KiB of comment behind: a file cut short has none. */
static ls_rc check_end(const ls_file_bytes *file) {
    size_t lowest = file->size > END_RECORD + UINT16_MAX ? file->size - END_RECORD - UINT16_MAX : 0;
    for (size_t at = file->size >= END_RECORD ? file->size - END_RECORD + 1 : 0; at-- > lowest;) {
        if (memcmp(file->bytes + at, "PK\5\6", 4) == 0) {
            return LS_OK;
        }
    }
    return ls_fail(LS_BAD_INPUT,
                   "%s: expected the end record of a zip archive, found none (truncated); copy or save it "
                   "again",
                   file->path);
}

static ls_rc open_zip(archive *a) {
    zip_error_t error;
    LS_TRY(check_end(a->file));
    zip_error_init(&error);
    zip_source_t *source = zip_source_buffer_create(a->file->bytes, a->file->size, 0, &error);
    a->zip = source != NULL ? zip_open_from_source(source, ZIP_RDONLY, &error) : NULL;
    if (a->zip == NULL) {
        ls_notice("%s: expected a zip archive: %s", a->file->path, zip_error_strerror(&error));
        zip_source_free(source);
        zip_error_fini(&error);
        return LS_BAD_INPUT;
    }
    zip_error_fini(&error);
    zip_int64_t count = zip_get_num_entries(a->zip, 0);
    if (count < 0 || count > MAX_ENTRIES) {
        return ls_fail(LS_BAD_INPUT, "%s: expected at most %d entries in the archive, found %lld", a->file->path,
                       MAX_ENTRIES, (long long)count);
    }
    return LS_OK;
}

/* The folder of data.pkl; every name is there once. */
static ls_rc find_stem(archive *a) {
    size_t count = (size_t)zip_get_num_entries(a->zip, 0);
    for (size_t i = 0; i < count; i++) {
        const char *name = zip_get_name(a->zip, i, ZIP_FL_ENC_RAW);
        if (name == NULL || zip_name_locate(a->zip, name, ZIP_FL_ENC_RAW) != (zip_int64_t)i) {
            return ls_fail(LS_BAD_INPUT, "%s: entry %zu of the archive has %s", a->file->path, i,
                           name == NULL ? "no name" : "a name that is there twice");
        }
        size_t length = strlen(name), ending = sizeof pickle_name - 1;
        if (length > ending && strcmp(name + length - ending, pickle_name) == 0 &&
            strchr(name, '/') == name + length - ending) {
            if (length - ending >= NAME_SIZE - 80) { /* room for /data/<key> */
                return ls_fail(LS_BAD_INPUT, "%s: the archive's folder has a name of %zu bytes, too long",
                               a->file->path, length - ending);
            }
            snprintf(a->stem, sizeof a->stem, "%.*s", (int)(length - ending), name);
            return LS_OK;
        }
    }
    return ls_fail(LS_BAD_INPUT,
                   "%s: expected an entry FOLDER/data.pkl in the archive, found none of its %zu; it is no "
                   "file of torch.save",
                   a->file->path, count);
}

/* Whether there is an entry <stem>/<name>. */
static bool has_entry(const archive *a, const char *name) {
    char full[NAME_SIZE];
    snprintf(full, sizeof full, "%s/%s", a->stem, name);
    return zip_name_locate(a->zip, full, ZIP_FL_ENC_RAW) >= 0;
}

static ls_rc read_bytes(const archive *a, zip_uint64_t index, const char *name, unsigned char *bytes, size_t size) {
    zip_file_t *entry = zip_fopen_index(a->zip, index, 0);
    if (entry == NULL) {
        return ls_fail(LS_BAD_INPUT, "%s: entry %s cannot be read: %s", a->file->path, name, zip_strerror(a->zip));
    }
    size_t got = 0;
    zip_int64_t more = 1;
    while (more > 0) { /* one read past the end as well: only there is the checksum compared */
        more = zip_fread(entry, bytes + got, size - got + 1);
        got += more > 0 ? (size_t)more : 0;
        if (got > size) {
            break;
        }
    }
    ls_rc rc = LS_OK;
    if (more < 0) {
        rc = ls_fail(LS_BAD_INPUT, "%s: entry %s is damaged: %s", a->file->path, name, zip_file_strerror(entry));
    } else if (got != size) {
        rc = ls_fail(LS_BAD_INPUT, "%s: entry %s: expected %zu bytes, found %s", a->file->path, name, size,
                     got > size ? "more" : "fewer");
    }
    zip_fclose(entry);
    return rc;
}

/* The bytes of entry <stem>/<name>, owned by the archive. All entries are stored, so together they are no larger than the
 * file: a compressed one could be a thousand times what it takes. */
static ls_rc read_entry(archive *a, const char *name, const unsigned char **out, size_t *size) {
    char full[NAME_SIZE];
    zip_stat_t info;
    snprintf(full, sizeof full, "%s/%s", a->stem, name);
    if (zip_stat(a->zip, full, ZIP_FL_ENC_RAW, &info) != 0) {
        return ls_fail(LS_BAD_INPUT, "%s: entry %s is missing", a->file->path, full);
    }
    if (info.comp_method != ZIP_CM_STORE || info.encryption_method != ZIP_EM_NONE || info.size != info.comp_size) {
        return ls_fail(
            LS_BAD_INPUT,
            "%s: entry %s: expected it stored as torch.save does, found it compressed or encrypted (%llu bytes "
            "from %llu)",
            a->file->path, full, (unsigned long long)info.size, (unsigned long long)info.comp_size);
    }
    if (info.size > a->file->size - a->unpacked) {
        return ls_fail(LS_BAD_INPUT,
                       "%s: entry %s: expected entries of at most the file's %zu bytes, found more: they "
                       "overlap",
                       a->file->path, full, a->file->size);
    }
    unsigned char *bytes = malloc((size_t)info.size + 1);
    if (bytes == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "%s: out of memory for entry %s", a->file->path, full);
    }
    a->unpacked += info.size;
    a->entries[a->entry_count++] = bytes;
    *out = bytes;
    *size = (size_t)info.size;
    return read_bytes(a, info.index, full, bytes, *size);
}

static ls_rc read_storages(archive *a, ls_pickle *pickle) {
    for (size_t i = 0; i < pickle->storage_count; i++) {
        ls_pickle_storage *storage = &pickle->storages[i];
        char name[80];
        size_t size = 0;
        if (memchr(storage->key, '\0', storage->key_length) != NULL) {
            return ls_fail(LS_BAD_INPUT, "%s: data.pkl: a storage's key has a zero byte", a->file->path);
        }
        snprintf(name, sizeof name, "data/%.*s", (int)storage->key_length, storage->key);
        LS_TRY(read_entry(a, name, &storage->data, &size));
        if (storage->count > size / ls_state_element_size(storage->element) ||
            storage->count * ls_state_element_size(storage->element) != size) {
            return ls_fail(LS_BAD_INPUT, "%s: entry %s/%s: expected %llu elements of %s, found %zu bytes",
                           a->file->path, a->stem, name, (unsigned long long)storage->count,
                           ls_state_element_name(storage->element), size);
        }
    }
    return LS_OK;
}

static ls_rc read_archive(archive *a, ls_pickle *pickle, ls_state *state) {
    const unsigned char *bytes = NULL;
    size_t size = 0;
    LS_TRY(open_zip(a));
    LS_TRY(find_stem(a));
    if (has_entry(a, "constants.pkl")) {
        return ls_fail(LS_BAD_INPUT, "%s: expected a state_dict, found a TorchScript archive (torch.jit.save)",
                       a->file->path);
    }
    a->entries = ls_calloc(MAX_ENTRIES, sizeof(unsigned char *), "the entries of an archive");
    if (a->entries == NULL) {
        return LS_DEVICE_FAILED;
    }
    if (has_entry(a, "byteorder")) {
        LS_TRY(read_entry(a, "byteorder", &bytes, &size));
        if (size != 6 || memcmp(bytes, "little", 6) != 0) {
            return ls_fail(LS_BAD_INPUT, "%s: entry %s/byteorder: expected little, found another", a->file->path,
                           a->stem);
        }
    }
    LS_TRY(read_entry(a, pickle_name + 1, &bytes, &size));
    ls_pickle_open(pickle, a->file->path, "data.pkl, byte", bytes, size);
    ls_pickle_value *root = NULL;
    LS_TRY(ls_pickle_read(pickle, &root));
    if (pickle->at != size) {
        return LS_PICKLE_FAIL(pickle, "expected the end of the pickle, found %zu more bytes", size - pickle->at);
    }
    LS_TRY(read_storages(a, pickle));
    return ls_pth_collect(pickle, root, a->file, state);
}

ls_rc ls_pth_zip_read(const ls_file_bytes *file, ls_state *state) {
    archive a = {.file = file};
    ls_pickle pickle = {0};
    ls_rc rc = read_archive(&a, &pickle, state);
    ls_pickle_free(&pickle);
    for (size_t i = 0; i < a.entry_count; i++) {
        free(a.entries[i]);
    }
    free(a.entries);
    if (a.zip != NULL) {
        zip_discard(a.zip);
    }
    return rc;
}
