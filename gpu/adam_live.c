/* What Adam makes of its hyper-parameters and the step alone, for launches and for graphs of launches. */
#include <math.h>

#include "gpu/kernels/kernels.h"

void ls_adam_live(const ls_adam *o, double scalar[LS_STEP_SCALARS]) {
    double step = (double)o->step;
    scalar[0] = o->decoupled ? 1 - o->lr * o->weight_decay : 1;
    scalar[1] = sqrt(1 - pow(o->beta2, step));
    scalar[2] = -(o->lr / (1 - pow(o->beta1, step)));
}
