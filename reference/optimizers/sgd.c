/* torch.optim.SGD. Momentum 0.5 is the default of the seed networks' sources, PyTorch's own is 0. */
#include "gpu/base/mutant.h"
#include "gpu/kernels/kernels.h"
#include "reference/optimizers/optimizers.h"

static size_t states(const ls_optimizer_options *options, const char *names[LS_OPTIMIZER_MAX_STATES]) {
    names[0] = "momentum_buffer";
    return options->momentum != 0 ? 1 : 0;
}

static ls_rc check(const ls_optimizer_options *options) {
    if (options->nesterov && (options->momentum == 0 || options->dampening != 0)) {
        return ls_fail(LS_BAD_INPUT,
                       "--nesterov needs --momentum above 0 and --dampening 0, found momentum %g and dampening %g",
                       options->momentum, options->dampening);
    }
    return LS_OK;
}

/* Not whether it is the first step: that one is another kernel, and never captured for the steps that follow. */
static void live(const ls_optimizer_options *options, uint64_t steps, double lr, double scalar[LS_STEP_SCALARS]) {
    (void)options;
    (void)steps;
    scalar[0] = lr;
}

static cudaError_t step(const ls_optimizer_options *options, const ls_optimizer_step *s) {
    ls_sgd sgd = {.lr = s->lr,
                  .momentum = options->momentum,
                  .dampening = options->dampening,
                  .weight_decay = options->weight_decay,
                  .nesterov = options->nesterov,
                  .maximize = options->maximize,
                  .first = s->steps == 0 && !LS_MUTANT(first_step_dampened),
                  .live = s->live};
    return ls_kernel_sgd(s->stream, s->dtype, s->count, s->param, s->grad, options->momentum != 0 ? s->state[0] : NULL,
                         &sgd);
}

const ls_optimizer ls_optimizer_sgd = {
    .name = "sgd",
    .title = "SGD",
    .knows = LS_KNOWS_MOMENTUM | LS_KNOWS_DAMPENING | LS_KNOWS_NESTEROV,
    .lr = 0.01,
    .defaults = {.momentum = 0.5},
    .states = states,
    .check = check,
    .live = live,
    .step = step,
};
