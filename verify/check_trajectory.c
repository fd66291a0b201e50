/* Layer 6: the parameters after each step against the optimizer in float64, started from the same initial parameters and fed
 * the reduced gradients as the device recorded them. It sees what one step cannot: momentum, weight decay, a learning rate, a
 * gradient that is applied twice, late, or another one than was reported. That the recorded gradients are right is what layers
 * 2 to 4 show, so no error of theirs enters here: the bounds hold rounding alone, also where a gradient is nothing but
 * rounding (in front of a batchnorm), and in float32 also for optimizers that divide a gradient's scale out.
 *
 * SGD's bound, per tensor in the 2-norm, with u the sum of both sides' unit roundoffs and h what n elements lose by
 * underflow, sqrt(n) times the smallest number of the dtype. Let E be the error of w, V that of the velocity v, D that of
 * d = g + wd*w, k = 1 - dampening:
 *   D' = wd*E + 4u(|g| + wd|w|) + h                two roundings and that of wd
 *   V' = mu*V + k*D' + 5u(mu|v| + k|d|) + 2h       three roundings and that of mu; the first step copies d
 *   S  = D' without momentum, V' with it, D' + mu*V' + 4u(|d| + mu|v'|) + h with Nesterov's
 *   E' = E + lr*S + 2u|w'| + 4u*lr*|s| + h         product, subtraction and that of lr
 * where each rounding is at most u of its result and one more than there are covers the terms of second order. Adaptive
 * optimizers: check_trajectory_adaptive.c. */
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
    double h = ls_smallest(input->c->run.dtype) * sqrt((double)param->count);
    double d_error = o->weight_decay * t->e[tensor] + 4 * u * d + h;
    double carried = mu * t->velocity_error[tensor];
    t->velocity_error[tensor] = carried + keep * d_error + 5 * u * (mu * velocity + keep * d) + 2 * h;
    double update = o->momentum == 0 ? d : norm(t->state[0], param);
    double error = o->momentum == 0 ? d_error : t->velocity_error[tensor];
    if (o->nesterov) {
        update = d + o->momentum * update;
        error = d_error + o->momentum * error + 4 * u * update + h;
    }
    t->e[tensor] += lr * error + 2 * u * norm(t->w, param) + 4 * u * lr * update + h;
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
            double scale = d.reference_l2 > 0 ? d.reference_l2 : 1; /* a bias of zeros before it has learned */
            if (ls_finding_measure(finding, d.l2 / scale, t->e[p] / scale)) {
                continue;
            }
            char element[128];
            ls_element_name(&c->model, d.worst, element, sizeof element);
            ls_finding_fail(
                finding, "after step %zu, rank %zu: %s is off by %.3g, bound %.3g; worst at %s: %a, SGD in float64 %a",
                step, rank, param->name, d.l2 / scale, t->e[p] / scale, element, ls_value(c->run.dtype, found, d.worst),
                t->w[d.worst]);
        }
    }
}

static void follow(const ls_check_input *input, ls_trajectory *t, float *initial, ls_finding *finding) {
    const ls_case *c = input->c;
    ls_model_init(&c->model, c->run.seed, initial);
    for (size_t i = 0; i < c->model.param_count; i++) {
        t->w[i] = (double)initial[i];
    }
    for (size_t step = 0; step < c->steps; step++) {
        const void *grads = ls_case_reduced(c, step, 0)->grads; /* of all ranks: layer 1 */
        for (size_t i = 0; i < c->model.param_count; i++) {
            t->g[i] = ls_value(c->run.dtype, grads, i);
        }
        advance(input, step, t);
        compare(input, step, t, finding);
    }
    if (finding->status == LS_FAILED && finding->cause[0] == '\0') {
        snprintf(finding->cause, sizeof finding->cause,
                 "the update: a hyper-parameter of %s or its learning rate, or another gradient than the recorded one",
                 ls_optimizer_of(&c->run.optimizer)->title);
    }
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
    double *memory = ls_trajectory_open(c, &t);
    float *initial = ls_calloc(c->model.param_count, sizeof *initial, "initial values");
    bool ready = memory != NULL && initial != NULL;
    if (ready) {
        follow(input, &t, initial, finding);
    }
    free(memory);
    free(initial);
    return ready ? LS_OK : LS_DEVICE_FAILED;
}
