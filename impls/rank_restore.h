/* Starting a run from a file (--load, --resume), and writing what the next one needs (--checkpoint). */
#ifndef LS_IMPLS_RANK_RESTORE_H
#define LS_IMPLS_RANK_RESTORE_H

#include "impls/rank_internal.h"
#include "reference/checkpoint/model_state.h"

/* What can be known before any rank starts: the files to read are whole and fit the run, those to be written can be. One
 * line and LS_BAD_INPUT otherwise. */
ls_rc ls_restore_check(const ls_run *run);

/* Epochs as asked for; without a number the model's own, or as many as the steps take (SIZE_MAX). */
size_t ls_restore_epoch_limit(const ls_run *run);

/* After the implementation was opened: parameters, and with --resume the optimizer's state, the steps so far and the epochs
 * so far into *first_epoch. Rank 0 reads the file; the others get its bits. Collective. */
ls_rc ls_rank_restore(ls_rank_task *task, size_t *first_epoch);

/* Writes the checkpoint after `epochs` epochs, on rank 0; nothing without run->checkpoint. */
ls_rc ls_rank_checkpoint(ls_rank_task *task, size_t epochs);

/* Host memory for what the model of the run holds. Owned: ls_rank_values_close. */
ls_rc ls_rank_values_open(const ls_rank_data *data, ls_model_values *out);
void ls_rank_values_close(ls_model_values *values);
/* Parameters and buffers as they are now on this rank. */
ls_rc ls_rank_values_read(ls_rank_task *task, ls_model_values *values);

#endif
