/* The single-device trainer's error against the oracle, the yardstick of float32 bounds. */
#include <stdlib.h>

#include "verify/check.h"
#include "verify/values.h"

static ls_rc measure_step(const ls_check_input *input, size_t step, double *reference, ls_baseline *out) {
    const ls_case *c = input->c;
    double loss = 0;
    LS_TRY(ls_oracle_cache_global(input->oracle, c, step, reference, &loss));
    for (size_t tensor = 0; tensor < out->tensors; tensor++) {
        const ls_param *param = &c->model.params[tensor];
        ls_distance d = ls_distance_measure(c->run.dtype, ls_case_reduced(c, step, 0)->grads, reference, param->offset,
                                            param->count);
        size_t at = step * out->tensors + tensor;
        out->absolute_l2[at] = d.l2;
        out->absolute_max[at] = d.max;
        out->relative_l2[at] = d.l2 == 0 ? 0 : d.l2 / d.reference_l2;
        out->relative_max[at] = d.l2 == 0 ? 0 : d.max / d.reference_max;
    }
    return LS_OK;
}

ls_rc ls_baseline_measure(const ls_check_input *input, ls_baseline *out) {
    const ls_case *c = input->c;
    size_t count = c->steps * c->model.param_tensors;
    *out = (ls_baseline){.steps = c->steps,
                         .tensors = c->model.param_tensors,
                         .absolute_l2 = ls_calloc(count, sizeof(double), "errors of the baseline"),
                         .absolute_max = ls_calloc(count, sizeof(double), "errors of the baseline"),
                         .relative_l2 = ls_calloc(count, sizeof(double), "errors of the baseline"),
                         .relative_max = ls_calloc(count, sizeof(double), "errors of the baseline")};
    double *reference = ls_calloc(c->model.param_count, sizeof *reference, "a gradient");
    ls_rc rc = out->absolute_l2 != NULL && out->absolute_max != NULL && out->relative_l2 != NULL &&
                       out->relative_max != NULL && reference != NULL
                   ? LS_OK
                   : LS_DEVICE_FAILED;
    for (size_t step = 0; step < c->steps && rc == LS_OK; step++) {
        rc = measure_step(input, step, reference, out);
    }
    free(reference);
    if (rc != LS_OK) {
        ls_baseline_close(out);
    }
    return rc;
}

void ls_baseline_close(ls_baseline *baseline) {
    free(baseline->absolute_l2);
    free(baseline->absolute_max);
    free(baseline->relative_l2);
    free(baseline->relative_max);
    *baseline = (ls_baseline){0};
}
