#include "tests/gpu/fiber/case.h"

#include <sanitizer/asan_interface.h> /* nothing without AddressSanitizer */
#include <stdio.h>

#include "gpu/vgpu/fiber/fiber.h"

/* Each block size with two grids and orders; the bits must not depend on those. 100 leaves a warp of four. */
typedef struct variation {
    unsigned block, grid, order;
    size_t offset; /* elements */
} variation;

static const variation variations[] = {
    {32, 3, 0, 1},  {32, 0, 5, 0},  {96, 2, 7, 3},  {96, 0, 0, 0},    {100, 2, 0, 1},
    {100, 0, 3, 0}, {256, 1, 9, 1}, {256, 0, 0, 3}, {1024, 0, 11, 1}, {1024, 1, 0, 5},
};
enum { VARIATIONS = sizeof variations / sizeof *variations };

/* Memory before and after an array: NaNs, so that a read from there shows as well. */
enum { GUARD_BYTES = 64, GUARD = 0xFF };

static size_t element_size(const fiber_case *c, const case_array *a) {
    static const size_t sizes[] = {
        [CASE_BYTE] = 1, [CASE_INT32] = 4, [CASE_INT64] = 8, [CASE_FLOAT] = 4, [CASE_DOUBLE] = 8};
    return a->kind == CASE_VALUE ? ls_dtype_size(c->dtype) : sizes[a->kind];
}

static case_kind resolved(const fiber_case *c, const case_array *a) {
    return a->kind != CASE_VALUE ? a->kind : c->dtype == LS_FLOAT64 ? CASE_DOUBLE : CASE_FLOAT;
}

static void put(case_kind kind, void *memory, size_t i, double value) {
    switch (kind) {
    case CASE_BYTE:
        ((uint8_t *)memory)[i] = (uint8_t)value;
        break;
    case CASE_INT32:
        ((int32_t *)memory)[i] = (int32_t)value;
        break;
    case CASE_INT64:
        ((int64_t *)memory)[i] = (int64_t)value;
        break;
    case CASE_FLOAT:
        ((float *)memory)[i] = (float)value;
        break;
    default:
        ((double *)memory)[i] = value;
    }
}

static double get(case_kind kind, const void *memory, size_t i) {
    switch (kind) {
    case CASE_BYTE:
        return ((const uint8_t *)memory)[i];
    case CASE_INT32:
        return ((const int32_t *)memory)[i];
    case CASE_INT64:
        return (double)((const int64_t *)memory)[i];
    case CASE_FLOAT:
        return (double)((const float *)memory)[i];
    default:
        return ((const double *)memory)[i];
    }
}

case_array *fiber_case_add(fiber_case *c, const char *name, case_role role, case_kind kind, size_t count) {
    assert_true(c->arrays < CASE_ARRAYS);
    case_array *a = &c->array[c->arrays++];
    *a = (case_array){name, role, kind, count, host_doubles(count), host_doubles(count), host_doubles(count)};
    return a;
}

void case_fill(case_array *array, uint64_t seed) {
    fill_random(array->given, array->count, seed);
}

/* An array in memory: guards, offset, values. */
typedef struct placed {
    unsigned char *memory, *values;
    size_t bytes; /* of the values */
} placed;

static placed place(const fiber_case *c, const case_array *a, size_t offset, bool device) {
    size_t size = element_size(c, a);
    size_t before = GUARD_BYTES + offset * size;
    placed p = {.bytes = a->count * size};
    size_t all = before + p.bytes + GUARD_BYTES;
    p.memory = device ? device_alloc(all) : host_alloc(all, 1);
    memset(p.memory, GUARD, all); /* the virtual devices' memory is memory of the process */
    p.values = p.memory + before;
    for (size_t i = 0; i < a->count && a->role != CASE_OUT; i++) {
        put(resolved(c, a), p.values, i, a->given[i]);
    }
    return p;
}

static void assert_guard(const fiber_case *c, const case_array *a, const unsigned char *from, const unsigned char *to) {
    for (const unsigned char *at = from; at < to; at++) {
        if (*at != GUARD) {
            fail_msg("%s, %s: array %s was written outside of its %zu elements", c->name, ls_dtype_name(c->dtype),
                     a->name, a->count);
        }
    }
}

static void check_array(const fiber_case *c, const case_array *a, const placed *p, const char *mode) {
    assert_guard(c, a, p->memory, p->values);
    assert_guard(c, a, p->values + p->bytes, p->values + p->bytes + GUARD_BYTES);
    for (size_t i = 0; i < a->count; i++) {
        double got = get(resolved(c, a), p->values, i);
        double expected = a->role == CASE_IN ? a->given[i] : a->expected[i];
        if (!(fabs(got - expected) <= a->bound[i]) && !(isnan(got) && isnan(expected)) && got != expected) {
            fail_msg("%s, %s, %zu lanes, %s: %s[%zu] is %.17g, expected %.17g within %g", c->name,
                     ls_dtype_name(c->dtype), c->lanes, mode, a->name, i, got, expected, a->bound[i]);
        }
    }
}

/* Runs the case with its arrays at new places. */
static void run_placed(const fiber_case *c, const variation *v, placed *at) {
    void *pointers[CASE_ARRAYS] = {NULL};
    ls_fiber_clear();
    for (size_t i = 0; i < c->arrays; i++) {
        const case_array *a = &c->array[i];
        at[i] = place(c, a, v == NULL ? 1 : v->offset, v == NULL);
        pointers[i] = at[i].values;
        if (v != NULL && a->role == CASE_OUT) {
            ls_fiber_output(a->name, at[i].values, element_size(c, a), a->count);
        }
        if (v != NULL) {
            ASAN_POISON_MEMORY_REGION(at[i].memory, (size_t)(at[i].values - at[i].memory));
            ASAN_POISON_MEMORY_REGION(at[i].values + at[i].bytes, GUARD_BYTES);
        }
    }
    cudaError_t status = c->launch(c, v != NULL, pointers);
    if (ls_fiber_reports() > 0) {
        fail_msg("%s: %s", c->name, ls_fiber_report(0));
    }
    CUDA_OK(status);
    CUDA_OK(cudaDeviceSynchronize());
    for (size_t i = 0; i < c->arrays && v != NULL; i++) {
        ASAN_UNPOISON_MEMORY_REGION(at[i].memory, (size_t)(at[i].values - at[i].memory));
        ASAN_UNPOISON_MEMORY_REGION(at[i].values + at[i].bytes, GUARD_BYTES);
    }
}

static void run_fibers(const fiber_case *c, const variation *v, placed *at) {
    char mode[80];
    (void)snprintf(mode, sizeof mode, "blocks of %u, grid %u, order %u, offset %zu", v->block, v->grid, v->order,
                   v->offset);
    ls_fiber_configure((ls_fiber_config){.block = v->block, .grid = v->grid, .order = v->order});
    run_placed(c, v, at);
    for (size_t i = 0; i < c->arrays; i++) {
        check_array(c, &c->array[i], &at[i], mode);
    }
}

static void assert_same_bits(const fiber_case *c, const placed *a, const placed *b, const char *what) {
    for (size_t i = 0; i < c->arrays; i++) {
        if (memcmp(a[i].values, b[i].values, a[i].bytes) != 0) {
            fail_msg("%s, %s, %zu lanes: %s has other bits %s", c->name, ls_dtype_name(c->dtype), c->lanes,
                     c->array[i].name, what);
        }
    }
}

void fiber_case_run(fiber_case *c) {
    placed serial[CASE_ARRAYS], first[CASE_ARRAYS], second[CASE_ARRAYS];
    run_placed(c, NULL, serial);
    for (size_t i = 0; i < c->arrays; i++) {
        check_array(c, &c->array[i], &serial[i], "serial mode");
    }
    for (size_t v = 0; v < VARIATIONS; v += 2) {
        run_fibers(c, &variations[v], first);
        run_fibers(c, &variations[v + 1], second);
        assert_same_bits(c, first, second, "with another grid and order of the threads");
        if (!c->reduces) {
            assert_same_bits(c, first, serial, "in fiber mode than in serial mode");
        }
        for (size_t i = 0; i < c->arrays; i++) {
            free(first[i].memory);
            free(second[i].memory);
        }
    }
    for (size_t i = 0; i < c->arrays; i++) {
        device_free(serial[i].memory);
        free(c->array[i].given);
        free(c->array[i].expected);
        free(c->array[i].bound);
    }
    c->arrays = 0;
}
