/* Adam, AdamW and RMSprop, and the choice among all optimizers. */
#include <math.h>

#include "reference/oracle/oracle.h"

/* Kingma and Ba, arXiv 1412.6980, algorithm 1, with epsilon beside the root of the corrected moment; AdamW: Loshchilov and
 * Hutter, arXiv 1711.05101; AMSGrad: Reddi et al., arXiv 1904.09237, its largest moment taken before the correction. */
static void adam(const ls_oracle_optimizer *o, size_t count, double *w, const double *grads, double *const *state,
                 size_t step, double lr) {
    double sign = o->maximize ? -1 : 1;
    double correction1 = 1 - pow(o->beta1, (double)(step + 1));
    double correction2 = sqrt(1 - pow(o->beta2, (double)(step + 1)));
    for (size_t i = 0; i < count; i++) {
        double g = sign * grads[i];
        if (o->rule == LS_ORACLE_ADAMW) {
            w[i] *= 1 - lr * o->weight_decay;
        } else {
            g += o->weight_decay * w[i];
        }
        state[0][i] = o->beta1 * state[0][i] + (1 - o->beta1) * g;
        state[1][i] = o->beta2 * state[1][i] + (1 - o->beta2) * g * g;
        double square = state[1][i];
        if (o->amsgrad) {
            state[2][i] = fmax(state[2][i], square);
            square = state[2][i];
        }
        w[i] -= lr / correction1 * state[0][i] / (sqrt(square) / correction2 + o->eps);
    }
}

/* Hinton's RMSprop; centered: Graves, arXiv 1308.0850, equations 38 to 45, epsilon outside the root. States: square average,
 * gradient average, velocity. */
static void rmsprop(const ls_oracle_optimizer *o, size_t count, double *w, const double *grads, double *const *state,
                    double lr) {
    double sign = o->maximize ? -1 : 1;
    for (size_t i = 0; i < count; i++) {
        double g = sign * grads[i] + o->weight_decay * w[i];
        state[0][i] = o->alpha * state[0][i] + (1 - o->alpha) * g * g;
        double square = state[0][i];
        if (o->centered) {
            state[1][i] = o->alpha * state[1][i] + (1 - o->alpha) * g;
            /* below zero by what a device lost in its states alone */
            square = fmax(0, square - state[1][i] * state[1][i]);
        }
        state[2][i] = o->momentum * state[2][i] + g / (sqrt(square) + o->eps);
        w[i] -= lr * state[2][i];
    }
}

void ls_oracle_update(const ls_oracle_optimizer *o, size_t count, double *params, const double *grads,
                      double *const *state, size_t step, double lr) {
    switch (o->rule) {
    case LS_ORACLE_SGD:
        ls_oracle_sgd(o, count, params, grads, state[0], lr, step == 0);
        break;
    case LS_ORACLE_ADAM:
    case LS_ORACLE_ADAMW:
        adam(o, count, params, grads, state, step, lr);
        break;
    case LS_ORACLE_RMSPROP:
        rmsprop(o, count, params, grads, state, lr);
        break;
    }
}
