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

static const ls_model model = {
    .input = {1, 1, 2}, .param_count = 5, .decisions_per_sample = 3, .buffer_count = 2, .tracked_count = 1};

static void local_side_comes_back(void **state) {
    (void)state;
    size_t indices[] = {7, 59999};
    double grads[] = {1, -0.0, 1e-300, 3, NAN};
    uint8_t decisions[] = {1, 0, 1, 3, 2, 1};
    double inputs[] = {0.5, -0.25, 1, NAN};
    int32_t labels[] = {3, 9};
    float targets[] = {1, 2, 3, 4, 5, 6};
    ls_capture_local found;
    ls_capture_local local = {.step = 12,
                              .count = 2,
                              .indices = indices,
                              .grads = grads,
                              .decisions = decisions,
                              .loss_sum = 4.5,
                              .inputs = inputs,
                              .labels = labels,
                              .targets = targets,
                              .target_count = 3};
    ls_capture_local empty = local; /* a device without samples */
    empty.step = 13;
    empty.count = 0;
    empty.loss_sum = NAN;
    bool end = true;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ls_capture_write_local(file, &model, LS_FLOAT64, &local), LS_OK);
    assert_int_equal(ls_capture_write_local(file, &model, LS_FLOAT64, &empty), LS_OK);
    rewind(file);
    assert_int_equal(ls_capture_read_local(file, &model, LS_FLOAT64, &found, &end), LS_OK);
    assert_false(end);
    assert_true(found.step == 12 && found.count == 2 && found.loss_sum == 4.5 && found.target_count == 3);
    assert_memory_equal(found.indices, indices, sizeof indices);
    assert_memory_equal(found.grads, grads, sizeof grads);
    assert_memory_equal(found.decisions, decisions, sizeof decisions);
    assert_memory_equal(found.inputs, inputs, sizeof inputs);
    assert_memory_equal(found.labels, labels, sizeof labels);
    assert_memory_equal(found.targets, targets, sizeof targets);
    ls_capture_free_local(&found);
    assert_int_equal(ls_capture_read_local(file, &model, LS_FLOAT64, &found, &end), LS_OK);
    assert_true(found.step == 13 && found.count == 0 && isnan(found.loss_sum));
    ls_capture_free_local(&found);
    assert_int_equal(ls_capture_read_local(file, &model, LS_FLOAT64, &found, &end), LS_OK);
    assert_true(end);
    fclose(file);
}

static void reduced_side_comes_back(void **state) {
    (void)state;
    double before[] = {1, 2, 3, 4, 5}, grads[] = {1, -0.0, 1e-300, 3, NAN}, after[] = {5, 4, 3, 2, 1};
    double buffers[] = {0.5, 0.25}, moments[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    int64_t tracked[] = {13};
    ls_bucket plan[] = {{0, 3, 0, 1}, {3, 2, 2, 2}};
    ls_collective collectives[] = {{LS_COLLECTIVE_BROADCAST, 8, 1, 2, 5},
                                   {LS_COLLECTIVE_ALLREDUCE, 8, 1, 0, 3},
                                   {LS_COLLECTIVE_ALLREDUCE, 8, 1, 0, 2}};
    ls_capture_reduced found;
    ls_capture_reduced reduced = {.step = 12,
                                  .params_before = before,
                                  .grads = grads,
                                  .params_after = after,
                                  .buffers = buffers,
                                  .tracked = tracked,
                                  .loss = 2.25,
                                  .state = moments,
                                  .state_count = 2,
                                  .plan = plan,
                                  .plan_count = 2,
                                  .collectives = collectives,
                                  .collective_count = 3};
    bool end = true;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ls_capture_write_reduced(file, &model, LS_FLOAT64, &reduced), LS_OK);
    rewind(file);
    assert_int_equal(ls_capture_read_reduced(file, &model, LS_FLOAT64, &found, &end), LS_OK);
    assert_false(end);
    assert_true(found.step == 12 && found.loss == 2.25);
    assert_true(found.state_count == 2 && found.plan_count == 2 && found.collective_count == 3);
    assert_memory_equal(found.params_before, before, sizeof before);
    assert_memory_equal(found.grads, grads, sizeof grads);
    assert_memory_equal(found.params_after, after, sizeof after);
    assert_memory_equal(found.buffers, buffers, sizeof buffers);
    assert_memory_equal(found.tracked, tracked, sizeof tracked);
    assert_memory_equal(found.state, moments, sizeof moments);
    assert_memory_equal(found.plan, plan, sizeof plan);
    assert_memory_equal(found.collectives, collectives, sizeof collectives);
    ls_capture_free_reduced(&found);
    assert_int_equal(ls_capture_read_reduced(file, &model, LS_FLOAT64, &found, &end), LS_OK);
    assert_true(end);
    fclose(file);
}

/* A file with one local record, cut to `size` bytes. */
static FILE *cut_file(long size) {
    size_t indices[] = {7, 8};
    float grads[] = {1, 2, 3, 4, 5};
    uint8_t decisions[] = {1, 0, 1, 3, 2, 1};
    float inputs[] = {1, 2, 3, 4};
    int32_t labels[] = {0, 1};
    ls_capture_local local = {.step = 1,
                              .count = 2,
                              .indices = indices,
                              .grads = grads,
                              .decisions = decisions,
                              .loss_sum = 4.5,
                              .inputs = inputs,
                              .labels = labels};
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
    refuse(cut_file(10), &model, LS_FLOAT32, "ends inside a record");  /* in the header */
    refuse(cut_file(100), &model, LS_FLOAT32, "ends inside a record"); /* in the indices */
    refuse(cut_file(-1), &model, LS_FLOAT32, "ends inside a record");  /* in the labels */
    refuse(cut_file(120), &model, LS_FLOAT64, "another model, type or kind");
    refuse(cut_file(120), &other, LS_FLOAT32, "another model, type or kind");
}

static void one_kind_is_not_the_other(void **state) {
    (void)state;
    ls_capture_reduced reduced;
    stderr_capture errors;
    bool end;
    FILE *file = cut_file(120);
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = ls_capture_read_reduced(file, &model, LS_FLOAT32, &reduced, &end);
    stderr_capture_end(&errors);
    assert_int_equal(rc, LS_DEVICE_FAILED);
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_side_comes_back),
        cmocka_unit_test(reduced_side_comes_back),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(one_kind_is_not_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
