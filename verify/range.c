#include "verify/range.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "verify/values.h"

typedef struct extreme {
    const char *what;
    double value;
    size_t element; /* SIZE_MAX: of no parameter */
} extreme;

static double largest(ls_dtype dtype) {
    return sqrt(dtype == LS_FLOAT64 ? DBL_MAX : (double)FLT_MAX);
}

/* Not-a-number is beyond every limit. */
static bool within(const ls_case *c, double value) {
    return fabs(value) <= largest(c->run.dtype);
}

static bool params_within(const ls_case *c, size_t step, extreme *out) {
    const void *params = ls_case_reduced(c, step, 0)->params_before;
    for (size_t i = 0; i < c->model.param_count; i++) {
        double value = ls_value(c->run.dtype, params, i);
        if (!within(c, value)) {
            *out = (extreme){"parameter", value, i};
            return false;
        }
    }
    return true;
}

/* grads: the oracle's. */
static bool results_within(const ls_case *c, const double *grads, double loss, extreme *out) {
    if (!within(c, loss)) {
        *out = (extreme){"the loss", loss, SIZE_MAX};
        return false;
    }
    for (size_t i = 0; i < c->model.param_count; i++) {
        if (!within(c, grads[i])) {
            *out = (extreme){"the gradient of", grads[i], i};
            return false;
        }
    }
    return true;
}

static void describe(const ls_case *c, size_t step, const extreme *e, char *why, size_t size) {
    char element[128] = "", judged[64] = "no step is judged";
    if (e->element != SIZE_MAX) {
        element[0] = ' ';
        ls_element_name(&c->model, e->element, element + 1, sizeof element - 1);
    }
    if (step > 0) {
        snprintf(judged, sizeof judged, "only the first %zu of %zu steps are judged", step, c->steps);
    }
    snprintf(why, size, "%s: in step %zu %s%s is %.3g, whose square is beyond %s; the training diverges: lower --lr",
             judged, step, e->what, element, isnan(e->value) ? (double)NAN : e->value, ls_dtype_name(c->run.dtype));
}

ls_rc ls_range_steps(const ls_check_input *input, size_t *steps, char *why, size_t size) {
    const ls_case *c = input->c;
    double *grads = ls_calloc(c->model.param_count, sizeof *grads, "a gradient");
    why[0] = '\0';
    *steps = 0;
    if (grads == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_rc rc = LS_OK;
    bool good = true;
    while (*steps < c->steps && good && rc == LS_OK) {
        extreme found;
        double loss = 0;
        good = params_within(c, *steps, &found);
        if (good) {
            rc = ls_oracle_cache_global(input->oracle, c, *steps, grads, &loss);
            good = rc != LS_OK || results_within(c, grads, loss, &found);
        }
        if (good) {
            (*steps)++;
        } else {
            describe(c, *steps, &found, why, size);
        }
    }
    free(grads);
    return rc;
}
