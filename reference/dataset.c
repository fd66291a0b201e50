#include "reference/dataset.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/data/source.h"
#include "reference/hash.h"

static const ls_data_source *const sources[] = {&ls_data_fashion_mnist, &ls_data_mnist, &ls_data_cifar10,
                                                &ls_data_idx,           &ls_data_raw,   &ls_data_synthetic,
                                                &ls_data_exact};
enum { SOURCES = sizeof sources / sizeof sources[0] };

static char usages[256];
static pthread_once_t usages_made = PTHREAD_ONCE_INIT;

static void make_usages(void) {
    size_t used = 0;
    for (size_t i = 0; i < SOURCES && used < sizeof usages; i++) {
        const char *after = i + 2 < SOURCES ? ", " : i + 2 == SOURCES ? " or " : "";
        used += (size_t)snprintf(usages + used, sizeof usages - used, "%s%s", sources[i]->usage, after);
    }
}

const char *ls_dataset_usages(void) {
    (void)pthread_once(&usages_made, make_usages); /* fails for a wrong once only */
    return usages;
}

/* The source that a spec names, NULL for none; *argument is what follows the colon, NULL without one. */
static const ls_data_source *look_up(const char *spec, const char **argument) {
    size_t length = strcspn(spec, ":");
    *argument = spec[length] == ':' ? spec + length + 1 : NULL;
    for (size_t i = 0; i < SOURCES; i++) {
        if (strlen(sources[i]->name) == length && strncmp(sources[i]->name, spec, length) == 0) {
            return sources[i];
        }
    }
    return NULL;
}

/* The same, where the argument is as the source takes it. */
static ls_rc find_source(const char *spec, const ls_data_source **source, const char **argument) {
    *source = look_up(spec, argument);
    return *source != NULL ? (*source)->check(*argument)
                           : ls_fail(LS_BAD_INPUT, "--data: expected %s, found '%s'", ls_dataset_usages(), spec);
}

const char *ls_dataset_file(const char *spec) {
    const char *argument = NULL;
    const ls_data_source *source = look_up(spec, &argument);
    return source != NULL && source->one_file ? argument : NULL;
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

ls_rc ls_dataset_shape(const char *spec, ls_split split, ls_dataset *out) {
    const ls_data_source *source = NULL;
    const char *argument = NULL;
    *out = (ls_dataset){0};
    LS_TRY(find_source(spec, &source, &argument));
    return source->shape(argument, split, out);
}

void ls_dataset_close(ls_dataset *dataset) {
    ls_content pixels = {.data = dataset->pixels, .mapping = dataset->mapping, .mapped = dataset->mapped};
    ls_content_release(&pixels);
    free(dataset->values);
    free(dataset->labels);
    free(dataset->targets);
    *dataset = (ls_dataset){0};
}

uint64_t ls_dataset_hash(const ls_dataset *dataset) {
    const size_t numbers = dataset->count * ls_dataset_features(dataset);
    const size_t targets = dataset->targets != NULL ? dataset->count * dataset->target_count : 0;
    uint64_t hash = dataset->pixels != NULL ? ls_hash(LS_HASH_SEED, dataset->pixels, numbers)
                                            : ls_hash(LS_HASH_SEED, dataset->values, numbers * sizeof *dataset->values);
    hash = ls_hash(hash, dataset->labels, dataset->count * sizeof *dataset->labels);
    return ls_hash(hash, dataset->targets, targets * sizeof *dataset->targets);
}

void ls_samples_copy(const ls_dataset *from, size_t index, ls_samples *to, size_t at) {
    size_t features = ls_dataset_features(from);
    if (from->values != NULL) {
        memcpy(to->values + at * features, from->values + index * features, features * sizeof *to->values);
    } else {
        memcpy(to->pixels + at * features, from->pixels + index * features, features);
    }
    if (from->targets != NULL) {
        memcpy(to->targets + at * from->target_count, from->targets + index * from->target_count,
               from->target_count * sizeof *to->targets);
    }
    to->labels[at] = from->labels[index];
}
