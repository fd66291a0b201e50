#include "reference/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "reference/data/source.h"

static const ls_data_source *const sources[] = {&ls_data_fashion_mnist, &ls_data_mnist, &ls_data_synthetic};

/* Finds the source of a spec; *argument is what follows the colon, NULL without one. */
static ls_rc find_source(const char *spec, const ls_data_source **source, const char **argument) {
    size_t length = strcspn(spec, ":");
    *argument = spec[length] == ':' ? spec + length + 1 : NULL;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (strlen(sources[i]->name) == length && strncmp(sources[i]->name, spec, length) == 0) {
            *source = sources[i];
            return sources[i]->check(*argument);
        }
    }
    return ls_fail(LS_BAD_INPUT, "--data: expected %s, %s or %s, found '%s'", sources[0]->usage, sources[1]->usage,
                   sources[2]->usage, spec);
}

ls_rc ls_dataset_check_spec(const char *spec) {
    const ls_data_source *source = NULL;
    const char *argument = NULL;
    return find_source(spec, &source, &argument);
}

ls_rc ls_dataset_open(const char *spec, ls_split split, ls_dataset *out) {
    const ls_data_source *source = NULL;
    const char *argument = NULL;
    *out = (ls_dataset){0};
    LS_TRY(find_source(spec, &source, &argument));
    return source->open(argument, split, out);
}

void ls_dataset_close(ls_dataset *dataset) {
    free(dataset->pixels);
    free(dataset->labels);
    *dataset = (ls_dataset){0};
}
