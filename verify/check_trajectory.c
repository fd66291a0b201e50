/* Layer 6: the parameters after each step against SGD in float64, started from the same initial parameters and fed the
 * oracle's gradients at the parameters that each step started from. It sees what one step cannot: momentum, weight decay,
 * a learning rate, a gradient that is applied twice or late.
 *
 * Bound, per tensor in the 2-norm, with t the limit on a gradient's relative error (layers 3 and 4) and u the sum of both
 * sides' unit roundoffs. Let E be the error of w, V that of the velocity v, D that of d = g + wd*w:
 *   D' = t|g| + wd*E + 4u(|g| + wd|w|)             two roundings and that of wd
 *   V' = mu*V + D' + 4u(mu|v| + |d|)               two roundings and that of mu; the first step copies d
 *   E' = E + lr*V' + 2u|w'| + 4u*lr*|v'|           product, subtraction and that of lr
 * where each rounding is at most u of its result and 4 in place of 3 (2 in place of 1) covers the terms of second order. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/check.h"
#include "verify/values.h"

typedef struct path {
    double *w, *v, *g;                          /* float64 SGD: [param_count] */
    double e[LS_MODEL_MAX_PARAMS];              /* E of each tensor */
    double velocity_error[LS_MODEL_MAX_PARAMS]; /* V */
} path;

static double norm(const double *values, const ls_param *param) {
    double square = 0;
    for (size_t i = param->offset; i < param->offset + param->count; i++) {
        square += values[i] * values[i];
    }
    return sqrt(square);
}

/* Advances the float64 path by one step and each tensor's bound with it. */
static void advance(const ls_check_input *input, size_t step, path *p) {
    const ls_run *run = &input->c->run;
    const ls_model *model = &input->c->model;
    double u = ls_roundoff(run->dtype) + DBL_EPSILON / 2;
    double before[LS_MODEL_MAX_PARAMS][2];
    for (size_t t = 0; t < model->param_tensors; t++) {
        before[t][0] = norm(p->w, &model->params[t]);
        before[t][1] = step == 0 ? 0 : run->momentum * norm(p->v, &model->params[t]);
    }
    ls_oracle_sgd(model->param_count, p->w, p->g, p->v, run->lr, run->momentum, run->weight_decay, step == 0);
    for (size_t t = 0; t < model->param_tensors; t++) {
        const ls_param *param = &model->params[t];
        double decayed = run->weight_decay * before[t][0];
        double g = norm(p->g, param);
        double d = ls_gradient_limit(input, step, t) * g + run->weight_decay * p->e[t] + 4 * u * (g + decayed);
        double carried = step == 0 ? 0 : run->momentum * p->velocity_error[t];
        p->velocity_error[t] = carried + d + 4 * u * (before[t][1] + g + decayed);
        p->e[t] += run->lr * p->velocity_error[t] + 2 * u * norm(p->w, param) + 4 * u * run->lr * norm(p->v, param);
    }
}

static void compare(const ls_case *c, size_t step, const path *p, ls_finding *finding) {
    for (size_t rank = 0; rank < c->ranks; rank++) {
        const void *found = ls_case_reduced(c, step, rank)->params_after;
        for (size_t t = 0; t < c->model.param_tensors; t++) {
            const ls_param *param = &c->model.params[t];
            ls_distance d = ls_distance_measure(c->run.dtype, found, p->w, param->offset, param->count);
            if (ls_finding_measure(finding, d.l2 / d.reference_l2, p->e[t] / d.reference_l2)) {
                continue;
            }
            char element[128];
            ls_element_name(&c->model, d.worst, element, sizeof element);
            ls_finding_fail(
                finding, "after step %zu, rank %zu: %s is off by %.3g, bound %.3g; worst at %s: %a, SGD in float64 %a",
                step, rank, param->name, d.l2 / d.reference_l2, p->e[t] / d.reference_l2, element,
                ls_value(c->run.dtype, found, d.worst), p->w[d.worst]);
        }
    }
}

static ls_rc follow(const ls_check_input *input, path *p, float *initial, ls_finding *finding) {
    const ls_case *c = input->c;
    ls_model_init(&c->model, c->run.seed, initial);
    for (size_t i = 0; i < c->model.param_count; i++) {
        p->w[i] = (double)initial[i];
    }
    for (size_t step = 0; step < c->steps; step++) {
        double loss = 0;
        LS_TRY(ls_oracle_cache_global(input->oracle, c, step, p->g, &loss));
        advance(input, step, p);
        compare(c, step, p, finding);
    }
    if (finding->status == LS_FAILED && finding->cause[0] == '\0') {
        snprintf(finding->cause, sizeof finding->cause,
                 "the update: learning rate, momentum or weight decay, or a gradient that is wrong (layers 2 to 4)");
    }
    return LS_OK;
}

ls_rc ls_check_trajectory(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    path p = {.w = ls_calloc(c->model.param_count, sizeof(double), "parameters"),
              .v = ls_calloc(c->model.param_count, sizeof(double), "velocity"),
              .g = ls_calloc(c->model.param_count, sizeof(double), "a gradient")};
    float *initial = ls_calloc(c->model.param_count, sizeof *initial, "initial values");
    ls_rc rc = LS_DEVICE_FAILED;
    if (p.w != NULL && p.v != NULL && p.g != NULL && initial != NULL) {
        rc = follow(input, &p, initial, finding);
    }
    free(p.w);
    free(p.v);
    free(p.g);
    free(initial);
    return rc;
}
