/* What `lockstep micro` counts as wrong, held against sums that are done here with the types' own arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/micro/collective.h"

enum { WHOLE = 24, WORLD_MAX = 4 };

static const ls_micro_collective *collective(const char *name) {
    size_t i = ls_micro_collective_find(name);
    assert_true(i != SIZE_MAX);
    return &ls_micro_collectives[i];
}

static const ls_micro_type *type(const char *name) {
    size_t i = ls_micro_type_find(name);
    assert_true(i != SIZE_MAX);
    return &ls_micro_types[i];
}

static const ls_micro_redop *redop(const char *name) {
    size_t i = ls_micro_redop_find(name);
    assert_true(i != SIZE_MAX);
    return &ls_micro_redops[i];
}

#define COMBINE(T)                                                                                                   \
    do {                                                                                                             \
        T a, b;                                                                                                      \
        memcpy(&a, to, sizeof a);                                                                                    \
        memcpy(&b, from, sizeof b);                                                                                  \
        a = (T)(op == ncclProd ? a * b : op == ncclMax ? (b > a ? b : a) : op == ncclMin ? (b < a ? b : a) : a + b); \
        memcpy(to, &a, sizeof a);                                                                                    \
    } while (0)

/* to = to op from, in the arithmetic of C's own types. */
static void combine(const ls_micro_type *t, ncclRedOp_t op, void *to, const void *from) {
    switch (t->nccl) {
    case ncclFloat32:
        COMBINE(float);
        break;
    case ncclFloat64:
        COMBINE(double);
        break;
    case ncclInt8:
        COMBINE(int8_t);
        break;
    case ncclInt32:
        COMBINE(int32_t);
        break;
    default:
        COMBINE(int64_t);
        break;
    }
}

typedef struct ranks {
    char values[WORLD_MAX][WHOLE * 8];
} ranks;

static void fill(const ls_micro_collective *c, const ls_micro_type *t, const ls_micro_redop *o, size_t world,
                 ranks *out) {
    for (size_t r = 0; r < world; r++) {
        ls_micro_fill(c, t, o, world, r, WHOLE, out->values[r]);
    }
}

/* The reduction over all ranks but `left_out`. */
static void reduce(const ls_micro_type *t, const ls_micro_redop *o, size_t world, size_t left_out, const ranks *in,
                   char *out) {
    memcpy(out, in->values[left_out == 0 ? 1 : 0], WHOLE * t->size);
    for (size_t r = left_out == 0 ? 2 : 1; r < world; r++) {
        for (size_t i = 0; i < WHOLE && r != left_out; i++) {
            combine(t, o->nccl, out + i * t->size, in->values[r] + i * t->size);
        }
    }
}

static void right_reductions_have_none_wrong(void **state) {
    (void)state;
    static const char *const types[] = {"float", "double", "int8", "int32", "int64"};
    static const char *const redops[] = {"sum", "prod", "max", "min"};
    for (size_t t = 0; t < 5; t++) {
        for (size_t o = 0; o < 4; o++) {
            for (size_t world = 2; world <= WORLD_MAX; world++) {
                ranks in;
                char sum[WHOLE * 8];
                const ls_micro_type *ty = type(types[t]);
                const ls_micro_redop *op = redop(redops[o]);
                size_t part = WHOLE / world;
                fill(collective("allreduce"), ty, op, world, &in);
                reduce(ty, op, world, SIZE_MAX, &in, sum);
                for (size_t r = 0; r < world; r++) {
                    assert_int_equal(
                        ls_micro_count_wrong(collective("allreduce"), ty, op, world, r, 0, WHOLE, WHOLE, sum), 0);
                    assert_int_equal(ls_micro_count_wrong(collective("reduce-scatter"), ty, op, world, r, 0, WHOLE,
                                                          part, sum + r * part * ty->size),
                                     0);
                }
            }
        }
    }
}

/* One value planted, by the last bit. */
static void a_planted_value_is_counted(void **state) {
    (void)state;
    ranks in;
    char sum[WHOLE * 8];
    fill(collective("allreduce"), type("float"), redop("sum"), 2, &in);
    reduce(type("float"), redop("sum"), 2, SIZE_MAX, &in, sum);
    sum[17 * 4] ^= 1;
    assert_int_equal(
        ls_micro_count_wrong(collective("allreduce"), type("float"), redop("sum"), 2, 1, 0, WHOLE, WHOLE, sum), 1);
    sum[3 * 4 + 3] ^= 0x40;
    assert_int_equal(
        ls_micro_count_wrong(collective("allreduce"), type("float"), redop("sum"), 2, 1, 0, WHOLE, WHOLE, sum), 2);
}

/* Every value is positive, so a sum without one rank differs everywhere; a stale buffer of another place mostly. */
static void a_lost_rank_is_counted(void **state) {
    (void)state;
    ranks in;
    char sum[WHOLE * 8];
    fill(collective("allreduce"), type("float"), redop("sum"), 3, &in);
    for (size_t lost = 0; lost < 3; lost++) {
        reduce(type("float"), redop("sum"), 3, lost, &in, sum);
        assert_int_equal(
            ls_micro_count_wrong(collective("allreduce"), type("float"), redop("sum"), 3, 0, 0, WHOLE, WHOLE, sum),
            WHOLE);
    }
}

static void parts_have_their_places(void **state) {
    (void)state;
    enum { PART = WHOLE / 3 };
    ranks in;
    char all[WHOLE * 4], swapped[WHOLE * 4];
    const ls_micro_type *t = type("float");
    fill(collective("all-gather"), t, redop("sum"), 3, &in);
    for (size_t r = 0; r < 3; r++) {
        memcpy(all + r * PART * 4, in.values[r], PART * 4);
        memcpy(swapped + (2 - r) * PART * 4, in.values[r], PART * 4);
    }
    assert_int_equal(ls_micro_count_wrong(collective("all-gather"), t, redop("sum"), 3, 1, 0, WHOLE, WHOLE, all), 0);
    assert_true(ls_micro_count_wrong(collective("all-gather"), t, redop("sum"), 3, 1, 0, WHOLE, WHOLE, swapped) >
                PART / 2);
    assert_int_equal(
        ls_micro_count_wrong(collective("broadcast"), t, redop("sum"), 3, 0, 2, WHOLE, WHOLE, in.values[2]), 0);
    assert_true(ls_micro_count_wrong(collective("broadcast"), t, redop("sum"), 3, 0, 2, WHOLE, WHOLE, in.values[1]) >
                PART);
    /* only the root of a reduce has a result */
    assert_int_equal(ls_micro_count_wrong(collective("reduce"), t, redop("sum"), 3, 0, 2, WHOLE, WHOLE, in.values[1]),
                     0);
    assert_true(ls_micro_count_wrong(collective("reduce"), t, redop("sum"), 3, 2, 2, WHOLE, WHOLE, in.values[1]) >
                PART);
}

/* 0.5, 1, 1.5, 4 in IEEE binary16 and in bfloat16, as the mean of two ranks' values has them. */
static void narrow_floats_are_exact(void **state) {
    (void)state;
    uint16_t values[WHOLE];
    float wide[WHOLE];
    ls_micro_fill(collective("allreduce"), type("float"), redop("sum"), 2, 0, WHOLE, wide);
    ls_micro_fill(collective("allreduce"), type("half"), redop("sum"), 2, 0, WHOLE, values);
    for (size_t i = 0; i < WHOLE; i++) {
        static const uint16_t halves[] = {0x3c00, 0x4000, 0x4200, 0x4400};
        assert_true(wide[i] >= 1 && wide[i] <= 4);
        assert_int_equal(values[i], halves[(size_t)wide[i] - 1]);
    }
    ls_micro_fill(collective("allreduce"), type("bfloat16"), redop("sum"), 2, 0, WHOLE, values);
    for (size_t i = 0; i < WHOLE; i++) {
        static const uint16_t brains[] = {0x3f80, 0x4000, 0x4040, 0x4080};
        assert_int_equal(values[i], brains[(size_t)wide[i] - 1]);
    }
}

/* nccl-tests, doc/PERFORMANCE.md. */
static void bus_bandwidth_has_its_factors(void **state) {
    (void)state;
    assert_float_equal(ls_micro_bus_factor(collective("allreduce"), 2), 1, 0);
    assert_float_equal(ls_micro_bus_factor(collective("allreduce"), 4), 1.5, 0);
    assert_float_equal(ls_micro_bus_factor(collective("reduce-scatter"), 4), 0.75, 0);
    assert_float_equal(ls_micro_bus_factor(collective("all-gather"), 2), 0.5, 0);
    assert_float_equal(ls_micro_bus_factor(collective("broadcast"), 4), 1, 0);
    assert_int_equal(ls_micro_elements(collective("allreduce"), 30, 4, 2), 7);
    assert_int_equal(ls_micro_elements(collective("all-gather"), 30, 4, 2), 6);
}

static void what_is_not_exact_is_refused(void **state) {
    (void)state;
    const ls_micro_collective *c = collective("allreduce");
    assert_string_equal(ls_micro_refuse(c, type("float"), redop("avg"), 4, false), "");
    assert_string_not_equal(ls_micro_refuse(c, type("float"), redop("avg"), 3, false), "");
    assert_string_not_equal(ls_micro_refuse(c, type("int32"), redop("avg"), 4, false), "");
    assert_string_not_equal(ls_micro_refuse(c, type("half"), redop("sum"), 2, true), "");
    assert_string_not_equal(ls_micro_refuse(c, type("float"), redop("avg"), 2, true), "");
    assert_string_not_equal(ls_micro_refuse(c, type("float"), redop("sum"), 32, false), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_reductions_have_none_wrong), cmocka_unit_test(a_planted_value_is_counted),
        cmocka_unit_test(a_lost_rank_is_counted),           cmocka_unit_test(parts_have_their_places),
        cmocka_unit_test(narrow_floats_are_exact),          cmocka_unit_test(bus_bandwidth_has_its_factors),
        cmocka_unit_test(what_is_not_exact_is_refused),
    };
    return cmocka_run_group_tests_name("micro collective", tests, NULL, NULL);
}
