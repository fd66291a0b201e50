/* PyTorch's generator, its randperm and DistributedSampler's order, against values that PyTorch 1.13 gave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "reference/rng.h"
#include "reference/sampler.h"

/* First and 10,000th output of mt19937ar.c for seed 5489; the latter is in the C++ standard (rand.predef). */
static void test_mt19937_is_the_reference(void **state) {
    (void)state;
    ls_mt19937 rng;
    ls_mt19937_seed(&rng, 5489);
    assert_int_equal(ls_mt19937_next(&rng), 3499211612U);
    uint32_t value = 0;
    for (int i = 1; i < 10000; i++) {
        value = ls_mt19937_next(&rng);
    }
    assert_int_equal(value, 4123659995U);
}

static void test_seed_uses_32_bits(void **state) {
    (void)state;
    ls_mt19937 low;
    ls_mt19937 high;
    ls_mt19937_seed(&low, 7);
    ls_mt19937_seed(&high, UINT64_C(0x500000007));
    assert_int_equal(ls_mt19937_next(&low), ls_mt19937_next(&high));
}

static void check_randperm(uint64_t seed, size_t count, const size_t *expected, size_t known) {
    size_t *out = calloc(count, sizeof *out);
    assert_non_null(out);
    ls_randperm(seed, count, out);
    for (size_t i = 0; i < known; i++) {
        assert_int_equal(out[i], expected[i]);
    }
    size_t *seen = calloc(count, sizeof *seen);
    assert_non_null(seen);
    for (size_t i = 0; i < count; i++) {
        assert_true(out[i] < count);
        assert_int_equal(seen[out[i]]++, 0);
    }
    free(seen);
    free(out);
}

static void test_randperm_equals_torch(void **state) {
    (void)state;
    const size_t ten[] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};
    const size_t many[] = {36044, 10678, 57327, 55074, 21567, 15479, 9481, 43095, 26145, 7479};
    const size_t seven[] = {21615, 50166, 37383, 3791, 38823};
    check_randperm(0, 10, ten, 10);
    check_randperm(0, 60000, many, 10);
    check_randperm(7, 60000, seven, 5);
    check_randperm(3, 1, (const size_t[]){0}, 1);
    ls_randperm(3, 0, NULL);
}

typedef struct sampler_case {
    size_t count, world;
    bool drop_last, shuffle;
    size_t epoch, length;
    size_t ranks[8][4];
} sampler_case;

static const sampler_case sampler_cases[] = {
    {10, 3, false, false, 0, 4, {{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}}},
    {10, 3, true, false, 0, 3, {{0, 3, 6}, {1, 4, 7}, {2, 5, 8}}},
    {10, 3, false, true, 0, 4, {{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}},
    {10, 3, false, true, 1, 4, {{5, 2, 9, 4}, {6, 0, 3, 5}, {1, 8, 7, 6}}},
    {11, 4, false, false, 0, 3, {{0, 4, 8}, {1, 5, 9}, {2, 6, 10}, {3, 7, 0}}},
    {3, 8, false, false, 0, 1, {{0}, {1}, {2}, {0}, {1}, {2}, {0}, {1}}},
    {3, 8, true, false, 0, 0, {{0}}},
    {0, 4, false, false, 0, 0, {{0}}},
    {0, 4, false, true, 0, 0, {{0}}},
    {1, 4, false, false, 0, 1, {{0}, {0}, {0}, {0}}},
};

static void test_sampler_equals_torch(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof sampler_cases / sizeof sampler_cases[0]; c++) {
        const sampler_case *row = &sampler_cases[c];
        for (size_t rank = 0; rank < row->world; rank++) {
            ls_sampler sampler = {.count = row->count,
                                  .world = row->world,
                                  .rank = rank,
                                  .shuffle = row->shuffle,
                                  .drop_last = row->drop_last};
            assert_int_equal(ls_sampler_length(&sampler), row->length);
            size_t order[5] = {99, 99, 99, 99, 99};
            assert_int_equal(ls_sampler_order(&sampler, row->epoch, order), 0);
            for (size_t i = 0; i < row->length; i++) {
                assert_int_equal(order[i], row->ranks[rank][i]);
            }
            assert_int_equal(order[row->length], 99);
        }
    }
}

/* DistributedSampler adds seed and epoch. */
static void test_seed_and_epoch_add(void **state) {
    (void)state;
    ls_sampler zero = {.count = 10, .world = 3, .rank = 1, .shuffle = true, .seed = 0};
    ls_sampler one = {.count = 10, .world = 3, .rank = 1, .shuffle = true, .seed = 1};
    size_t a[4];
    size_t b[4];
    assert_int_equal(ls_sampler_order(&zero, 1, a), 0);
    assert_int_equal(ls_sampler_order(&one, 0, b), 0);
    assert_memory_equal(a, b, sizeof a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mt19937_is_the_reference), cmocka_unit_test(test_seed_uses_32_bits),
        cmocka_unit_test(test_randperm_equals_torch),    cmocka_unit_test(test_sampler_equals_torch),
        cmocka_unit_test(test_seed_and_epoch_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
