/* Between a model's flat buffers and a state: parameters under PyTorch's names, in registration order. */
#ifndef LS_REFERENCE_CHECKPOINT_MODEL_STATE_H
#define LS_REFERENCE_CHECKPOINT_MODEL_STATE_H

#include "gpu/base/dtype.h"
#include "reference/checkpoint/state.h"
#include "reference/model.h"

/* Adds every parameter of the model as prefix + name. flat: param_count values of dtype in ready order. */
ls_rc ls_model_state_add(const ls_model *model, ls_dtype dtype, const void *flat, const char *prefix, ls_state *state);

/* The reverse: flat from the tensors prefix + name. Every parameter must be there with its shape; values of another floating
 * type are converted. One line and LS_BAD_INPUT otherwise; path is for messages. flat may be NULL: only checks. */
ls_rc ls_model_state_take(const ls_model *model, const ls_state *state, const char *path, const char *prefix,
                          ls_dtype dtype, void *flat);

/* Parameters from the file at path, as load_state_dict with strict=True: a state_dict with or without "module." before every
 * name, or the model's part of a training checkpoint. Missing and unknown names and wrong shapes: one line and LS_BAD_INPUT.
 * flat may be NULL: only checks. */
ls_rc ls_model_load(const char *path, const ls_model *model, ls_dtype dtype, void *flat);

/* Saves the parameters at path, whose ending says the format. */
ls_rc ls_model_save(const char *path, const ls_model *model, ls_dtype dtype, const void *flat);

#endif
