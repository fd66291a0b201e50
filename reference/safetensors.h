/* Saving parameters as safetensors. */
#ifndef LS_REFERENCE_SAFETENSORS_H
#define LS_REFERENCE_SAFETENSORS_H

#include "gpu/base/dtype.h"
#include "gpu/base/error.h"
#include "reference/model.h"

/* Checks that path ends in .safetensors and that its folder can be written; before any training, so nothing is lost after. */
ls_rc ls_save_check(const char *path);

/* Writes every parameter under PyTorch's name in registration order (flat: param_count values of dtype in ready order) to a
 * temporary file in the same folder, syncs and renames it over path. */
ls_rc ls_save_safetensors(const char *path, const ls_model *model, ls_dtype dtype, const void *flat);

#endif
