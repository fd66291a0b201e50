/* Layer 1: ranks hold equal bits. The reduced gradient, the parameters before and after every step and the optimizer's state
 * after it are the same on all ranks, and a step starts from the very bits that the one before it ended with. No tolerance: an allreduce gives every rank
 * the same result, whatever the order of its sums. */
#include <math.h>
#include <string.h>

#include "verify/check.h"
#include "verify/diagnose.h"
#include "verify/values.h"

/* Elements whose bits differ; *first: the first of them. */
static size_t differing(const ls_case *c, const void *a, const void *b, size_t *first) {
    size_t size = ls_dtype_size(c->run.dtype);
    size_t count = 0;
    if (memcmp(a, b, c->model.param_count * size) == 0) {
        return 0;
    }
    for (size_t i = 0; i < c->model.param_count; i++) {
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) != 0) {
            *first = count == 0 ? i : *first;
            count++;
        }
    }
    return count;
}

typedef struct side {
    const void *values;
    const char *label; /* "rank 0" */
} side;

static void compare(const ls_case *c, ls_finding *finding, size_t step, const char *what, side a, side b) {
    size_t first = 0;
    size_t count = differing(c, a.values, b.values, &first);
    if (!ls_finding_measure(finding, (double)count, 0)) {
        char element[160];
        ls_place_name(c, first, element, sizeof element);
        ls_finding_fail(finding, "step %zu, %s: %s is %a in %s and %a in %s; %zu of %zu elements differ", step, what,
                        element, ls_value(c->run.dtype, a.values, first), a.label,
                        ls_value(c->run.dtype, b.values, first), b.label, count, c->model.param_count);
    }
}

static void check_ranks(const ls_case *c, size_t step, ls_finding *finding) {
    const ls_capture_reduced *zero = ls_case_reduced(c, step, 0);
    for (size_t rank = 1; rank < c->ranks; rank++) {
        char label[32];
        snprintf(label, sizeof label, "rank %zu", rank);
        const ls_capture_reduced *other = ls_case_reduced(c, step, rank);
        compare(c, finding, step, "parameters before the step", (side){zero->params_before, "rank 0"},
                (side){other->params_before, label});
        compare(c, finding, step, "reduced gradient", (side){zero->grads, "rank 0"}, (side){other->grads, label});
        compare(c, finding, step, "parameters after the step", (side){zero->params_after, "rank 0"},
                (side){other->params_after, label});
        for (size_t k = 0; k < zero->state_count; k++) {
            size_t offset = k * c->model.param_count * ls_dtype_size(c->run.dtype);
            compare(c, finding, step, ls_optimizer_state_name(&c->run.optimizer, k),
                    (side){(const char *)zero->state + offset, "rank 0"},
                    (side){(const char *)other->state + offset, label});
        }
    }
}

ls_rc ls_check_bits(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    for (size_t step = 0; step < c->steps; step++) {
        check_ranks(c, step, finding);
        for (size_t rank = 0; step > 0 && rank < c->ranks; rank++) {
            char what[96];
            snprintf(what, sizeof what, "parameters of rank %zu between steps", rank);
            compare(c, finding, step, what,
                    (side){ls_case_reduced(c, step - 1, rank)->params_after, "the end of the step before"},
                    (side){ls_case_reduced(c, step, rank)->params_before, "the start of this one"});
        }
    }
    if (finding->status == LS_FAILED && finding->cause[0] == '\0') {
        snprintf(finding->cause, sizeof finding->cause,
                 "ranks part: a tensor is not reduced or not broadcast on some rank, or a rank updates by itself");
    }
    return LS_OK;
}
