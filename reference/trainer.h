/* The single-device trainer: the reference that every implementation must equal. */
#ifndef LS_REFERENCE_TRAINER_H
#define LS_REFERENCE_TRAINER_H

#include "reference/replica.h"

typedef struct ls_trainer ls_trainer;

typedef struct ls_trainer_options {
    ls_replica_options replica; /* with the loss, the optimizer and its learning rate */
    uint64_t seed;
} ls_trainer_options;

/* Opens a replica on options->replica.device with PyTorch's initial values for the seed. */
ls_rc ls_trainer_open(const ls_model *model, const ls_trainer_options *options, ls_trainer **out);
void ls_trainer_close(ls_trainer *trainer);
/* Forward, mean loss, backward, update; asynchronous. */
ls_rc ls_trainer_step(ls_trainer *trainer, const ls_batch *batch);
/* The step in its two parts: the batch, and all that is done with it, which can be captured in a graph (ls_replica_load). */
ls_rc ls_trainer_load(ls_trainer *trainer, const ls_batch *batch);
ls_rc ls_trainer_run(ls_trainer *trainer);
ls_replica *ls_trainer_replica(ls_trainer *trainer);

#endif
