/* What DistributedDataParallel says of communication under backward: steps in which a reduction started before backward ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "impls/buckets.h"
#include "tests/impls/training.h"

enum { STEPS = 10 };

static ls_model model;
static ls_dataset data;

static void train(training *ranks, size_t bucket_bytes) {
    static const size_t counts[] = {32, 32};
    ls_run run;
    training_run(&run, "ddp", 2, LS_FLOAT32);
    run.bucket_bytes = bucket_bytes;
    assert_int_equal(training_threads(ranks, &run, &model, &data, counts, STEPS), LS_OK);
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].counters.overlap_measured, STEPS);
    }
}

/* With small buckets the first reduction is handed over while backward still has the convolutions to do. These start late (see
 * open_data), so that the reduction has 40 ms in which its thread need only be scheduled once in 10 steps. */
static void test_small_buckets(void **state) {
    (void)state;
    training ranks[2];
    train(ranks, 16384);
    for (size_t r = 0; r < 2; r++) {
        assert_true(ranks[r].counters.overlap_steps > 0);
    }
    training_free(ranks, 2);
}

/* The only bucket is complete when backward ends: it cannot overlap, and is not said to. */
static void test_one_bucket(void **state) {
    (void)state;
    training ranks[2];
    train(ranks, LS_BUCKET_BYTES_DEFAULT);
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].counters.overlap_steps, 0);
        assert_true(ranks[r].counters.overlap_lead <= 0.0);
    }
    training_free(ranks, 2);
}

static int open_data(void **state) {
    (void)state;
    /* Two convolutions; a real GPU has no need of it. */
    if (setenv("LOCKSTEP_VGPU_DELAY", "name:conv backward params=20ms", 1) != 0) {
        return -1;
    }
    training_resolve("seed-cnn", &model);
    return ls_dataset_open("synthetic:1200", LS_SPLIT_TRAIN, &data) == LS_OK ? 0 : -1;
}

static int close_data(void **state) {
    (void)state;
    ls_dataset_close(&data);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_buckets),
        cmocka_unit_test(test_one_bucket),
    };
    return cmocka_run_group_tests(tests, open_data, close_data);
}
