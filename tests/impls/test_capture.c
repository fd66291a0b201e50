/* Captures: what was written is read back bit for bit; what is broken is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "impls/capture.h"
#include "tests/impls/stderr_capture.h"

static const ls_model model = {.param_count = 5, .decisions_per_sample = 3, .buffer_count = 2, .tracked_count = 1};

static void both_sides_come_back(void **state) {
    (void)state;
    size_t indices[] = {7, 59999};
    double grads[] = {1, -0.0, 1e-300, 3, NAN}, before[] = {1, 2, 3, 4, 5}, after[] = {5, 4, 3, 2, 1};
    uint8_t decisions[] = {1, 0, 1, 3, 2, 1};
    ls_capture_local local = {12, 2, indices, grads, decisions, 4.5}, read_local;
    ls_capture_local empty = {13, 0, indices, grads, decisions, NAN}; /* a device without samples */
    double buffers[] = {0.5, 0.25};
    int64_t tracked[] = {13};
    ls_capture_reduced reduced = {12, before, grads, after, buffers, tracked, 2.25}, read_reduced;
    bool end = true;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ls_capture_write_local(file, &model, LS_FLOAT64, &local), LS_OK);
    assert_int_equal(ls_capture_write_local(file, &model, LS_FLOAT64, &empty), LS_OK);
    assert_int_equal(ls_capture_write_reduced(file, &model, LS_FLOAT64, &reduced), LS_OK);
    rewind(file);
    assert_int_equal(ls_capture_read_local(file, &model, LS_FLOAT64, &read_local, &end), LS_OK);
    assert_false(end);
    assert_int_equal(read_local.step, 12);
    assert_int_equal(read_local.count, 2);
    assert_true(read_local.loss_sum == 4.5);
    assert_memory_equal(read_local.indices, indices, sizeof indices);
    assert_memory_equal(read_local.grads, grads, sizeof grads);
    assert_memory_equal(read_local.decisions, decisions, sizeof decisions);
    ls_capture_free_local(&read_local);
    assert_int_equal(ls_capture_read_local(file, &model, LS_FLOAT64, &read_local, &end), LS_OK);
    assert_int_equal(read_local.count, 0);
    assert_true(isnan(read_local.loss_sum));
    ls_capture_free_local(&read_local);
    assert_int_equal(ls_capture_read_reduced(file, &model, LS_FLOAT64, &read_reduced, &end), LS_OK);
    assert_false(end);
    assert_int_equal(read_reduced.step, 12);
    assert_true(read_reduced.loss == 2.25);
    assert_memory_equal(read_reduced.params_before, before, sizeof before);
    assert_memory_equal(read_reduced.grads, grads, sizeof grads);
    assert_memory_equal(read_reduced.params_after, after, sizeof after);
    assert_memory_equal(read_reduced.buffers, buffers, sizeof buffers);
    assert_memory_equal(read_reduced.tracked, tracked, sizeof tracked);
    ls_capture_free_reduced(&read_reduced);
    assert_int_equal(ls_capture_read_reduced(file, &model, LS_FLOAT64, &read_reduced, &end), LS_OK);
    assert_true(end);
    fclose(file);
}

/* A file with one local record, cut to `size` bytes. */
static FILE *cut_file(long size) {
    size_t indices[] = {7, 8};
    float grads[] = {1, 2, 3, 4, 5};
    uint8_t decisions[] = {1, 0, 1, 3, 2, 1};
    ls_capture_local local = {1, 2, indices, grads, decisions, 4.5};
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ls_capture_write_local(file, &model, LS_FLOAT32, &local), LS_OK);
    fflush(file);
    long whole = ftell(file);
    assert_int_equal(ftruncate(fileno(file), size < 0 ? whole + size : size), 0);
    rewind(file);
    return file;
}

static void refuse(FILE *file, const ls_model *expected, ls_dtype dtype, const char *why) {
    ls_capture_local local;
    stderr_capture errors;
    bool end;
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = ls_capture_read_local(file, expected, dtype, &local, &end);
    stderr_capture_end(&errors);
    assert_int_equal(rc, LS_DEVICE_FAILED);
    assert_int_equal(errors.lines, 1);
    assert_non_null(strstr(errors.text, why));
    fclose(file);
}

static void broken_files_are_refused(void **state) {
    (void)state;
    ls_model other = model;
    other.param_count = 6;
    refuse(cut_file(10), &model, LS_FLOAT32, "ends inside a record"); /* in the header */
    refuse(cut_file(70), &model, LS_FLOAT32, "ends inside a record"); /* in the indices */
    refuse(cut_file(-1), &model, LS_FLOAT32, "ends inside a record"); /* in the decisions */
    refuse(cut_file(102), &model, LS_FLOAT64, "another model, type or kind");
    refuse(cut_file(102), &other, LS_FLOAT32, "another model, type or kind");
}

static void one_kind_is_not_the_other(void **state) {
    (void)state;
    ls_capture_reduced reduced;
    stderr_capture errors;
    bool end;
    FILE *file = cut_file(102);
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = ls_capture_read_reduced(file, &model, LS_FLOAT32, &reduced, &end);
    stderr_capture_end(&errors);
    assert_int_equal(rc, LS_DEVICE_FAILED);
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_come_back),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(one_kind_is_not_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
