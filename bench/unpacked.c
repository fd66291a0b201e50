#include "bench/unpacked.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "impls/run_dir.h"

static bool write_word(FILE *file, size_t value) {
    unsigned char bytes[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16), (unsigned char)(value >> 8),
                              (unsigned char)value};
    return fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes;
}

static bool write_images(FILE *file, const ls_dataset *set) {
    size_t bytes = set->count * set->height * set->width;
    return write_word(file, 0x00000803) && write_word(file, set->count) && write_word(file, set->height) &&
           write_word(file, set->width) && fwrite(set->pixels, 1, bytes, file) == bytes;
}

static bool write_labels(FILE *file, const ls_dataset *set) {
    bool good = write_word(file, 0x00000801) && write_word(file, set->count);
    for (size_t i = 0; good && i < set->count; i++) {
        good = fputc((int)set->labels[i], file) != EOF;
    }
    return good;
}

static bool write_file(const char *folder, const char *name, const ls_dataset *set,
                       bool (*write)(FILE *, const ls_dataset *)) {
    char path[LS_PATH_SIZE + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wbe");
    if (file == NULL) {
        return false;
    }
    bool good = fchmod(fileno(file), S_IRUSR) == 0; /* so that ranks map it (reference/data/bytes.h) */
    good = good && write(file, set);
    return fclose(file) == 0 && good;
}

ls_rc ls_unpacked_make(const char *program, const char *data_spec, const ls_dataset *train, ls_unpacked *out) {
    *out = (ls_unpacked){0};
    snprintf(out->data, sizeof out->data, "%s", data_spec);
    bool packed = strncmp(data_spec, "mnist", 5) == 0 || strncmp(data_spec, "fashion-mnist", 13) == 0;
    if (!packed) { /* the others are read as they are */
        return LS_OK;
    }
    LS_TRY(ls_run_dir_make(program, &out->folder));
    char spec[LS_PATH_SIZE + 8];
    bool written = write_file(out->folder.run_dir, "train-images-idx3-ubyte", train, write_images) &&
                   write_file(out->folder.run_dir, "train-labels-idx1-ubyte", train, write_labels);
    int length = snprintf(spec, sizeof spec, "mnist:%s", out->folder.run_dir);
    if (written && length > 0 && (size_t)length < sizeof out->data) {
        memcpy(out->data, spec, (size_t)length + 1);
    } else {
        ls_unpacked_remove(out); /* only time is lost */
    }
    return LS_OK;
}

void ls_unpacked_remove(ls_unpacked *unpacked) {
    ls_outcome_release(&unpacked->folder);
}
