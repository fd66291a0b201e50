/* The allocator's bookkeeping against a plain map of the range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "gpu/vgpu/arena.h"

enum { UNITS = 512, SIZE = UNITS * VGPU_ALIGNMENT, LIVE = 64 };

typedef struct live {
    size_t offset;
    size_t requested;
} live;

static uint32_t next_random(uint32_t *seed) {
    *seed = *seed * 1664525U + 1013904223U;
    return *seed >> 8;
}

static size_t units_of(size_t bytes) {
    return (bytes + VGPU_ALIGNMENT - 1) / VGPU_ALIGNMENT;
}

/* First fit, computed the slow way; UNITS when nothing fits. */
static size_t first_fit(const unsigned char *used, size_t units) {
    size_t run = 0;
    for (size_t i = 0; i < UNITS; i++) {
        run = used[i] ? 0 : run + 1;
        if (run == units) {
            return i + 1 - units;
        }
    }
    return UNITS;
}

static void check_blocks(const vgpu_blocks *blocks, const unsigned char *used) {
    size_t at = 0;
    size_t free_bytes = 0;
    for (size_t i = 0; i < blocks->count; i++) {
        const vgpu_block *block = &blocks->list[i];
        assert_int_equal(block->offset, at);
        assert_true(block->size > 0 && block->size % VGPU_ALIGNMENT == 0 && block->requested <= block->size);
        if (block->requested == 0) {
            free_bytes += block->size;
            assert_true(i == 0 || blocks->list[i - 1].requested != 0); /* coalesced */
        }
        for (size_t unit = at / VGPU_ALIGNMENT; unit < (at + block->size) / VGPU_ALIGNMENT; unit++) {
            assert_int_equal(used[unit], block->requested != 0);
        }
        at += block->size;
    }
    assert_int_equal(at, SIZE);
    assert_int_equal(blocks->free_bytes, free_bytes);
}

static void random_allocations_match_a_plain_map(void **state) {
    (void)state;
    vgpu_blocks blocks;
    unsigned char used[UNITS] = {0};
    live list[LIVE];
    size_t count = 0;
    uint32_t seed = 1;
    assert_true(vgpu_blocks_open(&blocks, SIZE));
    for (int step = 0; step < 4000; step++) {
        if (count < LIVE && next_random(&seed) % 5 < 3) {
            size_t bytes = 1 + next_random(&seed) % (24 * VGPU_ALIGNMENT);
            size_t expected = first_fit(used, units_of(bytes));
            size_t offset = 0;
            assert_int_equal(vgpu_blocks_allocate(&blocks, bytes, &offset), expected < UNITS);
            if (expected < UNITS) {
                assert_int_equal(offset, expected * VGPU_ALIGNMENT);
                memset(used + expected, 1, units_of(bytes));
                list[count] = (live){offset, bytes};
                count++;
            }
        } else if (count > 0) {
            size_t i = next_random(&seed) % count;
            size_t size = 0;
            assert_int_equal(vgpu_blocks_find(&blocks, list[i].offset + list[i].requested - 1).offset, list[i].offset);
            assert_true(vgpu_blocks_free(&blocks, list[i].offset, &size));
            assert_int_equal(size, units_of(list[i].requested) * VGPU_ALIGNMENT);
            assert_false(vgpu_blocks_free(&blocks, list[i].offset, &size));
            memset(used + list[i].offset / VGPU_ALIGNMENT, 0, units_of(list[i].requested));
            count--;
            list[i] = list[count];
        }
        check_blocks(&blocks, used);
    }
    vgpu_blocks_close(&blocks);
}

static void sizes_that_overflow_do_not_fit(void **state) {
    (void)state;
    vgpu_blocks blocks;
    size_t offset = 0;
    assert_true(vgpu_blocks_open(&blocks, SIZE));
    assert_false(vgpu_blocks_allocate(&blocks, SIZE_MAX, &offset));
    assert_false(vgpu_blocks_allocate(&blocks, SIZE_MAX - VGPU_ALIGNMENT, &offset));
    assert_false(vgpu_blocks_allocate(&blocks, SIZE + 1, &offset));
    assert_true(vgpu_blocks_allocate(&blocks, SIZE, &offset));
    vgpu_blocks_close(&blocks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_allocations_match_a_plain_map),
        cmocka_unit_test(sizes_that_overflow_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
