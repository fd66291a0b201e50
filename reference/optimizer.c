#include "reference/optimizer.h"

#include <string.h>

#include "gpu/base/names.h"
#include "reference/optimizers/optimizers.h"

const ls_optimizer *const ls_optimizers[] = {
    &ls_optimizer_sgd, /* first: options of zeros are SGD's */
    &ls_optimizer_adam, &ls_optimizer_adamw, &ls_optimizer_rmsprop, NULL,
};

const ls_optimizer *ls_optimizer_of(const ls_optimizer_options *options) {
    return ls_optimizers[options->kind];
}

bool ls_optimizer_find(const char *name, size_t *kind) {
    for (size_t i = 0; ls_optimizers[i] != NULL; i++) {
        if (strcmp(ls_optimizers[i]->name, name) == 0) {
            *kind = i;
            return true;
        }
    }
    return false;
}

void ls_optimizer_names(char *text, size_t size) {
    text[0] = '\0';
    for (size_t i = 0; ls_optimizers[i] != NULL; i++) {
        ls_names_add(text, size, ls_optimizers[i]->name);
    }
}

size_t ls_optimizer_state_count(const ls_optimizer_options *options) {
    const char *names[LS_OPTIMIZER_MAX_STATES];
    return ls_optimizer_of(options)->states(options, names);
}

const char *ls_optimizer_state_name(const ls_optimizer_options *options, size_t index) {
    const char *names[LS_OPTIMIZER_MAX_STATES];
    size_t count = ls_optimizer_of(options)->states(options, names);
    return index < count ? names[index] : NULL;
}

ls_rc ls_optimizer_check(const ls_optimizer_options *options) {
    const ls_optimizer *optimizer = ls_optimizer_of(options);
    return optimizer->check != NULL ? optimizer->check(options) : LS_OK;
}
