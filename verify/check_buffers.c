/* Layer 6: batchnorm's buffers. After a step, on every rank's first device,
 *   running = (1-m)*before + m*value
 * with the mean and the unbiased variance of that device's samples (the oracle's), and as `before` what rank 0 had after the
 * step before it, since its buffers are broadcast before every forward pass but the first; 0 and 1 at the start. So a rank
 * that keeps its own statistics is found, and so is one that takes other samples into them.
 *
 * Bound: `before` is the device's own, the value is off by at most e (derived in the oracle), products and sum are computed
 * in double and rounded once to the device's type with unit roundoff u:
 *   |running' - running| <= m*e + (u + 8*2^-53)*(|(1-m)*before| + m*(|value| + e)) + smallest. */
#include <float.h>
#include <math.h>

#include "verify/check.h"
#include "verify/values.h"

static double value_before(const ls_case *c, size_t step, bool is_variance, size_t i) {
    return step == 0 ? (is_variance ? 1 : 0) : ls_value(c->run.dtype, ls_case_reduced(c, step - 1, 0)->buffers, i);
}

static void check_values(const ls_case *c, size_t step, size_t rank, const ls_buffer *buffer, bool is_variance,
                         const ls_oracle_local *local, ls_finding *finding) {
    double m = c->model.layers[buffer->layer].momentum;
    double u = ls_roundoff(c->run.dtype) + 4 * DBL_EPSILON;
    for (size_t i = buffer->offset; i < buffer->offset + buffer->count; i++) {
        double before = value_before(c, step, is_variance, i);
        double value = local->statistics[i];
        double error = local->statistics_error[i];
        double expected = (1 - m) * before + m * value;
        double bound = m * error + u * (fabs((1 - m) * before) + m * (fabs(value) + error)) + ls_smallest(c->run.dtype);
        double found = ls_value(c->run.dtype, ls_case_reduced(c, step, rank)->buffers, i);
        if (!ls_finding_measure(finding, fabs(found - expected) / bound, 1)) {
            ls_finding_fail(finding, "step %zu, rank %zu: %s[%zu] is %a, expected %a (difference %.3g, bound %.3g)",
                            step, rank, buffer->name, i - buffer->offset, found, expected, fabs(found - expected),
                            bound);
        }
    }
}

static void check_tracked(const ls_case *c, size_t step, size_t rank, const ls_buffer *buffer, ls_finding *finding) {
    int64_t found = ls_case_reduced(c, step, rank)->tracked[buffer->offset];
    if (found != (int64_t)step + 1) {
        ls_finding_measure(finding, INFINITY, 1);
        ls_finding_fail(finding, "step %zu, rank %zu: %s is %lld, expected %zu", step, rank, buffer->name,
                        (long long)found, step + 1);
    }
}

/* The first device of a rank: its own, or DataParallel's device 0. */
static ls_rc check_rank(const ls_check_input *input, size_t step, size_t rank, ls_finding *finding) {
    const ls_case *c = input->c;
    const ls_oracle_local *local = NULL;
    if (ls_case_local(c, step, rank)->count == 0) {
        return LS_OK; /* no samples, no statistics */
    }
    LS_TRY(ls_oracle_cache_local(input->oracle, c, step, rank, &local));
    for (size_t b = 0; b < c->model.buffer_tensors; b++) {
        const ls_buffer *buffer = &c->model.buffers[b];
        if (buffer->is_count) {
            check_tracked(c, step, rank, buffer, finding);
        } else {
            check_values(c, step, rank, buffer, b == c->model.layers[buffer->layer].buffer + 1, local, finding);
        }
    }
    return LS_OK;
}

ls_rc ls_check_buffers(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    if (c->model.buffer_tensors == 0) {
        ls_finding_skip(finding, "%s has no buffers", c->model.name);
        return LS_OK;
    }
    for (size_t step = 0; step < c->steps; step++) {
        for (size_t rank = 0; rank < c->ranks; rank++) {
            LS_TRY(check_rank(input, step, rank, finding));
        }
    }
    if (finding->status == LS_FAILED && finding->cause[0] == '\0') {
        snprintf(finding->cause, sizeof finding->cause,
                 "running statistics: rank 0's are not broadcast before forward, other samples than recorded, or the "
                 "update");
    }
    return LS_OK;
}
