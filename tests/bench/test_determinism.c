/* The table of what must be equal, and what a difference means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "bench/determinism_relations.h"
#include "impls/impl.h"

static const ls_relation *find(ls_varied varied, const char *impl, const char *other, const char *platform) {
    for (const ls_relation *r = ls_relations; r->reason != NULL; r++) {
        bool same_impl = impl == NULL ? r->impl == NULL : r->impl != NULL && strcmp(r->impl, impl) == 0;
        bool same_other = other == NULL ? r->other == NULL : r->other != NULL && strcmp(r->other, other) == 0;
        if (r->varied == varied && same_impl && same_other &&
            (r->platform == NULL || strcmp(r->platform, platform) == 0)) {
            return r;
        }
    }
    fail_msg("no relation %s", ls_varied_name(varied));
    return NULL;
}

static void a_difference_is_judged_by_the_table(void **state) {
    (void)state;
    const ls_relation *again = find(LS_VARIED_NOTHING, NULL, NULL, "vgpu");
    const ls_relation *mpi = find(LS_VARIED_IMPL, "mpi", "ddp", "vgpu");
    const ls_relation *world = find(LS_VARIED_WORLD, NULL, NULL, "vgpu");
    assert_int_equal(ls_relation_judge(again, 8, true), LS_SAME);
    assert_int_equal(ls_relation_judge(again, 8, false), LS_DIFFERS_UNEXPECTEDLY);
    assert_int_equal(ls_relation_judge(mpi, 2, false), LS_DIFFERS_UNEXPECTEDLY); /* a sum of two terms commutes */
    assert_int_equal(ls_relation_judge(mpi, 3, false), LS_DIFFERS_AS_DOCUMENTED);
    assert_int_equal(ls_relation_judge(mpi, 3, true), LS_SAME);
    assert_int_equal(ls_relation_judge(world, 2, false), LS_DIFFERS_AS_DOCUMENTED);
    assert_int_equal(ls_relation_judge(find(LS_VARIED_BUCKETS, "ddp", NULL, "vgpu"), 8, false),
                     LS_DIFFERS_UNEXPECTEDLY);
    assert_int_equal(ls_relation_judge(find(LS_VARIED_BUCKETS, "ddp", NULL, "cuda"), 8, false),
                     LS_DIFFERS_AS_DOCUMENTED);
}

static void relations_name_what_exists(void **state) {
    (void)state;
    bool seen[LS_VARIED_WORLD + 1] = {false};
    for (const ls_relation *r = ls_relations; r->reason != NULL; r++) {
        assert_true(r->impl == NULL || ls_impl_find(r->impl) != NULL);
        assert_true(r->other == NULL || ls_impl_find(r->other) != NULL);
        assert_true((r->varied == LS_VARIED_IMPL) == (r->other != NULL));
        assert_true(r->platform == NULL || strcmp(r->platform, "vgpu") == 0 || strcmp(r->platform, "cuda") == 0);
        seen[r->varied] = true;
    }
    for (size_t i = 0; i <= LS_VARIED_WORLD; i++) {
        assert_true(seen[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_difference_is_judged_by_the_table),
        cmocka_unit_test(relations_name_what_exists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
