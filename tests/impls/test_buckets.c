/* How gradients are cut into buckets and batches into chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "impls/buckets.h"
#include "impls/chunk.h"
#include "impls/run.h"

static void resolve(const char *name, ls_model *model) {
    char error[256] = "";
    const ls_model_spec *spec = ls_zoo_find(name);
    assert_non_null(spec);
    assert_int_equal(ls_model_resolve(spec, model, error, sizeof error), 0);
}

/* Every plan: the buckets follow each other without gaps, cover all tensors, and each but the last has reached the cap. */
static void check_plan(const ls_model *model, ls_dtype dtype, size_t cap, const ls_bucket_plan *plan) {
    size_t offset = 0;
    size_t position = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const ls_bucket *bucket = &plan->buckets[i];
        size_t count = 0;
        assert_int_equal(bucket->offset, offset);
        assert_int_equal(bucket->first, position);
        for (size_t k = bucket->first; k <= bucket->last; k++) {
            count += model->params[model->ready[k]].count;
        }
        assert_int_equal(bucket->count, count);
        if (i + 1 < plan->count) {
            assert_true(count * ls_dtype_size(dtype) >= cap);
        }
        /* Without its last tensor it had not. */
        size_t last = model->params[model->ready[bucket->last]].count;
        assert_true((count - last) * ls_dtype_size(dtype) < cap || bucket->first == bucket->last);
        offset += count;
        position = bucket->last + 1;
    }
    assert_int_equal(offset, model->param_count);
    assert_int_equal(position, model->param_tensors);
}

static void expect(const char *name, ls_dtype dtype, size_t cap, size_t count, const size_t (*buckets)[2]) {
    ls_model model;
    ls_bucket_plan plan;
    resolve(name, &model);
    ls_bucket_plan_make(&model, dtype, cap, &plan);
    check_plan(&model, dtype, cap, &plan);
    assert_int_equal(plan.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(plan.buckets[i].count * ls_dtype_size(dtype), buckets[i][0]);
        assert_int_equal(plan.buckets[i].last - plan.buckets[i].first + 1, buckets[i][1]);
    }
}

/* Sizes by hand from the model: fc2 500+10, fc1 16000+50, conv2 5000+20, conv1 250+10 values, ready in the order
 * fc2.bias, fc2.weight, fc1.bias, fc1.weight, conv2.weight, conv2.bias, conv1.weight, conv1.bias. */
static void test_seed_cnn(void **state) {
    (void)state;
    static const size_t small[][2] = {{66240, 4}, {20000, 1}, {1120, 3}};
    static const size_t wide_4k[][2] = {{4480, 3}, {128000, 1}, {40000, 1}, {2240, 3}};
    static const size_t wide_16k[][2] = {{132480, 4}, {40000, 1}, {2240, 3}};
    static const size_t whole[][2] = {{87360, 8}};
    expect("seed-cnn", LS_FLOAT32, 4096, 3, small);
    expect("seed-cnn", LS_FLOAT32, 16384, 3, small);
    expect("seed-cnn", LS_FLOAT32, LS_BUCKET_BYTES_DEFAULT, 1, whole);
    expect("seed-cnn", LS_FLOAT64, 4096, 4, wide_4k);
    expect("seed-cnn", LS_FLOAT64, 16384, 3, wide_16k);
}

static void test_edges(void **state) {
    (void)state;
    /* A cap of one byte: a bucket a tensor. A bucket closes when the cap is reached exactly, not one tensor later. */
    static const size_t single[][2] = {{40, 1},    {2000, 1}, {200, 1},  {64000, 1},
                                       {20000, 1}, {80, 1},   {1000, 1}, {40, 1}};
    static const size_t exact[][2] = {{2040, 2}, {64200, 2}, {20000, 1}, {1120, 3}};
    static const size_t above[][2] = {{2240, 3}, {64000, 1}, {20000, 1}, {1120, 3}};
    expect("seed-cnn", LS_FLOAT32, 1, 8, single);
    expect("seed-cnn", LS_FLOAT32, 2040, 4, exact);
    expect("seed-cnn", LS_FLOAT32, 2041, 4, above);
}

static void test_all_caps(void **state) {
    (void)state;
    for (const ls_model_spec *const *spec = ls_zoo; *spec != NULL; spec++) {
        ls_model model;
        ls_bucket_plan plan;
        resolve((*spec)->name, &model);
        for (size_t cap = 1; cap < 200000; cap += 1 + cap / 16) {
            ls_bucket_plan_make(&model, LS_FLOAT32, cap, &plan);
            check_plan(&model, LS_FLOAT32, cap, &plan);
        }
    }
}

/* What torch.chunk gave for these. */
static void test_chunks(void **state) {
    (void)state;
    static const struct {
        size_t count, parts, sizes[8];
    } cases[] = {
        {10, 4, {3, 3, 3, 1}}, {5, 4, {2, 2, 1, 0}}, {9, 4, {3, 3, 3, 0}}, {130, 8, {17, 17, 17, 17, 17, 17, 17, 11}},
        {3, 8, {1, 1, 1}},     {64, 1, {64}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        size_t next = 0;
        for (size_t i = 0; i < cases[c].parts; i++) {
            size_t first = SIZE_MAX;
            size_t size = ls_chunk(cases[c].count, cases[c].parts, i, &first);
            assert_int_equal(size, cases[c].sizes[i]);
            assert_int_equal(first, next);
            next += size;
        }
        assert_int_equal(next, cases[c].count);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seed_cnn),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_all_caps),
        cmocka_unit_test(test_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
