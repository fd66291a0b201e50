#include "reference/checkpoint/model_state.h"

#include <stdio.h>
#include <string.h>

#include "reference/checkpoint/formats.h"
#include "reference/checkpoint/training.h"

enum { FULL_NAME = LS_NAME_SIZE + 64 };

/* What a state holds of a model, in PyTorch's order, is told by this file alone: buffers (BatchNorm's) join the parameters
 * in ls_model_state_add, ls_model_state_take and is_known. */

ls_rc ls_model_state_add(const ls_model *model, ls_dtype dtype, const void *flat, const char *prefix, ls_state *state) {
    for (size_t p = 0; p < model->param_tensors; p++) {
        const ls_param *param = &model->params[p];
        char name[FULL_NAME];
        ls_state_tensor *tensor = NULL;
        snprintf(name, sizeof name, "%s%s", prefix, param->name);
        LS_TRY(ls_state_add(state, name, dtype == LS_FLOAT64 ? LS_ELEMENT_FLOAT64 : LS_ELEMENT_FLOAT32, param->dims,
                            param->shape, &tensor));
        memcpy(tensor->data, (const char *)flat + param->offset * ls_dtype_size(dtype),
               param->count * ls_dtype_size(dtype));
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

static ls_rc check_tensor(const ls_state_tensor *tensor, const ls_param *param, const char *path, const char *model) {
    char expected[96], found[160];
    if (tensor->element == LS_ELEMENT_INT64) {
        return ls_fail(LS_BAD_INPUT, "%s: tensor '%s': expected floating-point values, found int64", path,
                       tensor->name);
    }
    if (tensor->dims != param->dims || memcmp(tensor->shape, param->shape, param->dims * sizeof param->shape[0]) != 0) {
        return ls_fail(LS_BAD_INPUT, "%s: tensor '%s': model %s expects the shape %s, found %s", path, tensor->name,
                       model, ls_state_shape_text(param->dims, param->shape, expected, sizeof expected),
                       ls_state_shape_text(tensor->dims, tensor->shape, found, sizeof found));
    }
    return LS_OK;
}

ls_rc ls_model_state_take(const ls_model *model, const ls_state *state, const char *path, const char *prefix,
                          ls_dtype dtype, void *flat) {
    for (size_t p = 0; p < model->param_tensors; p++) {
        const ls_param *param = &model->params[p];
        char name[FULL_NAME];
        snprintf(name, sizeof name, "%s%s", prefix, param->name);
        const ls_state_tensor *tensor = ls_state_find(state, name);
        if (tensor == NULL) {
            return ls_fail(LS_BAD_INPUT,
                           "%s: tensor '%s' of model %s is missing; the file has %zu tensors, the first '%.100s'", path,
                           name, model->name, state->count, state->count > 0 ? state->tensors[0].name : "");
        }
        LS_TRY(check_tensor(tensor, param, path, model->name));
        if (flat != NULL) {
            convert(tensor, dtype, (char *)flat + param->offset * ls_dtype_size(dtype));
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

ls_rc ls_model_load(const char *path, const ls_model *model, ls_dtype dtype, void *flat) {
    ls_state state = {0};
    LS_TRY(ls_state_read(path, &state));
    const char *prefix = prefix_of(&state);
    ls_rc rc = ls_model_state_take(model, &state, path, prefix, dtype, flat);
    if (rc == LS_OK) {
        rc = check_unknown(model, &state, path, prefix);
    }
    ls_state_free(&state);
    return rc;
}

ls_rc ls_model_save(const char *path, const ls_model *model, ls_dtype dtype, const void *flat) {
    ls_state state = {0};
    ls_rc rc = ls_model_state_add(model, dtype, flat, "", &state);
    if (rc == LS_OK) {
        rc = ls_state_write(path, &state);
    }
    ls_state_free(&state);
    return rc;
}
