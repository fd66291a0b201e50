/* The ranges of a step of mpi, in a world of one process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* As in test_mpi.c. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0";
}

#include "gpu/vgpu/ranges.h"
#include "tests/impls/range_trace.h"
#include "tests/impls/training.h"

enum { BATCH = 8 };

static void test_step(void **state) {
    (void)state;
    const ls_impl *impl = ls_impl_find("mpi");
    ls_rank rank = {.world = 1, .timeout = 60.0};
    ls_run run;
    ls_model model;
    ls_dataset data;
    trace t;
    char expected[TRACE_TEXT];
    void *self = NULL;
    training_resolve(TRAINING_SMALL, &model);
    training_run(&run, "mpi", 1, LS_FLOAT32);
    run.bucket_bytes = 2048; /* more than one bucket */
    size_t used = (size_t)snprintf(expected, sizeof expected, "step 0(input()scale()forward()loss()backward(%s)",
                                   trace_buckets(&run, &model, "bucket", "", ""));
    (void)snprintf(expected + used, sizeof expected - used, "%supdate())wait()",
                   trace_buckets(&run, &model, "reduce", "wait()", "wait()"));
    assert_int_equal(ls_dataset_open("synthetic:64", LS_SPLIT_TRAIN, &data), LS_OK);
    assert_int_equal(impl->open(&run, &rank, &model, BATCH, &self), LS_OK);
    vgpu_ranges_listen(trace_listen);
    trace_begin(&t);
    ls_batch batch = {.count = BATCH, .pixels = data.pixels, .labels = data.labels};
    assert_int_equal(impl->step(self, &batch, BATCH), LS_OK);
    assert_int_equal(impl->synchronize(self), LS_OK);
    trace_check(&t);
    vgpu_ranges_listen(NULL);
    assert_string_equal(t.text, expected);
    impl->close(self);
    ls_dataset_close(&data);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
