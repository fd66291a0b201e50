/* Layers 3 and 4: the reduced gradient, the losses and the decisions against the float64 oracle.
 *
 * What costs nothing comes first: a tensor whose error, in the 2-norm and in the largest element, is at most
 *   max(floor, 8*e) relative to the oracle's,
 * e the error of the single-device trainer on the same global batch. The floor is 1e-12 in float64, where a correct path
 * stays near sqrt(n)*2^-53 for n up to 1e5 terms and some ten roundings on the way, 5e-16 to 3e-14; and 1e-5 in float32,
 * where rounding gives 3e-7 to 2e-6 in networks of a few layers. The smallest faults known (one pixel off by 1/255, weights
 * drifted by 1e-6) move a float64 tensor by 1e-6 and a float32 one by 3e-5. 8: the reduction adds W+1 roundings to what
 * `single` has and takes its sums in another order, never seen to cost more than a factor of 1.1; and e, of a tensor with few
 * elements, may be small by chance. e in absolute terms counts too, so that where a gradient is nothing but rounding (the
 * bias of a convolution in front of a batchnorm) the ratio of two accidents is no yardstick.
 *
 * Beyond that rounding itself is computed: the oracle's gradient again and again with random roundings in all the places
 * where a device has them (reference/oracle/rounding.c), and from those draws what a correct device's error may be but with
 * probability 1e-7 (oracle_cache_rounding.c), plus the reduction's own (W+1)*u of the sum of |terms|. That bound is absolute, so
 * that depth, cancellation, and softmax near saturation need no rules of their own.
 *
 * Both sides decide as the device did (relu, max-pool), so no tie moves the gradient; each decision that differs from the
 * oracle's own must lie within the forward error bound. */
#include <math.h>
#include <stdlib.h>

#include "verify/check.h"
#include "verify/diagnose.h"
#include "verify/values.h"

static const double float64_floor = 1e-12;
static const double float32_floor = 1e-5;
static const double baseline_factor = 8;

/* How far a tensor of a gradient may lie from the oracle's: in the 2-norm, and in its largest element. */
typedef struct tensor_bound {
    double l2, max;
} tensor_bound;

static double floor_of(const ls_case *c) {
    return c->run.dtype == LS_FLOAT64 ? float64_floor : float32_floor;
}

/* max(floor, 8*e) of a tensor with that norm (or largest element). */
static double plain_bound(double floor, double relative, double absolute, double size) {
    double yardstick = baseline_factor * fmin(relative * size, absolute);
    return fmax(floor * size, isfinite(yardstick) ? yardstick : 0);
}

static tensor_bound plain_bounds(const ls_check_input *input, size_t step, size_t tensor, const ls_distance *d) {
    double floor = floor_of(input->c);
    tensor_bound out = {floor * d->reference_l2, floor * d->reference_max};
    const ls_baseline *e = input->baseline;
    if (e != NULL && step < e->steps) {
        size_t at = step * e->tensors + tensor;
        out.l2 = plain_bound(floor, e->relative_l2[at], e->absolute_l2[at], d->reference_l2);
        out.max = plain_bound(floor, e->relative_max[at], e->absolute_max[at], d->reference_max);
    }
    return out;
}

static bool within(const ls_distance *d, const tensor_bound *limit) {
    return d->l2 <= limit->l2 && d->max <= limit->max;
}

/* (W+1)*u*sum|terms| of the reduction, as in check_reduction.c, of a tensor. */
static tensor_bound reduction_bound(const ls_case *c, size_t step, const ls_param *param) {
    double world = (double)c->devices;
    double scale = (world + 1) * ls_roundoff(c->run.dtype) / (c->reduction == LS_REDUCTION_MEAN ? world : 1);
    double squares = 0;
    double largest = 0;
    for (size_t i = param->offset; i < param->offset + param->count; i++) {
        double terms = 0;
        for (size_t device = 0; device < c->devices; device++) {
            terms += fabs(ls_value(c->run.dtype, ls_case_local(c, step, device)->grads, i));
        }
        squares += terms * terms;
        largest = fmax(largest, terms);
    }
    return (tensor_bound){scale * sqrt(squares), scale * largest};
}

/* What rounding allows a tensor that is further off than *limit: what is usual for a start, which takes less time. */
static ls_rc modelled_bounds(const ls_check_input *input, size_t step, size_t tensor, const ls_distance *d,
                             tensor_bound *limit) {
    for (ls_rounding_kind kind = LS_ROUNDING_TYPICAL; kind <= LS_ROUNDING_BOUND && !within(d, limit); kind++) {
        const ls_rounding *rounding = NULL;
        LS_TRY(ls_oracle_cache_rounding(input->oracle, input->c, step, kind, &rounding));
        tensor_bound reduction = reduction_bound(input->c, step, &input->c->model.params[tensor]);
        limit->l2 = fmax(limit->l2, rounding->l2[tensor] + reduction.l2);
        limit->max = fmax(limit->max, rounding->max[tensor] + reduction.max);
    }
    return LS_OK;
}

typedef struct gradients {
    double *reference; /* [param_count] */
    bool *nonzero;     /* [tensors]: the reference was not zero in some step */
    bool *informative; /* [tensors]: nor within the bound on its error */
} gradients;

/* Errors in a report are relative. A tensor within a bound as large as itself says nothing there. */
static void measure(const ls_distance *d, const tensor_bound *limit, ls_finding *finding) {
    bool silent = within(d, limit) && d->reference_l2 <= limit->l2;
    double l2 = silent ? 0 : d->l2 / d->reference_l2;
    double max = silent ? 0 : d->max / d->reference_max;
    ls_finding_measure(finding, l2, silent ? float32_floor : limit->l2 / d->reference_l2);
    ls_finding_measure(finding, max, silent ? float32_floor : limit->max / d->reference_max);
}

static void fail_tensor(const ls_check_input *input, size_t step, size_t rank, const ls_param *param,
                        const ls_distance *d, const gradients *g, const tensor_bound *limit, ls_finding *finding) {
    const ls_case *c = input->c;
    const void *found = ls_case_reduced(c, step, rank)->grads;
    char element[128];
    ls_element_name(&c->model, d->worst, element, sizeof element);
    ls_finding_fail(
        finding,
        "step %zu, rank %zu: gradient of %s is off by %.3g (norm) and %.3g (maximum), bounds %.3g and %.3g, "
        "scale %.6g; worst at %s: %a, oracle %a",
        step, rank, param->name, d->l2 / d->reference_l2, d->max / d->reference_max, limit->l2 / d->reference_l2,
        limit->max / d->reference_max, ls_scale_fit(c->run.dtype, found, g->reference, param->offset, param->count),
        element, ls_value(c->run.dtype, found, d->worst), g->reference[d->worst]);
}

static ls_rc check_tensor(const ls_check_input *input, size_t step, size_t rank, size_t tensor, gradients *g,
                          ls_finding *finding) {
    const ls_case *c = input->c;
    const ls_param *param = &c->model.params[tensor];
    ls_distance d = ls_distance_measure(c->run.dtype, ls_case_reduced(c, step, rank)->grads, g->reference,
                                        param->offset, param->count);
    tensor_bound limit = plain_bounds(input, step, tensor, &d);
    if (finding->status != LS_FAILED) {
        LS_TRY(modelled_bounds(input, step, tensor, &d, &limit));
    } else if (!within(&d, &limit)) {
        return LS_OK; /* one more or less changes nothing, and the model of rounding takes its time */
    }
    measure(&d, &limit, finding);
    g->nonzero[tensor] = g->nonzero[tensor] || d.reference_l2 > 0;
    g->informative[tensor] = g->informative[tensor] || d.reference_l2 > limit.l2;
    if (within(&d, &limit)) {
        return LS_OK;
    }
    fail_tensor(input, step, rank, param, &d, g, &limit, finding);
    return ls_diagnose_local(input, step, limit.l2 / d.reference_l2, finding->cause, sizeof finding->cause);
}

typedef struct loss_value {
    const char *whose;
    size_t index;
    double found, expected;
    double count; /* of a device, whose loss is a mean of terms; 0: a rank's */
} loss_value;

/* Cross entropy moves by at most twice the largest error of a logit, which the bounds on gradients hold to the same order; a
 * squared error by twice its root times the error of the output, its root by no more than that error: the same floor,
 * relative to losses above 1. Beyond it the model of rounding judges, as with gradients. */
static ls_rc check_loss(const ls_check_input *input, size_t step, const loss_value *v, ls_finding *finding) {
    double scale = fmax(1, fabs(v->expected));
    double limit = floor_of(input->c) * scale;
    double error = fabs(v->found - v->expected);
    if (!(error <= limit) && finding->status != LS_FAILED) {
        const ls_rounding *model = NULL;
        LS_TRY(ls_oracle_cache_rounding(input->oracle, input->c, step, LS_ROUNDING_BOUND, &model));
        limit = fmax(limit, v->count > 0 ? model->loss_sum[v->index] / v->count : model->rank_loss[v->index]);
    }
    if (!(error <= limit)) {
        ls_finding_measure(finding, error / scale, limit / scale);
        ls_finding_fail(finding, "step %zu: loss of %s %zu is %.17g, oracle %.17g (bound %.3g)", step, v->whose,
                        v->index, v->found, v->expected, limit);
    }
    return LS_OK;
}

static ls_rc check_losses(const ls_check_input *input, size_t step, ls_finding *finding) {
    const ls_case *c = input->c;
    for (size_t rank = 0; rank < c->ranks; rank++) {
        double sum = 0;
        size_t samples = 0;
        for (size_t device = 0; device < c->devices; device++) {
            const ls_oracle_local *local = NULL;
            if (ls_case_rank_of(c, device) != rank) {
                continue;
            }
            LS_TRY(ls_oracle_cache_local(input->oracle, c, step, device, &local));
            sum += local->loss_sum;
            samples += (size_t)ls_case_local(c, step, device)->count;
            const ls_capture_local *record = ls_case_local(c, step, device);
            double count = (double)record->count;
            loss_value own = {"device", device, record->loss_sum / count, local->loss_sum / count, count};
            if (!isnan(record->loss_sum) && count > 0) {
                LS_TRY(check_loss(input, step, &own, finding));
            }
        }
        if (samples > 0) {
            ls_oracle_loss kind = ls_case_loss(c);
            double expected = ls_oracle_loss_value(&kind, sum, (double)samples, c->model.classes);
            loss_value value = {"rank", rank, ls_case_reduced(c, step, rank)->loss, expected, 0};
            LS_TRY(check_loss(input, step, &value, finding));
        }
    }
    return LS_OK;
}

static ls_rc check_decisions(const ls_check_input *input, size_t step, ls_finding *finding) {
    const ls_case *c = input->c;
    for (size_t device = 0; device < c->devices; device++) {
        const ls_oracle_local *local = NULL;
        LS_TRY(ls_oracle_cache_local(input->oracle, c, step, device, &local));
        const ls_oracle_decisions *d = &local->decisions;
        if (d->unproven > 0) {
            const ls_capture_local *record = ls_case_local(c, step, device);
            ls_finding_measure(finding, d->worst_ratio, 1);
            ls_finding_fail(
                finding,
                "step %zu, device %zu: %zu of %zu decisions are unproven, the worst in layer %s at value %zu of "
                "sample %zu: %.3g times as far from a tie as the forward error bound allows",
                step, device, d->unproven, d->total, c->model.layers[d->worst_layer].name, d->worst_position,
                record->indices[d->worst_sample], d->worst_ratio);
            snprintf(finding->cause, sizeof finding->cause,
                     "forward pass of device %zu: other inputs or parameters than recorded, or a wrong choice in %s",
                     device, c->model.layers[d->worst_layer].name);
        }
    }
    return LS_OK;
}

static ls_rc check_step(const ls_check_input *input, size_t step, gradients *g, ls_finding *finding) {
    const ls_case *c = input->c;
    double loss = 0;
    LS_TRY(ls_oracle_cache_global(input->oracle, c, step, g->reference, &loss));
    for (size_t rank = 0; rank < c->ranks; rank++) {
        for (size_t tensor = 0; tensor < c->model.param_tensors; tensor++) {
            LS_TRY(check_tensor(input, step, rank, tensor, g, finding));
        }
    }
    LS_TRY(check_losses(input, step, finding));
    return check_decisions(input, step, finding);
}

static ls_rc gradients_open(const ls_case *c, gradients *g) {
    *g = (gradients){.reference = ls_calloc(c->model.param_count, sizeof(double), "a gradient"),
                     .nonzero = ls_calloc(c->model.param_tensors, sizeof(bool), "tensors"),
                     .informative = ls_calloc(c->model.param_tensors, sizeof(bool), "tensors")};
    return g->reference != NULL && g->nonzero != NULL && g->informative != NULL ? LS_OK : LS_DEVICE_FAILED;
}

static void gradients_close(gradients *g) {
    free(g->reference);
    free(g->nonzero);
    free(g->informative);
}

/* Agreement within a bound as large as the gradient itself shows nothing: zeros would agree as well. Single tensors are like
 * that by nature (what a batchnorm takes out again: the bias in front of it); a network of nothing else is not. */
static void mistrust(const ls_case *c, const gradients *g, ls_finding *finding) {
    bool informative = false;
    for (size_t tensor = 0; tensor < c->model.param_tensors; tensor++) {
        informative = informative || g->informative[tensor];
        if (!g->nonzero[tensor]) {
            ls_finding_mistrust(finding, "the gradient of %s is zero in every step", c->model.params[tensor].name);
        }
    }
    if (!informative) {
        ls_finding_mistrust(finding, "in every step every gradient is smaller than what rounding may make of it");
    }
}

static ls_rc check(const ls_check_input *input, ls_dtype dtype, ls_finding *finding) {
    const ls_case *c = input->c;
    if (c->run.dtype != dtype) {
        ls_finding_skip(finding, "the case is in %s", ls_dtype_name(c->run.dtype));
        return LS_OK;
    }
    gradients g;
    ls_rc rc = gradients_open(c, &g);
    for (size_t step = 0; step < c->steps && rc == LS_OK; step++) {
        rc = check_step(input, step, &g, finding);
    }
    if (rc == LS_OK) {
        mistrust(c, &g, finding);
    }
    gradients_close(&g);
    return rc;
}

ls_rc ls_check_float64(const ls_check_input *input, ls_finding *finding) {
    return check(input, LS_FLOAT64, finding);
}

ls_rc ls_check_float32(const ls_check_input *input, ls_finding *finding) {
    return check(input, LS_FLOAT32, finding);
}
