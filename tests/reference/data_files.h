/* For tests of data sources: a folder of files, and calls that must be refused with one line. */
#ifndef LS_TESTS_REFERENCE_DATA_FILES_H
#define LS_TESTS_REFERENCE_DATA_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/dataset.h"
#include "tests/impls/stderr_capture.h"
#include "tests/reference/folder.h"

/* "name:FOLDER" or "name:FOLDER/file". */
static inline const char *data_spec(const char *name, const char *file) {
    static char spec[256];
    snprintf(spec, sizeof spec, "%s:%s%s%s", name, folder, file[0] != '\0' ? "/" : "", file);
    return spec;
}

/* Opening (or with sizes its sizes) is refused with one line that holds every one of the words. */
static inline void data_refused(const char *spec, ls_split split, bool sizes, const char *const *words) {
    stderr_capture errors;
    ls_dataset dataset;
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = sizes ? ls_dataset_shape(spec, split, &dataset) : ls_dataset_open(spec, split, &dataset);
    stderr_capture_end(&errors);
    assert_int_equal(rc, LS_BAD_INPUT);
    assert_true(dataset.pixels == NULL && dataset.values == NULL && dataset.labels == NULL && dataset.targets == NULL);
    if (errors.lines != 1) {
        fail_msg("expected one line, found: %s", errors.text);
    }
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strstr(errors.text, words[i]) == NULL) {
            fail_msg("expected '%s' in: %s", words[i], errors.text);
        }
    }
}

#define REFUSED(spec, split, ...)       data_refused(spec, split, false, (const char *const[]){__VA_ARGS__, NULL})
#define SIZES_REFUSED(spec, split, ...) data_refused(spec, split, true, (const char *const[]){__VA_ARGS__, NULL})

/* Both ways to learn the sizes agree. */
static inline void data_sizes_agree(const char *spec, ls_split split) {
    ls_dataset whole, sizes;
    assert_int_equal(ls_dataset_open(spec, split, &whole), LS_OK);
    assert_int_equal(ls_dataset_shape(spec, split, &sizes), LS_OK);
    assert_true(sizes.count == whole.count && sizes.channels == whole.channels && sizes.height == whole.height &&
                sizes.width == whole.width && sizes.classes == whole.classes &&
                sizes.target_count == whole.target_count && sizes.floats == whole.floats);
    assert_true(sizes.pixels == NULL && sizes.values == NULL && sizes.labels == NULL && sizes.targets == NULL);
    assert_true(whole.floats == (whole.values != NULL) && whole.floats == (whole.pixels == NULL));
    ls_dataset_close(&whole);
}

#endif
