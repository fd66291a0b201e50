/* DataParallel against the single-device trainer on the same global batches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/impls/training.h"

/* Both compute the same sums in double (u = 2^-53) in another order. The longest sum of a gradient has n = batch * 24 * 24
 * terms (conv1); summed in any order its rounding error is about sqrt(n)*u*sum|x| (Higham 1993), 50*576 terms: 2e-14. 1e-12
 * leaves a factor of 50 for cancellation, sum|x| against |sum x|; a fault of the scatter or the sum starts at 1e-6. */
static const double bound = 1e-12;

static ls_model model;
static ls_dataset data;

static int open_data(void **state) {
    (void)state;
    training_resolve(TRAINING_SMALL, &model);
    return ls_dataset_open("synthetic:1200", LS_SPLIT_TRAIN, &data) == LS_OK ? 0 : -1;
}

static int close_data(void **state) {
    (void)state;
    ls_dataset_close(&data);
    return 0;
}

static void compare(size_t devices, size_t global, size_t used) {
    enum { STEPS = 3 };
    ls_run run;
    training single, dp;
    training_run(&run, "single", 1, LS_FLOAT64);
    assert_int_equal(training_alone(&single, &run, &model, &data, global, STEPS), LS_OK);
    training_run(&run, "dp", devices, LS_FLOAT64);
    assert_int_equal(training_alone(&dp, &run, &model, &data, global, STEPS), LS_OK);
    for (size_t s = 0; s < STEPS; s++) {
        assert_true(training_distance(&model, dp.grads[s], single.grads[s]) <= bound);
        assert_true(fabs(dp.losses[s] - single.losses[s]) <= bound * single.losses[s]);
    }
    assert_true(training_distance(&model, dp.params, single.params) <= bound);
    assert_true(dp.sum == 1.0);
    /* Parameters, outputs, output gradients and gradients of every device but the first. */
    size_t first = (global + devices - 1) / devices;
    size_t others = global > first ? global - first : 0;
    assert_int_equal(dp.counters.peer_copies, STEPS * 4 * (used - 1));
    assert_int_equal(dp.counters.peer_copy_bytes,
                     STEPS * sizeof(double) * (2 * (used - 1) * model.param_count + 2 * others * model.classes));
    assert_int_equal(dp.counters.allreduces, 0);
    training_free(&single, 1);
    training_free(&dp, 1);
}

static void test_even(void **state) {
    (void)state;
    compare(1, 32, 1);
    compare(2, 32, 2);
    compare(4, 32, 4);
    compare(8, 32, 8);
}

static void test_uneven(void **state) {
    (void)state;
    compare(4, 10, 4); /* 3, 3, 3, 1 */
    compare(2, 33, 2); /* 17, 16: across the lanes of a block */
    compare(8, 50, 8); /* 7 times 7, 1 */
}

static void test_fewer_chunks_than_devices(void **state) {
    (void)state;
    compare(4, 5, 3); /* 2, 2, 1 */
    compare(4, 9, 3); /* 3, 3, 3 */
    compare(8, 3, 3);
    compare(2, 1, 1);
}

/* A large batch, then a small one that leaves devices without work, then a large one again: nothing stale is summed. The
 * first device's captured gradient is its own part, not the sum. */
static void test_changing_batches(void **state) {
    (void)state;
    enum { DEVICES = 4, LARGE = 32 };
    static const size_t counts[] = {LARGE, 5, LARGE, 1, LARGE};
    const ls_impl *impls[2] = {ls_impl_find("single"), ls_impl_find("dp")};
    size_t features = ls_shape_features(model.input);
    double *grads[2], *captured = malloc(model.param_count * sizeof *captured);
    void *selves[2];
    ls_rank rank = {.world = 1, .timeout = 60.0};
    for (size_t i = 0; i < 2; i++) {
        ls_run run;
        training_run(&run, impls[i]->name, i == 0 ? 1 : DEVICES, LS_FLOAT64);
        run.capture = true;
        grads[i] = malloc(model.param_count * sizeof *grads[i]);
        assert_non_null(grads[i]);
        assert_int_equal(impls[i]->open(&run, &rank, &model, LARGE, &selves[i]), LS_OK);
    }
    size_t first = 0;
    for (size_t s = 0; s < sizeof counts / sizeof counts[0]; s++) {
        ls_batch batch = {.count = counts[s], .pixels = data.pixels + first * features, .labels = data.labels + first};
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(impls[i]->step(selves[i], &batch, batch.count), LS_OK);
            assert_int_equal(impls[i]->synchronize(selves[i]), LS_OK);
            assert_int_equal(impls[i]->gradients(selves[i], grads[i]), LS_OK);
        }
        assert_true(training_distance(&model, grads[1], grads[0]) <= bound);
        size_t replicas = 0;
        ls_replica *own = impls[1]->replica(selves[1], 0, &replicas);
        assert_int_equal(replicas, DEVICES);
        assert_int_equal(ls_replica_read_captured_grads(own, captured), LS_OK);
        bool whole = memcmp(captured, grads[1], model.param_count * sizeof *captured) == 0;
        assert_int_equal(whole, counts[s] == 1);
        first += counts[s];
    }
    for (size_t i = 0; i < 2; i++) {
        impls[i]->close(selves[i]);
        free(grads[i]);
    }
    free(captured);
}

/* In float32 the same run gives the same bits again: nothing depends on timing. */
static void test_repeatable(void **state) {
    (void)state;
    training runs[2];
    for (size_t i = 0; i < 2; i++) {
        ls_run run;
        training_run(&run, "dp", 4, LS_FLOAT32);
        assert_int_equal(training_alone(&runs[i], &run, &model, &data, 16, 4), LS_OK);
    }
    assert_memory_equal(runs[0].params, runs[1].params, model.param_count * sizeof *runs[0].params);
    training_free(runs, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even),
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_fewer_chunks_than_devices),
        cmocka_unit_test(test_changing_batches),
        cmocka_unit_test(test_repeatable),
    };
    return cmocka_run_group_tests(tests, open_data, close_data);
}
