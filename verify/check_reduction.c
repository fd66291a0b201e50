/* Layer 2: the reduction against the sum, in extended precision, of the very local gradients that went into it. Only W
 * terms meet in an element, so the bound is exact about the data: the scaling by 1/W (at most two roundings: 1/W itself and
 * the product), W-1 additions in any order: at most W+1 roundings of each term, hence (Higham, Accuracy and Stability, 3.1)
 *   |g - (1/W) sum_r g_r| <= gamma_{W+1} * (1/W) sum_r |g_r| + W * smallest,
 * where each of the W scalings may lose half of the smallest denormal and the final sum likewise. For a sum without
 * scaling the same holds without 1/W. */
#include <float.h>
#include <math.h>

#include "verify/check.h"
#include "verify/diagnose.h"
#include "verify/values.h"

_Static_assert(LDBL_MANT_DIG >= 64, "the reference sum must be more precise than float64");

typedef struct reduced_element {
    double error, bound, unit; /* unit: u times the mean (or sum) of |terms| */
    double reference;
} reduced_element;

static reduced_element judge(const ls_case *c, size_t step, const void *found, size_t i) {
    ls_dtype dtype = c->run.dtype;
    long double sum = 0;
    double terms = 0;
    for (size_t device = 0; device < c->devices; device++) {
        double g = ls_value(dtype, ls_case_local(c, step, device)->grads, i);
        sum += (long double)g;
        terms += fabs(g);
    }
    double world = (double)c->devices;
    if (c->reduction == LS_REDUCTION_MEAN) {
        sum /= (long double)world;
        terms /= world;
    }
    double u = ls_roundoff(dtype);
    double gamma = (world + 1) * u / (1 - (world + 1) * u);
    return (reduced_element){.error = (double)fabsl((long double)ls_value(dtype, found, i) - sum),
                             .bound = gamma * terms * (1 + 0x1p-40) + world * ls_smallest(dtype),
                             .unit = u * terms,
                             .reference = (double)sum};
}

static size_t check_rank(const ls_case *c, size_t step, size_t rank, ls_finding *finding) {
    const void *found = ls_case_reduced(c, step, rank)->grads;
    size_t informative = 0;
    size_t wrong = 0;
    size_t worst = 0, first_wrong = 0;
    double worst_ratio = 0;
    for (size_t i = 0; i < c->model.param_count; i++) {
        reduced_element e = judge(c, step, found, i);
        informative += e.unit > 0 ? 1 : 0;
        bool good = e.error <= e.bound;
        double ratio = e.error / e.bound;
        if (!good) {
            first_wrong = wrong++ == 0 ? i : first_wrong;
            ratio = isnan(ratio) ? INFINITY : ratio;
        }
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst = i;
        }
    }
    double world = (double)c->devices;
    ls_finding_measure(finding, worst_ratio * (world + 1), world + 1);
    if (wrong > 0) {
        reduced_element e = judge(c, step, found, worst);
        char element[160], before[160];
        ls_place_name(c, worst, element, sizeof element);
        ls_place_name(c, first_wrong, before, sizeof before);
        bool first = finding->detail[0] == '\0';
        ls_finding_fail(
            finding,
            "step %zu, rank %zu: %s is %a, the %s of the local gradients is %a (difference %.3g, bound %.3g); "
            "%zu of %zu elements are out of bound, the first at %s",
            step, rank, element, ls_value(c->run.dtype, found, worst),
            c->reduction == LS_REDUCTION_MEAN ? "mean" : "sum", e.reference, e.error, e.bound, wrong,
            c->model.param_count, before);
        if (first) {
            ls_diagnose_reduction(c, step, rank, finding);
        }
    }
    return informative;
}

/* With fewer elements than this that are not zero everywhere, agreement says little. */
enum { LEAST_ELEMENTS = 16 };

ls_rc ls_check_reduction(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    for (size_t step = 0; step < c->steps; step++) {
        size_t informative = SIZE_MAX;
        for (size_t rank = 0; rank < c->ranks; rank++) {
            size_t here = check_rank(c, step, rank, finding);
            informative = here < informative ? here : informative;
        }
        if (informative == 0) {
            ls_finding_mistrust(finding, "step %zu: every local gradient is zero", step);
        } else if (informative < LEAST_ELEMENTS) {
            ls_finding_mistrust(finding,
                                "step %zu: only %zu elements of the local gradients are not zero, fewer than %d", step,
                                informative, LEAST_ELEMENTS);
        }
    }
    return LS_OK;
}
