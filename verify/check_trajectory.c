/* Layer 6: the parameters after each step against the optimizer in float64, started from the same initial parameters and fed
 * the oracle's gradients at the parameters that each step started from. It sees what one step cannot: momentum, weight
 * decay, a learning rate, a gradient that is applied twice or late.
 *
 * SGD's bound, per tensor in the 2-norm, with t the limit on a gradient's relative error (layers 3 and 4) and u the sum of
 * both sides' unit roundoffs. Let E be the error of w, V that of the velocity v, D that of d = g + wd*w, k = 1 - dampening:
 *   D' = t|g| + wd*E + 4u(|g| + wd|w|)             two roundings and that of wd
 *   V' = mu*V + k*D' + 5u(mu|v| + k|d|)            three roundings and that of mu; the first step copies d
 *   S  = D' without momentum, V' with it, D' + mu*V' + 4u(|d| + mu|v'|) with Nesterov's
 *   E' = E + lr*S + 2u|w'| + 4u*lr*|s|             product, subtraction and that of lr
 * where each rounding is at most u of its result and one more than there are covers the terms of second order.
 *
 * Adaptive optimizers are followed in float64 alone (check_trajectory_adaptive.c). They divide a gradient's scale out, so
 * that in float32 a gradient off by a factor would leave the parameters within any honest bound: layer 4, which compares
 * gradients, is what finds it. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/trajectory.h"
#include "verify/values.h"

static double norm(const double *values, const ls_param *param) {
    double square = 0;
    for (size_t i = param->offset; i < param->offset + param->count; i++) {
        square += values[i] * values[i];
    }
    return sqrt(square);
}

/* A tensor's bound, one step on. velocity: |v| before the step. */
static void sgd_tensor(const ls_check_input *input, size_t step, size_t tensor, double lr, double velocity,
                       ls_trajectory *t) {
    const ls_oracle_optimizer *o = &t->optimizer;
    const ls_param *param = &input->c->model.params[tensor];
    double u = ls_roundoff(input->c->run.dtype) + DBL_EPSILON / 2;
    double mu = step == 0 ? 0 : o->momentum;
    double keep = step == 0 ? 1 : fabs(1 - o->dampening);
    double g = norm(t->g, param);
    double d = g + o->weight_decay * norm(t->before, param);
    double d_error = ls_gradient_limit(input, step, tensor) * g + o->weight_decay * t->e[tensor] + 4 * u * d;
    double carried = mu * t->velocity_error[tensor];
    t->velocity_error[tensor] = carried + keep * d_error + 5 * u * (mu * velocity + keep * d);
    double update = o->momentum == 0 ? d : norm(t->state[0], param);
    double error = o->momentum == 0 ? d_error : t->velocity_error[tensor];
    if (o->nesterov) {
        update = d + o->momentum * update;
        error = d_error + o->momentum * error + 4 * u * update;
    }
    t->e[tensor] += lr * error + 2 * u * norm(t->w, param) + 4 * u * lr * update;
}

/* Advances the float64 path by one step and its bounds with it. */
static void advance(const ls_check_input *input, size_t step, ls_trajectory *t) {
    const ls_model *model = &input->c->model;
    double lr = ls_case_rate(input->c, step);
    double velocity[LS_MODEL_MAX_PARAMS];
    for (size_t p = 0; p < model->param_tensors; p++) {
        velocity[p] = norm(t->state[0], &model->params[p]);
    }
    memcpy(t->before, t->w, model->param_count * sizeof *t->w);
    ls_oracle_update(&t->optimizer, model->param_count, t->w, t->g, t->state, step, lr);
    if (t->optimizer.rule != LS_ORACLE_SGD) {
        ls_trajectory_adaptive_advance(input, step, lr, t);
        return;
    }
    for (size_t p = 0; p < model->param_tensors; p++) {
        sgd_tensor(input, step, p, lr, velocity[p], t);
    }
}

static void compare(const ls_check_input *input, size_t step, const ls_trajectory *t, ls_finding *finding) {
    const ls_case *c = input->c;
    if (t->optimizer.rule != LS_ORACLE_SGD) {
        ls_trajectory_adaptive_compare(input, step, t, finding);
        return;
    }
    for (size_t rank = 0; rank < c->ranks; rank++) {
        const void *found = ls_case_reduced(c, step, rank)->params_after;
        for (size_t p = 0; p < c->model.param_tensors; p++) {
            const ls_param *param = &c->model.params[p];
            ls_distance d = ls_distance_measure(c->run.dtype, found, t->w, param->offset, param->count);
            if (ls_finding_measure(finding, d.l2 / d.reference_l2, t->e[p] / d.reference_l2)) {
                continue;
            }
            char element[128];
            ls_element_name(&c->model, d.worst, element, sizeof element);
            ls_finding_fail(
                finding, "after step %zu, rank %zu: %s is off by %.3g, bound %.3g; worst at %s: %a, SGD in float64 %a",
                step, rank, param->name, d.l2 / d.reference_l2, t->e[p] / d.reference_l2, element,
                ls_value(c->run.dtype, found, d.worst), t->w[d.worst]);
        }
    }
}

static ls_rc follow(const ls_check_input *input, ls_trajectory *t, float *initial, ls_finding *finding) {
    const ls_case *c = input->c;
    ls_model_init(&c->model, c->run.seed, initial);
    for (size_t i = 0; i < c->model.param_count; i++) {
        t->w[i] = (double)initial[i];
    }
    for (size_t step = 0; step < c->steps; step++) {
        double loss = 0;
        LS_TRY(ls_oracle_cache_global(input->oracle, c, step, t->g, &loss));
        advance(input, step, t);
        compare(input, step, t, finding);
    }
    if (finding->status == LS_FAILED && finding->cause[0] == '\0') {
        snprintf(
            finding->cause, sizeof finding->cause,
            "the update: a hyper-parameter of %s or its learning rate, or a gradient that is wrong (layers 2 to 4)",
            ls_optimizer_of(&c->run.optimizer)->title);
    }
    return LS_OK;
}

double *ls_trajectory_open(const ls_case *c, ls_trajectory *t) {
    double **buffers[] = {&t->w,        &t->g,         &t->before,    &t->state[0],  &t->state[1],
                          &t->state[2], &t->errors[0], &t->errors[1], &t->errors[2], &t->errors[3]};
    size_t count = sizeof buffers / sizeof buffers[0];
    double *memory = ls_calloc(count * c->model.param_count, sizeof *memory, "a trajectory");
    for (size_t i = 0; memory != NULL && i < count; i++) {
        *buffers[i] = memory + i * c->model.param_count;
    }
    return memory;
}

ls_rc ls_check_trajectory(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    ls_trajectory t = {0};
    const char *title = ls_optimizer_of(&c->run.optimizer)->title;
    if (!ls_case_optimizer(c, &t.optimizer)) {
        ls_finding_skip(finding, "the oracle does not know %s: gradients alone are compared", title);
        return LS_OK;
    }
    if (t.optimizer.rule != LS_ORACLE_SGD && c->run.dtype != LS_FLOAT64) {
        ls_finding_skip(finding,
                        "%s divides a gradient's scale out, so in float32 its parameters would hide a wrong scale: "
                        "gradients alone are compared",
                        title);
        return LS_OK;
    }
    double *memory = ls_trajectory_open(c, &t);
    float *initial = ls_calloc(c->model.param_count, sizeof *initial, "initial values");
    ls_rc rc = memory != NULL && initial != NULL ? follow(input, &t, initial, finding) : LS_DEVICE_FAILED;
    free(memory);
    free(initial);
    return rc;
}
