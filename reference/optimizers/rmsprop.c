/* torch.optim.RMSprop. */
#include "gpu/base/mutant.h"
#include "gpu/kernels/kernels.h"
#include "reference/mutant_faults.h"
#include "reference/optimizers/optimizers.h"

static size_t states(const ls_optimizer_options *options, const char *names[LS_OPTIMIZER_MAX_STATES]) {
    size_t count = 0;
    names[count++] = "square_avg";
    if (options->centered) {
        names[count++] = "grad_avg";
    }
    if (options->momentum != 0) {
        names[count++] = "momentum_buffer";
    }
    return count;
}

static void live(const ls_optimizer_options *options, uint64_t steps, double lr, double scalar[LS_STEP_SCALARS]) {
    (void)options;
    (void)steps;
    scalar[0] = lr;
}

static cudaError_t step(const ls_optimizer_options *options, const ls_optimizer_step *s) {
    if (LS_MUTANT(eps_under_root)) {
        return ls_mutant_rmsprop(options, s) == LS_OK ? cudaSuccess : cudaErrorUnknown;
    }
    ls_rmsprop rmsprop = {.lr = s->lr,
                          .alpha = options->alpha,
                          .eps = options->eps,
                          .weight_decay = options->weight_decay,
                          .momentum = options->momentum,
                          .centered = options->centered,
                          .maximize = options->maximize,
                          .live = s->live};
    void *velocity = options->momentum != 0 ? s->state[options->centered ? 2 : 1] : NULL;
    return ls_kernel_rmsprop(s->stream, s->dtype, s->count, s->param, s->grad, s->state[0],
                             options->centered ? s->state[1] : NULL, velocity, &rmsprop);
}

const ls_optimizer ls_optimizer_rmsprop = {
    .name = "rmsprop",
    .title = "RMSprop",
    .knows = LS_KNOWS_MOMENTUM | LS_KNOWS_EPS | LS_KNOWS_ALPHA | LS_KNOWS_CENTERED,
    .lr = 1e-2,
    .defaults = {.alpha = 0.99, .eps = 1e-8},
    .states = states,
    .live = live,
    .step = step,
};
