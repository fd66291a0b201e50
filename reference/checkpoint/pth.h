/* Shared by the readers of .pth files. */
#ifndef LS_REFERENCE_CHECKPOINT_PTH_H
#define LS_REFERENCE_CHECKPOINT_PTH_H

#include "reference/checkpoint/pickle.h"
#include "reference/file.h"

/* The tensors of the state_dict that root must be go to state, in its order. Every storage of the pickle has its data. */
ls_rc ls_pth_collect(ls_pickle *pickle, const ls_pickle_value *root, const ls_file_bytes *file, ls_state *state);

#endif
