/* Layer 6 for Adam, AdamW and RMSprop, element by element: the step divides by a root of the element's own squares, so where
 * these cancel (centered RMSprop) the step may be anything, and a bound over a tensor would say nothing about the others.
 *
 * With u the sum of both sides' unit roundoffs, h the most that an underflow loses, E, M, V the errors of w, m, v (or of
 * RMSprop's v, average and velocity) and D that of d = g + wd*w:
 *   D  = wd*E + 3u(|g| + wd|w|) + h
 *   M' = b1*M + (1-b1)*D + 4u(|m'| + 2(1-b1)|d|) + 2h      b1|m| <= |m'| + (1-b1)|d|
 *   V' = b2*V + (1-b2)(2|d|D + D^2) + 5u(v' + (1-b2)d^2) + 3h
 *   R  = min(V'/sqrt(v'), sqrt(V')) + 2u*sqrt(v')          |sqrt a - sqrt b| = |a-b|/(sqrt a + sqrt b) <= sqrt|a-b|
 *   S  = R/c + 4u*s,  s = sqrt(v')/c + eps                 the device's own s is at least eps and s - S
 *   Q  = (M' + |m'/s|*S)/max(s - S, eps) + 4u|m'/s|
 *   E' = E + lr*Q/c1 + 3u(|w'| + lr/c1*|m'/s|) + 2h
 * where each rounding is at most u of its result, and one more than there are covers the terms of second order. */
#include <float.h>
#include <math.h>

#include "verify/trajectory.h"
#include "verify/values.h"

/* A quantity and the bound on its error. */
typedef struct uncertain {
    double value, error;
} uncertain;

/* sqrt(square). Not-a-number or nothing to divide by makes the error infinite. */
static uncertain root_of(uncertain square, double u) {
    double root = sqrt(square.value);
    double error = fmin(square.error / root, sqrt(square.error)) + 2 * u * root;
    return (uncertain){root, root > 0 && isfinite(error) ? error : sqrt(square.error)};
}

/* a/s with s at least `least` on the device. */
static uncertain quotient(uncertain a, uncertain s, double least, double u) {
    double ratio = fabs(a.value) / s.value;
    double smallest = fmax(s.value - s.error, least * (1 - 4 * u));
    double error = (a.error + ratio * s.error) / smallest + 4 * u * ratio;
    return (uncertain){ratio, smallest > 0 && !isnan(error) ? error : INFINITY};
}

/* Unit roundoff and underflow. */
typedef struct precision {
    double u, h;
} precision;

/* The error of a running average: keep of the new value, carry of the old error. */
static double average_error(double carry, double old, double keep, uncertain d, double now, precision p) {
    return carry * old + keep * d.error + 4 * p.u * (fabs(now) + 2 * keep * d.value) + 2 * p.h;
}

static double square_error(double carry, double old, double keep, uncertain d, double now, precision p) {
    double product = keep * (2 * d.value * d.error + d.error * d.error);
    return carry * old + product + 5 * p.u * (now + keep * d.value * d.value) + 3 * p.h;
}

static void adam_element(ls_trajectory *t, size_t i, uncertain d, size_t step, double lr, precision p) {
    const ls_oracle_optimizer *o = &t->optimizer;
    double u = p.u;
    double correction1 = 1 - pow(o->beta1, (double)(step + 1));
    double correction2 = sqrt(1 - pow(o->beta2, (double)(step + 1)));
    double *e = t->errors[0] + i, *m = t->errors[1] + i, *v = t->errors[2] + i, *top = t->errors[3] + i;
    *m = average_error(o->beta1, *m, 1 - o->beta1, d, t->state[0][i], p);
    *v = square_error(o->beta2, *v, 1 - o->beta2, d, t->state[1][i], p);
    *top = fmax(*top, *v);
    uncertain square = o->amsgrad ? (uncertain){t->state[2][i], *top} : (uncertain){t->state[1][i], *v};
    uncertain root = root_of(square, u);
    uncertain s = {root.value / correction2 + o->eps, 0};
    s.error = root.error / correction2 + 4 * u * s.value;
    uncertain q = quotient((uncertain){t->state[0][i], *m}, s, o->eps, u);
    double carried = o->rule == LS_ORACLE_ADAMW ? fabs(1 - lr * o->weight_decay) * *e + 2 * u * fabs(t->before[i]) : *e;
    double rate = lr / correction1;
    *e = carried + (rate > 0 ? rate * q.error + 3 * u * rate * q.value : 0) + 3 * u * fabs(t->w[i]) + 2 * p.h;
}

static void rmsprop_element(ls_trajectory *t, size_t i, uncertain d, double lr, precision p) {
    const ls_oracle_optimizer *o = &t->optimizer;
    double u = p.u;
    double *e = t->errors[0] + i, *v = t->errors[1] + i, *mean = t->errors[2] + i, *velocity = t->errors[3] + i;
    *v = square_error(o->alpha, *v, 1 - o->alpha, d, t->state[0][i], p);
    uncertain square = {t->state[0][i], *v};
    if (o->centered) {
        double a = t->state[1][i];
        *mean = average_error(o->alpha, *mean, 1 - o->alpha, d, a, p);
        square.error += 2 * fabs(a) * *mean + *mean * *mean + 3 * u * (square.value + a * a);
        /* as the oracle has it: nearer to any root that a device can take */
        square.value = fmax(0, square.value - a * a);
    }
    uncertain root = root_of(square, u);
    uncertain s = {root.value + o->eps, root.error + 2 * u * (root.value + o->eps)};
    uncertain q = quotient(d, s, o->eps, u);
    double step = t->state[2][i];
    *velocity = o->momentum * *velocity + q.error + 4 * u * (fabs(step) + q.value);
    *e += (lr > 0 ? lr * *velocity : 0) + 3 * u * (fabs(t->w[i]) + lr * fabs(step)) + 2 * p.h;
}

void ls_trajectory_adaptive_advance(const ls_check_input *input, size_t step, double lr, ls_trajectory *t) {
    const ls_model *model = &input->c->model;
    ls_dtype dtype = input->c->run.dtype;
    precision p = {ls_roundoff(dtype) + DBL_EPSILON / 2, ls_smallest(dtype)};
    double decay = t->optimizer.rule == LS_ORACLE_ADAMW ? 0 : t->optimizer.weight_decay;
    for (size_t i = 0; i < model->param_count; i++) {
        uncertain d = {fabs(t->g[i]) + decay * fabs(t->before[i]), 0};
        d.error = decay * t->errors[0][i] + 3 * p.u * d.value + p.h;
        if (t->optimizer.rule == LS_ORACLE_RMSPROP) {
            rmsprop_element(t, i, d, lr, p);
        } else {
            adam_element(t, i, d, step, lr, p);
        }
    }
}

static void compare_tensor(const ls_case *c, size_t step, size_t rank, const ls_param *param, const ls_trajectory *t,
                           ls_finding *finding) {
    const void *found = ls_case_reduced(c, step, rank)->params_after;
    size_t worst = param->offset;
    double worst_ratio = -1;
    for (size_t i = param->offset; i < param->offset + param->count; i++) {
        double error = fabs(ls_value(c->run.dtype, found, i) - t->w[i]);
        double ratio = isnan(error) ? INFINITY : error / t->errors[0][i];
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst = i;
        }
    }
    double value = ls_value(c->run.dtype, found, worst);
    double error = fabs(value - t->w[worst]);
    if (!ls_finding_measure(finding, error, t->errors[0][worst])) {
        char element[128];
        ls_element_name(&c->model, worst, element, sizeof element);
        ls_finding_fail(finding, "after step %zu, rank %zu: %s is %a, %s in float64 gives %a: off by %.3g, bound %.3g",
                        step, rank, element, value, ls_optimizer_of(&c->run.optimizer)->title, t->w[worst], error,
                        t->errors[0][worst]);
    }
}

void ls_trajectory_adaptive_compare(const ls_check_input *input, size_t step, const ls_trajectory *t,
                                    ls_finding *finding) {
    const ls_case *c = input->c;
    for (size_t rank = 0; rank < c->ranks; rank++) {
        for (size_t p = 0; p < c->model.param_tensors; p++) {
            compare_tensor(c, step, rank, &c->model.params[p], t, finding);
        }
    }
}
