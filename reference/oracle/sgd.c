#include "reference/oracle/oracle.h"

void ls_oracle_sgd(const ls_oracle_optimizer *o, size_t count, double *params, const double *grads, double *velocity,
                   double lr, bool first) {
    double sign = o->maximize ? -1 : 1;
    for (size_t i = 0; i < count; i++) {
        double g = sign * grads[i] + o->weight_decay * params[i];
        velocity[i] = first ? g : o->momentum * velocity[i] + (1 - o->dampening) * g;
        double step = o->momentum == 0 ? g : o->nesterov ? g + o->momentum * velocity[i] : velocity[i];
        params[i] -= lr * step;
    }
}
