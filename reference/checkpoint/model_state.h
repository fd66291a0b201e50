/* Between a model's flat buffers and a state: parameters under PyTorch's names, in registration order. */
#ifndef LS_REFERENCE_CHECKPOINT_MODEL_STATE_H
#define LS_REFERENCE_CHECKPOINT_MODEL_STATE_H

#include "gpu/base/dtype.h"
#include "reference/checkpoint/state.h"
#include "reference/model.h"

/* What a model holds, on the host: flat buffers of the caller. buffers and tracked may be NULL where the model has none. */
typedef struct ls_model_values {
    void *params;     /* param_count values of dtype, ready order */
    void *buffers;    /* buffer_count values of dtype: batchnorm's running statistics */
    int64_t *tracked; /* tracked_count */
} ls_model_values;

/* Whether a state holds a model's buffers too, or something that only parameters have (an optimizer's state). */
typedef enum ls_model_part { LS_MODEL_PARAMS = 0, LS_MODEL_ALL = 1 } ls_model_part;

/* Adds what the model holds as prefix + name, in PyTorch's order: layer by layer, parameters before buffers. */
ls_rc ls_model_state_add(const ls_model *model, ls_dtype dtype, ls_model_part part, const ls_model_values *values,
                         const char *prefix, ls_state *state);

/* The reverse. Every tensor must be there with its shape; values of another floating type are converted. One line and
 * LS_BAD_INPUT otherwise; path is for messages. values may be NULL: only checks. */
ls_rc ls_model_state_take(const ls_model *model, const ls_state *state, const char *path, const char *prefix,
                          ls_model_part part, ls_dtype dtype, const ls_model_values *values);

/* Parameters from the file at path, as load_state_dict with strict=True: a state_dict with or without "module." before every
 * name, or the model's part of a training checkpoint. Missing and unknown names and wrong shapes: one line and LS_BAD_INPUT.
 * values may be NULL: only checks. */
ls_rc ls_model_load(const char *path, const ls_model *model, ls_dtype dtype, const ls_model_values *values);

/* Saves what the model holds at path, whose ending says the format. */
ls_rc ls_model_save(const char *path, const ls_model *model, ls_dtype dtype, const ls_model_values *values);

/* Saves param_count values of dtype in ready order, gradients for instance, under the parameters' names and shapes. */
ls_rc ls_model_save_params(const char *path, const ls_model *model, ls_dtype dtype, void *params);

#endif
