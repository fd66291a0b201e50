/* torch.optim.Adam and torch.optim.AdamW: one kernel, which differ in what weight decay does. */
#include "gpu/base/mutant.h"
#include "gpu/kernels/kernels.h"
#include "reference/mutant_faults.h"
#include "reference/optimizers/optimizers.h"

static size_t states(const ls_optimizer_options *options, const char *names[LS_OPTIMIZER_MAX_STATES]) {
    names[0] = "exp_avg";
    names[1] = "exp_avg_sq";
    names[2] = "max_exp_avg_sq";
    return options->amsgrad ? 3 : 2;
}

static ls_adam adam_of(const ls_optimizer_options *options, uint64_t steps, double lr, bool decoupled) {
    return (ls_adam){.lr = lr,
                     .beta1 = options->beta1,
                     .beta2 = options->beta2,
                     .eps = options->eps,
                     .weight_decay = options->weight_decay,
                     .decoupled = decoupled,
                     .amsgrad = options->amsgrad,
                     .maximize = options->maximize,
                     .step = steps + 1};
}

static void adam_live(const ls_optimizer_options *options, uint64_t steps, double lr, double scalar[LS_STEP_SCALARS]) {
    ls_adam adam = adam_of(options, steps, lr, false);
    ls_adam_live(&adam, scalar);
}

static void adamw_live(const ls_optimizer_options *options, uint64_t steps, double lr, double scalar[LS_STEP_SCALARS]) {
    ls_adam adam = adam_of(options, steps, lr, !LS_MUTANT(decay_coupled));
    ls_adam_live(&adam, scalar);
}

static cudaError_t launch(const ls_optimizer_options *options, const ls_optimizer_step *s, bool decoupled) {
    ls_adam adam = adam_of(options, s->steps, s->lr, decoupled);
    adam.live = s->live;
    return ls_kernel_adam(s->stream, s->dtype, s->count, s->param, s->grad, s->state[0], s->state[1],
                          options->amsgrad ? s->state[2] : NULL, &adam);
}

static cudaError_t adam_step(const ls_optimizer_options *options, const ls_optimizer_step *s) {
    if (LS_MUTANT(eps_under_root)) {
        return ls_mutant_adam(options, s) == LS_OK ? cudaSuccess : cudaErrorUnknown;
    }
    return launch(options, s, false);
}

static cudaError_t adamw_step(const ls_optimizer_options *options, const ls_optimizer_step *s) {
    return launch(options, s, !LS_MUTANT(decay_coupled));
}

const ls_optimizer ls_optimizer_adam = {
    .name = "adam",
    .title = "Adam",
    .knows = LS_KNOWS_BETAS | LS_KNOWS_EPS | LS_KNOWS_AMSGRAD,
    .lr = 1e-3,
    .defaults = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .states = states,
    .live = adam_live,
    .step = adam_step,
};

const ls_optimizer ls_optimizer_adamw = {
    .name = "adamw",
    .title = "AdamW",
    .knows = LS_KNOWS_BETAS | LS_KNOWS_EPS | LS_KNOWS_AMSGRAD,
    .lr = 1e-3,
    .defaults = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .states = states,
    .live = adamw_live,
    .step = adamw_step,
};
