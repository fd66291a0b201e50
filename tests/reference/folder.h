/* For tests: a folder of files of their own. Include after cmocka.h. */
#ifndef LS_TESTS_REFERENCE_FOLDER_H
#define LS_TESTS_REFERENCE_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];

static inline int folder_make(void **state) {
    (void)state;
    strcpy(folder, "/tmp/lockstep-test-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static inline int folder_remove(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* Overwritten by the next call. */
static inline char *folder_path(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static inline void folder_write(const char *name, const void *bytes, size_t count) {
    FILE *file = fopen(folder_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* The whole file, which must be smaller than size; its length. */
static inline size_t folder_read(const char *name, void *bytes, size_t size) {
    FILE *file = fopen(folder_path(name), "rb");
    assert_non_null(file);
    size_t got = fread(bytes, 1, size, file);
    assert_true(feof(file));
    fclose(file);
    return got;
}

#endif
