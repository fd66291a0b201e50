#include "reference/oracle/oracle.h"

void ls_oracle_sgd(size_t count, double *params, const double *grads, double *velocity, double lr, double momentum,
                   double weight_decay, bool first) {
    for (size_t i = 0; i < count; i++) {
        double g = grads[i] + weight_decay * params[i];
        velocity[i] = first ? g : momentum * velocity[i] + g;
        params[i] -= lr * velocity[i];
    }
}
