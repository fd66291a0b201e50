/* Layer 5: where every operation is exact, there is one right result, whatever the split over devices, the buckets, the
 * implementation and the order of additions: the reduced gradient equals the oracle's in every bit. No tolerance can hide
 * anything here: not a rounding to fewer bits, not a scaling in the wrong place.
 *
 * That float32 is exact is proven for each step by the largest partial sum that its numbers could reach (verify/exact.h). */
#include <math.h>
#include <stdlib.h>

#include "verify/check.h"
#include "verify/diagnose.h"
#include "verify/exact.h"
#include "verify/values.h"

static bool applies(const ls_case *c, ls_finding *finding) {
    char why[128] = "";
    const ls_impl *impl = ls_impl_find(c->run.impl);
    if (c->model.init != LS_INIT_EXACT) {
        ls_finding_skip(finding, "the values of %s are not exact: the network `exact` is for this", c->model.name);
    } else if (c->run.loss.kind != LS_LOSS_MSE) {
        ls_finding_skip(finding, "--loss %s is not exact", ls_loss_name(c->run.loss.kind));
    } else if (impl == NULL || !ls_exact_possible(&c->run, impl, why, sizeof why)) {
        ls_finding_skip(finding, "%s", why);
    } else {
        return true;
    }
    return false;
}

/* A mean over samples and outputs that is not a power of two rounds. */
static bool mean_is_exact(const ls_case *c, size_t step) {
    int exponent = 0;
    double divisor = (double)(ls_case_samples(c, step) * c->model.classes) / (double)c->ranks;
    return c->run.loss.reduction == LS_LOSS_SUM || frexp(divisor, &exponent) == 0.5;
}

static void check_rank(const ls_case *c, size_t step, size_t rank, const double *reference, ls_finding *finding) {
    const void *found = ls_case_reduced(c, step, rank)->grads;
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < c->model.param_count; i++) {
        if (!(ls_value(c->run.dtype, found, i) == reference[i])) {
            first = wrong++ == 0 ? i : first;
        }
    }
    if (ls_finding_measure(finding, (double)wrong, 0) || finding->detail[0] != '\0') {
        return;
    }
    char place[160];
    ls_place_name(c, first, place, sizeof place);
    ls_finding_fail(finding, "step %zu, rank %zu: %s is %a, exactly %a is right; %zu of %zu elements differ", step,
                    rank, place, ls_value(c->run.dtype, found, first), reference[first], wrong, c->model.param_count);
    ls_diagnose_reduction(c, step, rank, finding);
}

ls_rc ls_check_exact(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    double most = 1 / ls_roundoff(c->run.dtype);
    if (!applies(c, finding)) {
        return LS_OK;
    }
    double *reference = ls_calloc(c->model.param_count, sizeof *reference, "a gradient");
    ls_rc rc = reference != NULL ? LS_OK : LS_DEVICE_FAILED;
    for (size_t step = 0; step < c->steps && rc == LS_OK; step++) {
        double largest = ls_exact_largest(c, step);
        double loss = 0;
        if (largest > most || !mean_is_exact(c, step)) {
            ls_finding_mistrust(finding, "step %zu: sums of up to %.3g units, or their mean, are not exact in %s", step,
                                largest, ls_dtype_name(c->run.dtype));
            continue;
        }
        rc = ls_oracle_cache_global(input->oracle, c, step, reference, &loss);
        for (size_t rank = 0; rank < c->ranks && rc == LS_OK; rank++) {
            check_rank(c, step, rank, reference, finding);
        }
    }
    free(reference);
    return rc;
}
