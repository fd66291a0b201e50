#include "reference/zoo/zoo.h"

#include <string.h>

const ls_model_spec *const ls_zoo[] = {&ls_zoo_seed_cnn, &ls_zoo_seed_conv, NULL};

const ls_model_spec *ls_zoo_find(const char *name) {
    for (size_t i = 0; ls_zoo[i] != NULL; i++) {
        if (strcmp(ls_zoo[i]->name, name) == 0) {
            return ls_zoo[i];
        }
    }
    return strcmp(ls_zoo_exact.name, name) == 0 ? &ls_zoo_exact : NULL;
}
