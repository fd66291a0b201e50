/* DistributedDataParallel with ranks as threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>

#include "impls/buckets.h"
#include "tests/impls/training.h"

enum { STEPS = 3 };

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

/* The reduced gradient is the mean over ranks of the very gradients that went in. Each is multiplied by 1/W rounded (two
 * roundings), then W-1 additions: |error| <= (W+1)*u*mean|g| (Higham 1993), plus W times the least denormal where the
 * product underflows. Summed here in long double, whose own rounding is 2^-64. */
static void check_mean(const training *ranks, size_t world, size_t step, ls_dtype dtype) {
    double u = dtype == LS_FLOAT64 ? 0.5 * DBL_EPSILON : 0.5 * (double)FLT_EPSILON;
    double tiny = dtype == LS_FLOAT64 ? DBL_TRUE_MIN : (double)FLT_TRUE_MIN;
    for (size_t i = 0; i < model.param_count; i++) {
        long double mean = 0, magnitude = 0;
        for (size_t r = 0; r < world; r++) {
            mean += ranks[r].local[step][i];
            magnitude += fabsl((long double)ranks[r].local[step][i]);
        }
        mean /= (long double)world;
        magnitude /= (long double)world;
        long double error = fabsl(ranks[0].grads[step][i] - mean);
        assert_true(error <= (long double)(world + 1) * u * magnitude + (long double)world * tiny);
    }
}

static void check_same_bits(const training *a, const training *b) {
    for (size_t s = 0; s < STEPS; s++) {
        assert_memory_equal(a->grads[s], b->grads[s], model.param_count * sizeof *a->grads[s]);
    }
    assert_memory_equal(a->params, b->params, model.param_count * sizeof *a->params);
}

static void train(training *ranks, size_t world, ls_dtype dtype, size_t cap, const size_t *counts) {
    ls_run run;
    training_run(&run, "ddp", world, dtype);
    run.bucket_bytes = cap;
    run.capture = true;
    assert_int_equal(training_threads(ranks, &run, &model, &data, counts, STEPS), LS_OK);
}

/* Everything that must hold of one run, and that its ranks equal those of a run with another cap. */
static void check_run(const training *ranks, size_t world, ls_dtype dtype, size_t cap, const training *other) {
    ls_bucket_plan plan;
    ls_bucket_plan_make(&model, dtype, cap, &plan);
    for (size_t r = 0; r < world; r++) {
        const ls_counters *counters = &ranks[r].counters;
        check_same_bits(&ranks[r], &ranks[0]);
        check_same_bits(&ranks[r], other);
        assert_int_equal(counters->buckets, plan.count);
        assert_int_equal(counters->allreduces, plan.count * STEPS); /* the sum of the control path not among them */
        assert_int_equal(counters->allreduce_bytes, STEPS * model.param_count * ls_dtype_size(dtype));
        assert_int_equal(counters->broadcasts, 1);
        assert_int_equal(counters->broadcast_bytes, model.param_count * ls_dtype_size(dtype));
        assert_true(ranks[r].sum == (double)(world * (world + 1) / 2));
    }
    for (size_t s = 0; s < STEPS; s++) {
        check_mean(ranks, world, s, dtype);
    }
}

static void test_worlds_and_caps(void **state) {
    (void)state;
    static const size_t caps[] = {LS_BUCKET_BYTES_DEFAULT, 2048, 512, 1};
    static const size_t worlds[] = {1, 2, 3, 4};
    static const size_t counts[] = {16, 16, 16, 16};
    for (size_t w = 0; w < 4; w++) {
        for (int dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
            training first[TRAINING_MAX_WORLD];
            train(first, worlds[w], (ls_dtype)dtype, caps[0], counts);
            check_run(first, worlds[w], (ls_dtype)dtype, caps[0], &first[0]);
            for (size_t c = 1; c < (dtype == LS_FLOAT32 ? 4 : 2); c++) {
                training ranks[TRAINING_MAX_WORLD];
                train(ranks, worlds[w], (ls_dtype)dtype, caps[c], counts);
                check_run(ranks, worlds[w], (ls_dtype)dtype, caps[c], &first[0]);
                training_free(ranks, worlds[w]);
            }
            training_free(first, worlds[w]);
        }
    }
}

/* With equal shards the mean over ranks is the gradient of the global batch. The bound is that of test_dp.c. */
static void test_against_single(void **state) {
    (void)state;
    static const size_t counts[] = {16, 16, 16, 16};
    training ranks[4], single;
    ls_run run;
    training_run(&run, "single", 1, LS_FLOAT64);
    assert_int_equal(training_alone(&single, &run, &model, &data, 64, STEPS), LS_OK);
    train(ranks, 4, LS_FLOAT64, 2048, counts);
    for (size_t s = 0; s < STEPS; s++) {
        double loss = 0;
        for (size_t r = 0; r < 4; r++) {
            loss += ranks[r].losses[s] / 4;
        }
        assert_true(training_distance(&model, ranks[0].grads[s], single.grads[s]) <= 1e-12);
        assert_true(fabs(loss - single.losses[s]) <= 1e-12 * single.losses[s]);
    }
    assert_true(training_distance(&model, ranks[0].params, single.params) <= 1e-12);
    training_free(ranks, 4);
    training_free(&single, 1);
}

/* Shards of different sizes, one of them empty: still the mean over W ranks; the empty one contributes zeros. */
static void test_unequal_shards(void **state) {
    (void)state;
    static const size_t counts[] = {17, 0, 5};
    training ranks[3];
    train(ranks, 3, LS_FLOAT32, 2048, counts);
    check_run(ranks, 3, LS_FLOAT32, 2048, &ranks[0]);
    assert_true(ranks[1].losses[0] == 0.0);
    for (size_t i = 0; i < model.param_count; i++) {
        assert_true(ranks[1].local[STEPS - 1][i] == 0.0);
    }
    training_free(ranks, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worlds_and_caps),
        cmocka_unit_test(test_against_single),
        cmocka_unit_test(test_unequal_shards),
    };
    return cmocka_run_group_tests(tests, open_data, close_data);
}
