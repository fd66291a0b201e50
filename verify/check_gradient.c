/* Layers 3 and 4: the reduced gradient, the losses and the decisions against the float64 oracle.
 *
 * float64, 1e-12 per tensor: a correct path in other orders of summation stays near sqrt(n)*2^-53 for n up to 1e5 terms and
 * some ten roundings on the way, 5e-16 to 3e-14; the smallest fault known (one pixel off by 1/255, weights drifted by 1e-6)
 * moves a tensor by 1e-6. 1e-12 lies between, with room on both sides.
 *
 * float32, max(1e-5, 8*e) per tensor, e the error of the single-device trainer on the same global batch: float32 rounding
 * gives 3e-7 to 2e-6 here, the smallest fault above 3e-5. Both sides decide as the device did (relu, max-pool), so no tie
 * moves the gradient; each decision that differs from the oracle's own must lie within the forward error bound. 8: the
 * reduction adds W+1 roundings to what `single` has and takes its sums in another order, which was never seen to cost more
 * than a factor of 1.1. The same limit holds for max|error|/max|gradient|.
 *
 * 1e-5 stands for the four layers of seed-cnn that round sums (conv, linear, batchnorm). To first order the relative error
 * of a gradient is a sum with one term for each such layer that its values pass, so beyond four layers the floor grows in
 * proportion: 11 of them (six with weights, five batchnorms) gave correct float32 gradients 1.2e-5 off, of 2.75e-5. */
#include <math.h>
#include <stdlib.h>

#include "verify/check.h"
#include "verify/diagnose.h"
#include "verify/values.h"

static const double float64_limit = 1e-12;
static const double float32_floor = 1e-5;
static const double baseline_factor = 8;
/* A baseline further off than this has lost the tensor to cancellation (the bias of a convolution in front of a batchnorm has
 * no gradient but rounding): it is no yardstick, and explained_by_cancellation judges. Rounding alone stays below 1e-5. */
static const double cancelled = 1e-3;

/* Layers that round sums. */
static double rounding_layers(const ls_model *model) {
    double layers = 0;
    for (size_t l = 0; l < model->layer_count; l++) {
        layers += model->layers[l].weight != SIZE_MAX ? 1 : 0;
    }
    return layers;
}

static double float32_limit(const ls_model *model) {
    return float32_floor * fmax(1, rounding_layers(model) / 4);
}

typedef struct limits {
    double l2, max, loss;
} limits;

static limits limits_of(const ls_check_input *input, size_t step, size_t tensor) {
    if (input->c->run.dtype == LS_FLOAT64) {
        return (limits){float64_limit, float64_limit, float64_limit};
    }
    double floor = float32_limit(&input->c->model);
    limits out = {floor, floor, floor};
    const ls_baseline *baseline = input->baseline;
    if (baseline != NULL && step < baseline->steps) {
        size_t at = step * baseline->tensors + tensor;
        if (baseline->relative_l2[at] > cancelled) {
            return out;
        }
        out.l2 = fmax(out.l2, baseline_factor * baseline->relative_l2[at]);
        out.max = fmax(out.max, baseline_factor * baseline->relative_max[at]);
    }
    return out;
}

/* Float32 in a network of more than the four layers that the floor was measured on, and what may then be excused. */
static const double deep_limit = 1e-4;

static bool is_deep(const ls_case *c) {
    return c->run.dtype == LS_FLOAT32 && rounding_layers(&c->model) > 4;
}

double ls_gradient_limit(const ls_check_input *input, size_t step, size_t tensor) {
    double limit = limits_of(input, step, tensor).l2;
    return is_deep(input->c) ? fmax(limit, deep_limit) : limit;
}

double ls_gradient_limit_max(const ls_check_input *input, size_t step, size_t tensor) {
    return limits_of(input, step, tensor).max;
}

/* Where terms cancel almost wholly, a relative bound has nothing to hold on to. Then the error is judged against the
 * terms themselves: n = samples*positions terms are added in some order, and each carries the roundings of about sqrt(k)
 * for every layer of k-term sums that its factors passed, forward and backward. Random roundings of n terms add up to
 * lambda*sqrt(n)*u times sum|terms| but with probability 2*exp(-lambda^2/2) (Ipsen and Zhou, arXiv 1906.10465); lambda = 4.
 * Only where less than 1e-4 of the terms is left: elsewhere the relative bound is the sharper one; or up to an error of 1e-4
 * in a deep network: sums of 1e5 terms and more (samples times
 * positions) in a deep network's weight gradients round by more than the floor. */
static bool explained_by_cancellation(const ls_case *c, size_t step, const ls_param *param, const ls_distance *d,
                                      const double *magnitudes) {
    double square = 0;
    for (size_t i = param->offset; i < param->offset + param->count; i++) {
        square += magnitudes[i] * magnitudes[i];
    }
    const ls_layer *layer = &c->model.layers[param->layer];
    double terms = (double)(ls_case_samples(c, step) * layer->out.height * layer->out.width);
    double roundings = sqrt(terms);
    for (size_t p = 0; p < c->model.param_tensors; p++) {
        roundings += sqrt((double)c->model.params[p].fan_in); /* weight and bias: once forward, once backward */
    }
    double magnitude = sqrt(square);
    bool few_left = d->reference_l2 < 1e-4 * magnitude;
    bool deep = is_deep(c) && d->l2 <= deep_limit * d->reference_l2;
    return (few_left || deep) && d->l2 <= 4 * roundings * ls_roundoff(c->run.dtype) * magnitude;
}

typedef struct gradients {
    double *reference, *magnitudes; /* [param_count] */
    bool has_magnitudes;
    bool *informative; /* [tensors]: the reference was not zero in some step */
} gradients;

static void fail_tensor(const ls_check_input *input, size_t step, size_t rank, const ls_param *param,
                        const ls_distance *d, const gradients *g, limits limit, ls_finding *finding) {
    const ls_case *c = input->c;
    const void *found = ls_case_reduced(c, step, rank)->grads;
    char element[128];
    ls_element_name(&c->model, d->worst, element, sizeof element);
    ls_finding_fail(
        finding,
        "step %zu, rank %zu: gradient of %s is off by %.3g (norm) and %.3g (maximum), bounds %.3g and %.3g, "
        "scale %.6g; worst at %s: %a, oracle %a",
        step, rank, param->name, d->l2 / d->reference_l2, d->max / d->reference_max, limit.l2, limit.max,
        ls_scale_fit(c->run.dtype, found, g->reference, param->offset, param->count), element,
        ls_value(c->run.dtype, found, d->worst), g->reference[d->worst]);
}

static ls_rc check_tensor(const ls_check_input *input, size_t step, size_t rank, size_t tensor, gradients *g,
                          ls_finding *finding) {
    const ls_case *c = input->c;
    const ls_param *param = &c->model.params[tensor];
    ls_distance d = ls_distance_measure(c->run.dtype, ls_case_reduced(c, step, rank)->grads, g->reference,
                                        param->offset, param->count);
    limits limit = limits_of(input, step, tensor);
    g->informative[tensor] = g->informative[tensor] || d.reference_l2 > 0;
    double l2 = d.l2 == 0 ? 0 : d.l2 / d.reference_l2;
    double max = d.l2 == 0 ? 0 : d.max / d.reference_max;
    if (l2 <= limit.l2 && max <= limit.max) {
        ls_finding_measure(finding, l2, limit.l2);
        ls_finding_measure(finding, max, limit.max);
        return LS_OK;
    }
    if (isfinite(d.l2) && !g->has_magnitudes) {
        LS_TRY(ls_oracle_cache_magnitudes(input->oracle, c, step, g->magnitudes));
        g->has_magnitudes = true;
    }
    if (isfinite(d.l2) && explained_by_cancellation(c, step, param, &d, g->magnitudes)) {
        return LS_OK;
    }
    ls_finding_measure(finding, l2, limit.l2);
    ls_finding_measure(finding, max, limit.max);
    bool first = finding->detail[0] == '\0';
    fail_tensor(input, step, rank, param, &d, g, limit, finding);
    return first ? ls_diagnose_local(input, step, limit.l2, finding->cause, sizeof finding->cause) : LS_OK;
}

static void check_loss(const ls_check_input *input, size_t step, const char *whose, size_t index, double found,
                       double expected, ls_finding *finding) {
    double limit = limits_of(input, step, 0).loss * fmax(1, fabs(expected));
    if (!(fabs(found - expected) <= limit)) {
        ls_finding_measure(finding, fabs(found - expected) / fmax(1, fabs(expected)), limits_of(input, step, 0).loss);
        ls_finding_fail(finding, "step %zu: loss of %s %zu is %.17g, oracle %.17g (bound %.3g)", step, whose, index,
                        found, expected, limit);
    }
}

/* Cross entropy moves by at most twice the largest error of a logit, which the bounds on gradients hold to the same order; a
 * squared error by twice its root times the error of the output, its root by no more than that error: the same limit,
 * relative to losses above 1. */
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
            const ls_capture_local *record = ls_case_local(c, step, device);
            sum += local->loss_sum;
            samples += (size_t)record->count;
            if (!isnan(record->loss_sum) && record->count > 0) {
                double count = (double)record->count;
                check_loss(input, step, "device", device, record->loss_sum / count, local->loss_sum / count, finding);
            }
        }
        if (samples > 0) {
            ls_oracle_loss kind = ls_case_loss(c);
            check_loss(input, step, "rank", rank, ls_case_reduced(c, step, rank)->loss,
                       ls_oracle_loss_value(&kind, sum, (double)samples, c->model.classes), finding);
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
    g->has_magnitudes = false;
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
                     .magnitudes = ls_calloc(c->model.param_count, sizeof(double), "a gradient"),
                     .informative = ls_calloc(c->model.param_tensors, sizeof(bool), "tensors")};
    return g->reference != NULL && g->magnitudes != NULL && g->informative != NULL ? LS_OK : LS_DEVICE_FAILED;
}

static void gradients_close(gradients *g) {
    free(g->reference);
    free(g->magnitudes);
    free(g->informative);
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
    for (size_t tensor = 0; rc == LS_OK && tensor < c->model.param_tensors; tensor++) {
        if (!g.informative[tensor]) {
            ls_finding_mistrust(finding, "the gradient of %s is zero in every step", c->model.params[tensor].name);
        }
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
