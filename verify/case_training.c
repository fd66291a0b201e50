/* What a case's run says of its training, in the oracle's terms. The oracle shares no type with what it judges. */
#include <string.h>

#include "impls/rank.h"
#include "verify/case.h"

ls_oracle_loss ls_case_loss(const ls_case *c) {
    const ls_loss_options *o = &c->run.loss;
    ls_oracle_loss loss = {.sum = o->reduction == LS_LOSS_SUM, .label_smoothing = o->label_smoothing};
    loss.kind = o->kind == LS_LOSS_MSE    ? LS_ORACLE_MSE
                : o->kind == LS_LOSS_RMSE ? LS_ORACLE_RMSE
                                          : LS_ORACLE_CROSS_ENTROPY;
    return loss;
}

/* By name, so that an optimizer that the oracle does not know cannot pass for another. */
bool ls_case_optimizer(const ls_case *c, ls_oracle_optimizer *out) {
    static const struct {
        const char *name;
        int rule;
    } rules[] = {
        {"sgd", LS_ORACLE_SGD}, {"adam", LS_ORACLE_ADAM}, {"adamw", LS_ORACLE_ADAMW}, {"rmsprop", LS_ORACLE_RMSPROP}};
    const ls_optimizer_options *o = &c->run.optimizer;
    *out = (ls_oracle_optimizer){.momentum = o->momentum,
                                 .dampening = o->dampening,
                                 .weight_decay = o->weight_decay,
                                 .beta1 = o->beta1,
                                 .beta2 = o->beta2,
                                 .eps = o->eps,
                                 .alpha = o->alpha,
                                 .nesterov = o->nesterov,
                                 .amsgrad = o->amsgrad,
                                 .centered = o->centered,
                                 .maximize = o->maximize};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(ls_optimizer_of(o)->name, rules[i].name) == 0) {
            out->rule = rules[i].rule;
            return true;
        }
    }
    return false;
}

double ls_case_rate(const ls_case *c, size_t step) {
    size_t rest = c->run.drop_last ? 0 : c->ranks - 1;
    size_t length = (c->data->count + rest) / c->ranks; /* samples of a rank in an epoch */
    size_t steps = (length + c->local_batch - 1) / c->local_batch;
    return ls_run_rate(&c->run, step, step / steps);
}
