#include "reference/checkpoint/model_state.h"

#include <stdio.h>
#include <string.h>

#include "reference/checkpoint/formats.h"
#include "reference/checkpoint/training.h"

enum { FULL_NAME = LS_NAME_SIZE + 64, MAX_ENTRIES = LS_MODEL_MAX_PARAMS + LS_MODEL_MAX_BUFFERS };

/* A tensor of the model, wherever its values lie. */
typedef struct entry {
    const char *name;
    size_t dims, shape[4], count;
    size_t offset;  /* elements into its flat buffer */
    size_t element; /* bytes in the flat buffer */
    bool is_count;  /* int64 */
    void *flat;     /* NULL: none was given */
} entry;

static entry param_entry(const ls_model *model, ls_dtype dtype, const ls_model_values *values, size_t index) {
    const ls_param *param = &model->params[index];
    entry e = {.name = param->name,
               .dims = param->dims,
               .count = param->count,
               .offset = param->offset,
               .element = ls_dtype_size(dtype),
               .flat = values != NULL ? values->params : NULL};
    memcpy(e.shape, param->shape, sizeof e.shape);
    return e;
}

static entry buffer_entry(const ls_model *model, ls_dtype dtype, const ls_model_values *values, size_t index) {
    const ls_buffer *buffer = &model->buffers[index];
    entry e = {.name = buffer->name,
               .dims = buffer->is_count ? 0 : 1, /* num_batches_tracked is a scalar */
               .shape = {buffer->count},
               .count = buffer->count,
               .offset = buffer->offset,
               .element = buffer->is_count ? sizeof(int64_t) : ls_dtype_size(dtype),
               .is_count = buffer->is_count};
    if (values != NULL) {
        e.flat = buffer->is_count ? (void *)values->tracked : values->buffers;
    }
    return e;
}

/* The model's tensors in PyTorch's order; returns how many. */
static size_t list_entries(const ls_model *model, ls_dtype dtype, ls_model_part part, const ls_model_values *values,
                           entry entries[MAX_ENTRIES]) {
    size_t count = 0, p = 0, b = 0;
    for (size_t layer = 0; layer < model->layer_count; layer++) {
        for (; p < model->param_tensors && model->params[p].layer == layer; p++) {
            entries[count++] = param_entry(model, dtype, values, p);
        }
        for (; b < model->buffer_tensors && model->buffers[b].layer == layer; b++) {
            if (part == LS_MODEL_ALL) {
                entries[count++] = buffer_entry(model, dtype, values, b);
            }
        }
    }
    return count;
}

ls_rc ls_model_state_add(const ls_model *model, ls_dtype dtype, ls_model_part part, const ls_model_values *values,
                         const char *prefix, ls_state *state) {
    entry entries[MAX_ENTRIES];
    size_t count = list_entries(model, dtype, part, values, entries);
    for (size_t i = 0; i < count; i++) {
        const entry *e = &entries[i];
        char name[FULL_NAME];
        ls_state_tensor *tensor = NULL;
        ls_element element = e->is_count           ? LS_ELEMENT_INT64
                             : dtype == LS_FLOAT64 ? LS_ELEMENT_FLOAT64
                                                   : LS_ELEMENT_FLOAT32;
        snprintf(name, sizeof name, "%s%s", prefix, e->name);
        LS_TRY(ls_state_add(state, name, element, e->dims, e->shape, &tensor));
        memcpy(tensor->data, (const char *)e->flat + e->offset * e->element, e->count * e->element);
    }
    return LS_OK;
}

/* Values of a tensor as dtype. Narrowing rounds to nearest, as PyTorch's copy_ does. */
static void convert(const ls_state_tensor *tensor, ls_dtype dtype, void *out) {
    for (size_t i = 0; i < tensor->count; i++) {
        const float *narrow = tensor->data;
        const double *wide = tensor->data;
        if (dtype == LS_FLOAT64) {
            ((double *)out)[i] = tensor->element == LS_ELEMENT_FLOAT64 ? wide[i] : (double)narrow[i];
        } else {
            ((float *)out)[i] = tensor->element == LS_ELEMENT_FLOAT64 ? (float)wide[i] : narrow[i];
        }
    }
}

static ls_rc check_tensor(const ls_state_tensor *tensor, const entry *e, const char *path, const char *model) {
    char expected[96], found[160];
    if ((tensor->element == LS_ELEMENT_INT64) != e->is_count) {
        return ls_fail(LS_BAD_INPUT, "%s: tensor '%s': expected %s, found %s", path, tensor->name,
                       e->is_count ? "int64" : "floating-point values",
                       e->is_count ? "floating-point values" : "int64");
    }
    if (tensor->dims != e->dims || memcmp(tensor->shape, e->shape, e->dims * sizeof e->shape[0]) != 0) {
        return ls_fail(LS_BAD_INPUT, "%s: tensor '%s': model %s expects the shape %s, found %s", path, tensor->name,
                       model, ls_state_shape_text(e->dims, e->shape, expected, sizeof expected),
                       ls_state_shape_text(tensor->dims, tensor->shape, found, sizeof found));
    }
    return LS_OK;
}

ls_rc ls_model_state_take(const ls_model *model, const ls_state *state, const char *path, const char *prefix,
                          ls_model_part part, ls_dtype dtype, const ls_model_values *values) {
    entry entries[MAX_ENTRIES];
    size_t count = list_entries(model, dtype, part, values, entries);
    for (size_t i = 0; i < count; i++) {
        const entry *e = &entries[i];
        char name[FULL_NAME];
        snprintf(name, sizeof name, "%s%s", prefix, e->name);
        const ls_state_tensor *tensor = ls_state_find(state, name);
        if (tensor == NULL) {
            return ls_fail(LS_BAD_INPUT,
                           "%s: tensor '%s' of model %s is missing; the file has %zu tensors, the first '%.100s'%s",
                           path, name, model->name, state->count, state->count > 0 ? state->tensors[0].name : "",
                           prefix[0] == '\0' ? "; a file of another network is read with that network's --model" : "");
        }
        LS_TRY(check_tensor(tensor, e, path, model->name));
        if (e->flat != NULL && e->is_count) {
            memcpy((char *)e->flat + e->offset * e->element, tensor->data, e->count * e->element);
        } else if (e->flat != NULL) {
            convert(tensor, dtype, (char *)e->flat + e->offset * e->element);
        }
    }
    return LS_OK;
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_known(const ls_model *model, const char *name) {
    for (size_t p = 0; p < model->param_tensors; p++) {
        if (strcmp(model->params[p].name, name) == 0) {
            return true;
        }
    }
    for (size_t b = 0; b < model->buffer_tensors; b++) {
        if (strcmp(model->buffers[b].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* DataParallel and DistributedDataParallel put "module." before every name. */
static const char *prefix_of(const ls_state *state) {
    static const char wrapped[] = "module.";
    if (ls_training_is(state)) {
        return LS_TRAINING_MODEL;
    }
    for (size_t i = 0; i < state->count; i++) {
        if (!starts_with(state->tensors[i].name, wrapped)) {
            return "";
        }
    }
    return wrapped;
}

/* Nothing that the model does not have, but an optimizer's part of a training checkpoint. */
static ls_rc check_unknown(const ls_model *model, const ls_state *state, const char *path, const char *prefix) {
    for (size_t i = 0; i < state->count; i++) {
        const char *name = state->tensors[i].name;
        if (ls_training_is(state) && starts_with(name, LS_TRAINING_OPTIMIZER)) {
            continue;
        }
        if (!starts_with(name, prefix) || !is_known(model, name + strlen(prefix))) {
            return ls_fail(LS_BAD_INPUT, "%s: tensor '%.100s' is unknown to model %s, whose first is '%s'", path, name,
                           model->name, model->params[0].name);
        }
    }
    return LS_OK;
}

ls_rc ls_model_load(const char *path, const ls_model *model, ls_dtype dtype, const ls_model_values *values) {
    ls_state state = {0};
    LS_TRY(ls_state_read(path, &state));
    const char *prefix = prefix_of(&state);
    ls_rc rc = ls_model_state_take(model, &state, path, prefix, LS_MODEL_ALL, dtype, values);
    if (rc == LS_OK) {
        rc = check_unknown(model, &state, path, prefix);
    }
    ls_state_free(&state);
    return rc;
}

static ls_rc save_part(const char *path, const ls_model *model, ls_dtype dtype, ls_model_part part,
                       const ls_model_values *values) {
    ls_state state = {0};
    ls_rc rc = ls_model_state_add(model, dtype, part, values, "", &state);
    if (rc == LS_OK) {
        rc = ls_state_write(path, &state);
    }
    ls_state_free(&state);
    return rc;
}

ls_rc ls_model_save(const char *path, const ls_model *model, ls_dtype dtype, const ls_model_values *values) {
    return save_part(path, model, dtype, LS_MODEL_ALL, values);
}

ls_rc ls_model_save_params(const char *path, const ls_model *model, ls_dtype dtype, void *params) {
    return save_part(path, model, dtype, LS_MODEL_PARAMS, &(ls_model_values){.params = params});
}
