/* Layer 6: each step's update by itself: the optimizer in float64, given the very parameters, gradient and state that the
 * device had, must give the parameters and the state that it ended with, element by element. Nothing but the roundings of one
 * update lies between, so this holds in float32 for every optimizer, and sees what a trajectory through wrong gradients
 * cannot: an epsilon inside the root, a decay that is coupled, the first step damped, a buffer that was not kept.
 *
 * Rank 0 is judged: the others have its bits (layer 1). Adam's, AdamW's and RMSprop's bounds are those of
 * check_trajectory_adaptive.c without an error to start from. SGD's, with |d| <= |g| + wd|w| and u as there:
 *   D = 3u(|g| + wd|w|)                        product, sum and that of wd
 *   V = D at first, else k*D + 4u(mu|v| + k|d|)
 *   S = D without momentum, V with it, D + mu*V + 3u(|d| + mu|v'|) with Nesterov's
 *   E = lr*S + 3u*lr*|s| + 2u|w'|              product, that of lr, subtraction
 * and the smallest denormal for what may underflow in each. One more rounding than there are covers second order. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/trajectory.h"
#include "verify/values.h"

/* The oracle's buffer that holds what the device's k-th does. */
static size_t oracle_state(const ls_oracle_optimizer *o, size_t k) {
    return o->rule == LS_ORACLE_RMSPROP && k == 1 && !o->centered ? 2 : k;
}

static void load(const ls_case *c, const void *values, size_t first, double *out) {
    for (size_t i = 0; i < c->model.param_count; i++) {
        out[i] = ls_value(c->run.dtype, values, first + i);
    }
}

/* What the device had before the update of a step. */
static void start_step(const ls_case *c, size_t step, ls_trajectory *t) {
    const ls_capture_reduced *record = ls_case_reduced(c, step, 0);
    size_t count = c->model.param_count;
    load(c, record->params_before, 0, t->w);
    load(c, record->grads, 0, t->g);
    memcpy(t->before, t->w, count * sizeof *t->before);
    for (size_t k = 0; k < 1 + LS_ORACLE_STATES; k++) {
        memset(t->errors[k], 0, count * sizeof *t->errors[k]);
    }
    for (size_t k = 0; k < LS_ORACLE_STATES; k++) {
        memset(t->state[k], 0, count * sizeof *t->state[k]);
    }
    for (size_t k = 0; step > 0 && k < record->state_count; k++) {
        load(c, ls_case_reduced(c, step - 1, 0)->state, k * count, t->state[oracle_state(&t->optimizer, k)]);
    }
}

/* After the oracle's step; old: |v| before it. */
static void sgd_element(const ls_case *c, ls_trajectory *t, size_t i, double old, double lr, bool first) {
    const ls_oracle_optimizer *o = &t->optimizer;
    double u = ls_roundoff(c->run.dtype) + DBL_EPSILON / 2, tiny = ls_smallest(c->run.dtype);
    double mu = first ? 0 : o->momentum, keep = first ? 1 : fabs(1 - o->dampening);
    double d = fabs(t->g[i]) + o->weight_decay * fabs(t->before[i]);
    double d_error = 3 * u * d + tiny;
    double v_error = first ? d_error : keep * d_error + 4 * u * (mu * old + keep * d) + 2 * tiny;
    double s = o->momentum == 0 ? d : fabs(t->state[0][i]);
    double s_error = o->momentum == 0 ? d_error : v_error;
    if (o->nesterov) {
        s = d + o->momentum * s;
        s_error = d_error + o->momentum * v_error + 3 * u * s + tiny;
    }
    t->errors[1][i] = v_error;
    t->errors[0][i] = lr * s_error + 3 * u * lr * s + 2 * u * fabs(t->w[i]) + 2 * tiny;
}

static void update(const ls_check_input *input, size_t step, double *old, ls_trajectory *t) {
    const ls_case *c = input->c;
    double lr = ls_case_rate(c, step);
    size_t count = c->model.param_count;
    for (size_t i = 0; i < count; i++) {
        old[i] = fabs(t->state[0][i]);
    }
    ls_oracle_update(&t->optimizer, count, t->w, t->g, t->state, step, lr);
    if (t->optimizer.rule != LS_ORACLE_SGD) {
        ls_trajectory_adaptive_advance(input, step, lr, t);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        sgd_element(c, t, i, old[i], lr, step == 0);
    }
}

/* values[first ..) of the device against the oracle's and its bounds. what: "parameter", or the state's name. */
static void compare(const ls_case *c, size_t step, const char *what, const void *values, size_t first,
                    const double *right, const double *bounds, ls_finding *finding) {
    size_t worst = 0;
    double worst_ratio = 0;
    for (size_t i = 0; i < c->model.param_count; i++) {
        double error = fabs(ls_value(c->run.dtype, values, first + i) - right[i]);
        double ratio = error == 0 ? 0 : isnan(error) ? INFINITY : error / bounds[i];
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst = i;
        }
    }
    if (!ls_finding_measure(finding, worst_ratio, 1)) {
        char element[128];
        ls_element_name(&c->model, worst, element, sizeof element);
        double found = ls_value(c->run.dtype, values, first + worst);
        ls_finding_fail(finding,
                        "step %zu: %s of %s is %a, %s in float64 gives %a of the same gradient (difference %.3g, bound "
                        "%.3g)",
                        step, what, element, found, ls_optimizer_of(&c->run.optimizer)->title, right[worst],
                        fabs(found - right[worst]), bounds[worst]);
        if (finding->cause[0] == '\0') {
            snprintf(finding->cause, sizeof finding->cause,
                     "the update: a hyper-parameter of %s, its formula or its learning rate, or a state that was not "
                     "kept",
                     ls_optimizer_of(&c->run.optimizer)->title);
        }
    }
}

static void check_step(const ls_check_input *input, size_t step, double *old, ls_trajectory *t, ls_finding *finding) {
    const ls_case *c = input->c;
    const ls_capture_reduced *record = ls_case_reduced(c, step, 0);
    start_step(c, step, t);
    update(input, step, old, t);
    for (size_t k = 0; k < record->state_count; k++) {
        size_t j = oracle_state(&t->optimizer, k);
        compare(c, step, ls_optimizer_state_name(&c->run.optimizer, k), record->state, k * c->model.param_count,
                t->state[j], t->errors[1 + j], finding);
    }
    compare(c, step, "the new value", record->params_after, 0, t->w, t->errors[0], finding);
}

ls_rc ls_check_update(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    ls_trajectory t = {.exact_gradient = true};
    if (!ls_case_optimizer(c, &t.optimizer)) {
        ls_finding_skip(finding, "the oracle does not know %s", ls_optimizer_of(&c->run.optimizer)->title);
        return LS_OK;
    }
    double *old = ls_calloc(c->model.param_count, sizeof *old, "an update");
    double *memory = ls_trajectory_open(c, &t);
    for (size_t step = 0; memory != NULL && old != NULL && step < c->steps; step++) {
        check_step(input, step, old, &t, finding);
    }
    ls_rc rc = memory != NULL && old != NULL ? LS_OK : LS_DEVICE_FAILED;
    free(memory);
    free(old);
    return rc;
}
