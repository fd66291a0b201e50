/* The model of rounding against float32 itself, and that what it allows is less than any fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/verify/synthetic_case.h"

static void show(const char *impl, const char *model, size_t devices, ls_dtype dtype, double lr, int loss) {
    synthetic s;
    ls_run run = synthetic_settings(impl, model, devices, dtype);
    run.lr = lr;
    run.loss.kind = loss;
    synthetic_prepare(&s, &run, &run.optimizer);
    synthetic_run(&s, 0);
    double *reference = calloc(s.c.model.param_count, sizeof *reference);
    printf("== %s %s %zu %s\n", impl, model, devices, ls_dtype_name(dtype));
    for (size_t step = 0; step < 3; step++) {
        double l = 0;
        const ls_rounding *r = NULL;
        ls_oracle_cache_global(s.oracle, &s.c, step, reference, &l);
        ls_oracle_cache_rounding(s.oracle, &s.c, step, LS_ROUNDING_BOUND, &r);
        for (size_t t = 0; t < s.c.model.param_tensors; t++) {
            const ls_param *p = &s.c.model.params[t];
            ls_distance d =
                ls_distance_measure(dtype, ls_case_reduced(&s.c, step, 0)->grads, reference, p->offset, p->count);
            printf("  step %zu %-14s rel %.2e/%.2e bound rel %.2e ratio %.3f max %.3f\n", step, p->name,
                   d.l2 / d.reference_l2, d.max / d.reference_max, r->l2[t] / d.reference_l2, d.l2 / r->l2[t],
                   d.max / r->max[t]);
        }
        printf("  loss ratio %.3f (sigma %.3g)\n", (ls_case_reduced(&s.c, step, 0)->loss - l) / r->rank_loss[0],
               r->rank_loss[0]);
    }
    free(reference);
    synthetic_close(&s);
}

static void test_show(void **state) {
    (void)state;
    const char *deep =
        "conv 8 k3 p1; batchnorm; relu; conv 8 k3 p1; batchnorm; relu; maxpool 2; conv 16 k3 p1; batchnorm; relu; conv "
        "16 k3 p1; batchnorm; relu; maxpool 2; flatten; linear 64; batchnorm; relu; linear 10";
    show("ddp", "seed-cnn", 2, LS_FLOAT32, 0.01, 0);
    show("ddp", "seed-conv", 2, LS_FLOAT32, 0.01, 0);
    show("ddp", deep, 2, LS_FLOAT32, 0.01, 0);
    show("dp", deep, 2, LS_FLOAT32, 0.01, 2);
    show("single", deep, 1, LS_FLOAT64, 0.01, 0);
    show("single", "seed-cnn", 1, LS_FLOAT64, 0.01, 0);
    show("single", "seed-conv", 1, LS_FLOAT32, 10, 0);
    show("single", "flatten; linear 64; linear 64; linear 64; linear 64; linear 64; linear 64; linear 10", 1,
         LS_FLOAT32, 0.01, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
