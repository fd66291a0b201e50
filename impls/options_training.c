/* The options of loss, optimizer and learning rate. Each optimizer has hyper-parameters and defaults of its own, so what was
 * not given is filled in, and what does not fit refused, when all options have been read. Until then a number that was not
 * given is not a number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/names.h"
#include "impls/options_table.h"

#define FIELD(field) offsetof(ls_optimizer_options, field)

typedef struct hyper_parameter {
    const char *flag;
    size_t offset; /* into ls_optimizer_options: a double, or a bool for a switch */
    unsigned knows;
    bool is_switch;
} hyper_parameter;

static const hyper_parameter hyper_parameters[] = {
    {"--momentum", FIELD(momentum), LS_KNOWS_MOMENTUM, false},
    {"--dampening", FIELD(dampening), LS_KNOWS_DAMPENING, false},
    {"--nesterov", FIELD(nesterov), LS_KNOWS_NESTEROV, true},
    {"--betas", FIELD(beta1), LS_KNOWS_BETAS, false},
    {"--betas", FIELD(beta2), LS_KNOWS_BETAS, false},
    {"--eps", FIELD(eps), LS_KNOWS_EPS, false},
    {"--amsgrad", FIELD(amsgrad), LS_KNOWS_AMSGRAD, true},
    {"--alpha", FIELD(alpha), LS_KNOWS_ALPHA, false},
    {"--centered", FIELD(centered), LS_KNOWS_CENTERED, true},
    {"--weight-decay", FIELD(weight_decay), 0, false}, /* everyone's */
};
enum { HYPER_PARAMETERS = sizeof hyper_parameters / sizeof hyper_parameters[0] };

static bool known(const ls_optimizer_options *options, const hyper_parameter *h) {
    return (h->knows & ~ls_optimizer_of(options)->knows) == 0;
}

static double *number_of(ls_optimizer_options *options, const hyper_parameter *h) {
    return (double *)((char *)options + h->offset);
}

static bool is_on(const ls_optimizer_options *options, const hyper_parameter *h) {
    return *(const bool *)((const char *)options + h->offset);
}

void ls_run_optimizer_defaults(ls_run *run) {
    size_t kind = run->optimizer.kind;
    run->lr = ls_optimizers[kind]->lr;
    run->optimizer = ls_optimizers[kind]->defaults;
    run->optimizer.kind = kind;
}

void ls_run_command_defaults(unsigned command, ls_run *run) {
    ls_run_optimizer_defaults(run);
    ls_optimizer_options *o = &run->optimizer;
    unsigned knows = ls_optimizer_of(o)->knows;
    if (command != LS_COMMAND_VERIFY) {
        return;
    }
    o->weight_decay = 0.01;
    if ((knows & LS_KNOWS_MOMENTUM) != 0) {
        o->momentum = 0.5;
    }
    if ((knows & LS_KNOWS_DAMPENING) != 0) {
        o->dampening = 0.1;
    }
    if ((knows & LS_KNOWS_EPS) != 0) {
        o->eps = 1e-3;
    }
}

void ls_options_training_begin(ls_run *run) {
    run->lr = NAN;
    run->schedule.gamma = NAN;
    for (size_t i = 0; i < HYPER_PARAMETERS; i++) {
        if (!hyper_parameters[i].is_switch) {
            *number_of(&run->optimizer, &hyper_parameters[i]) = NAN;
        }
    }
}

static void write_owners(unsigned knows, char *text, size_t size) {
    text[0] = '\0';
    for (size_t i = 0; ls_optimizers[i] != NULL; i++) {
        if ((knows & ~ls_optimizers[i]->knows) == 0) {
            ls_names_add(text, size, ls_optimizers[i]->name);
        }
    }
}

/* What an optimizer must know to take the option. */
static unsigned knows_of(const ls_option *option) {
    for (size_t i = 0; i < HYPER_PARAMETERS; i++) {
        if (strcmp(hyper_parameters[i].flag, option->flag) == 0) {
            return hyper_parameters[i].knows;
        }
    }
    return 0;
}

void ls_option_owners(const ls_option *option, char *text, size_t size) {
    write_owners(knows_of(option), text, size);
}

/* The option's default under the optimizer of this kind; empty when that does not know it. */
static void default_of(unsigned command, const ls_option *option, size_t kind, char *text, size_t size) {
    ls_run run = {.optimizer = {.kind = kind}};
    text[0] = '\0';
    if ((knows_of(option) & ~ls_optimizers[kind]->knows) == 0) {
        ls_run_command_defaults(command, &run);
        option->format(option, &run, text, size);
    }
}

void ls_option_defaults(unsigned command, const ls_option *option, char *text, size_t size) {
    text[0] = '\0';
    for (size_t i = 0; ls_optimizers[i] != NULL; i++) {
        char value[64], other[64], names[256] = "";
        bool first = true; /* with this value */
        default_of(command, option, i, value, sizeof value);
        for (size_t k = 0; ls_optimizers[k] != NULL; k++) {
            default_of(command, option, k, other, sizeof other);
            bool same = strcmp(value, other) == 0;
            first = first && !(same && k < i);
            if (same) {
                ls_names_add(names, sizeof names, ls_optimizers[k]->name);
            }
        }
        if (first && value[0] != '\0') {
            size_t used = strlen(text);
            snprintf(text + used, size - used, "%s%s %s", used > 0 ? "; " : "", names, value);
        }
    }
}

static ls_rc refuse_unknown(const ls_optimizer_options *options, const hyper_parameter *h) {
    char owners[256];
    write_owners(h->knows, owners, sizeof owners);
    return ls_fail(LS_BAD_INPUT, "option '%s' does not belong to --optimizer %s; it is one of %s", h->flag,
                   ls_optimizer_of(options)->name, owners);
}

static ls_rc finish_optimizer(unsigned command, ls_run *run) {
    ls_optimizer_options *options = &run->optimizer;
    ls_run usual = {.optimizer = {.kind = options->kind}};
    ls_run_command_defaults(command, &usual);
    if (options->nesterov) {
        usual.optimizer.dampening = 0; /* they exclude each other */
    }
    run->lr = isnan(run->lr) ? usual.lr : run->lr;
    for (size_t i = 0; i < HYPER_PARAMETERS; i++) {
        const hyper_parameter *h = &hyper_parameters[i];
        bool given = h->is_switch ? is_on(options, h) : !isnan(*number_of(options, h));
        if (given && !known(options, h)) {
            return refuse_unknown(options, h);
        }
        if (!given && !h->is_switch) {
            *number_of(options, h) = *number_of(&usual.optimizer, h);
        }
    }
    return ls_optimizer_check(options);
}

static ls_rc finish_schedule(ls_schedule *schedule) {
    if (schedule->kind == LS_SCHEDULE_STEP && schedule->step_size == 0) {
        return ls_fail(LS_BAD_INPUT, "--lr-schedule step needs --step-size, the epochs between two reductions");
    }
    if (schedule->kind != LS_SCHEDULE_STEP && (schedule->step_size != 0 || !isnan(schedule->gamma))) {
        return ls_fail(LS_BAD_INPUT, "option '%s' does not belong to --lr-schedule %s; it is one of step",
                       schedule->step_size != 0 ? "--step-size" : "--gamma", ls_schedule_name(schedule->kind));
    }
    schedule->gamma = isnan(schedule->gamma) ? LS_GAMMA_DEFAULT : schedule->gamma;
    return LS_OK;
}

ls_rc ls_options_training_finish(unsigned command, ls_run *run) {
    if (run->loss.kind != LS_LOSS_CROSS_ENTROPY && run->loss.label_smoothing != 0) {
        return ls_fail(LS_BAD_INPUT, "option '--label-smoothing' does not belong to --loss %s; it is one of %s",
                       ls_loss_name(run->loss.kind), ls_loss_name(LS_LOSS_CROSS_ENTROPY));
    }
    LS_TRY(finish_schedule(&run->schedule));
    return finish_optimizer(command, run);
}

static ls_rc bad_choice(const ls_option *option, const char *value) {
    return ls_fail(LS_BAD_INPUT, "option '%s': '%s' is not one of %s", option->flag, value, option->argument);
}

ls_rc ls_option_parse_optimizer(const ls_option *option, const char *value, ls_options *options) {
    if (ls_optimizer_find(value, &options->run.optimizer.kind)) {
        return LS_OK;
    }
    char known[256];
    ls_optimizer_names(known, sizeof known);
    return ls_fail(LS_BAD_INPUT, "option '%s': '%s' is not an optimizer; expected one of %s", option->flag, value,
                   known);
}

ls_rc ls_option_parse_loss(const ls_option *option, const char *value, ls_options *options) {
    for (ls_loss_kind kind = LS_LOSS_CROSS_ENTROPY; kind < LS_LOSS_KIND_COUNT; kind++) {
        if (strcmp(value, ls_loss_name(kind)) == 0) {
            options->run.loss.kind = kind;
            return LS_OK;
        }
    }
    return bad_choice(option, value);
}

ls_rc ls_option_parse_reduction(const ls_option *option, const char *value, ls_options *options) {
    for (ls_loss_reduction r = LS_LOSS_MEAN; r < LS_LOSS_REDUCTION_COUNT; r++) {
        if (strcmp(value, ls_loss_reduction_name(r)) == 0) {
            options->run.loss.reduction = r;
            return LS_OK;
        }
    }
    return bad_choice(option, value);
}

ls_rc ls_option_parse_schedule(const ls_option *option, const char *value, ls_options *options) {
    for (ls_schedule_kind kind = LS_SCHEDULE_CONSTANT; kind < LS_SCHEDULE_COUNT; kind++) {
        if (strcmp(value, ls_schedule_name(kind)) == 0) {
            options->run.schedule.kind = kind;
            return LS_OK;
        }
    }
    return bad_choice(option, value);
}

/* PyTorch's range: 0 <= beta < 1. */
static bool read_beta(const char *text, char end, double *out, const char **rest) {
    char *stop = NULL;
    *out = strtod(text, &stop);
    *rest = stop + 1;
    return stop != text && *stop == end && *out >= 0 && *out < 1;
}

ls_rc ls_option_parse_betas(const ls_option *option, const char *value, ls_options *options) {
    ls_optimizer_options *o = &options->run.optimizer;
    const char *rest = value;
    if (!read_beta(value, ',', &o->beta1, &rest) || !read_beta(rest, '\0', &o->beta2, &rest)) {
        return ls_fail(LS_BAD_INPUT, "option '%s': '%s' is not B1,B2 with both from 0 to below 1", option->flag, value);
    }
    return LS_OK;
}

void ls_option_format_optimizer(const ls_option *option, const ls_run *run, char *text, size_t size) {
    (void)option;
    snprintf(text, size, "%s", ls_optimizer_of(&run->optimizer)->name);
}

void ls_option_format_loss(const ls_option *option, const ls_run *run, char *text, size_t size) {
    (void)option;
    snprintf(text, size, "%s", ls_loss_name(run->loss.kind));
}

void ls_option_format_reduction(const ls_option *option, const ls_run *run, char *text, size_t size) {
    (void)option;
    snprintf(text, size, "%s", ls_loss_reduction_name(run->loss.reduction));
}

void ls_option_format_schedule(const ls_option *option, const ls_run *run, char *text, size_t size) {
    (void)option;
    snprintf(text, size, "%s", ls_schedule_name(run->schedule.kind));
}

void ls_option_format_step_schedule(const ls_option *option, const ls_run *run, char *text, size_t size) {
    text[0] = '\0';
    if (run->schedule.kind == LS_SCHEDULE_STEP && option->parse == ls_option_parse_size) {
        ls_option_format_size(option, run, text, size);
    } else if (run->schedule.kind == LS_SCHEDULE_STEP) {
        ls_option_format_double(option, run, text, size);
    }
}

void ls_option_format_betas(const ls_option *option, const ls_run *run, char *text, size_t size) {
    char first[64], second[64];
    ls_option one = *option, two = *option;
    one.offset = offsetof(ls_run, optimizer.beta1);
    two.offset = offsetof(ls_run, optimizer.beta2);
    text[0] = '\0';
    if ((ls_optimizer_of(&run->optimizer)->knows & LS_KNOWS_BETAS) != 0) {
        ls_option_format_double(&one, run, first, sizeof first);
        ls_option_format_double(&two, run, second, sizeof second);
        snprintf(text, size, "%s,%s", first, second);
    }
}

void ls_option_format_hyper(const ls_option *option, const ls_run *run, char *text, size_t size) {
    text[0] = '\0';
    for (size_t i = 0; i < HYPER_PARAMETERS; i++) {
        const hyper_parameter *h = &hyper_parameters[i];
        if (strcmp(h->flag, option->flag) == 0 && known(&run->optimizer, h)) {
            ls_option_format_double(option, run, text, size);
        }
    }
}
