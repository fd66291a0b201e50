#include "reference/trainer.h"

#include <stdlib.h>

#include "gpu/range.h"
#include "reference/replica_buffers.h"

struct ls_trainer {
    ls_trainer_options options;
    ls_replica *replica;
};

static ls_rc set_initial_values(const ls_model *model, uint64_t seed, ls_replica *replica) {
    float *flat = ls_calloc(model->param_count, sizeof *flat, "initial values");
    if (flat == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_model_init(model, seed, flat);
    ls_rc rc = ls_replica_init(replica, flat);
    free(flat);
    return rc;
}

ls_rc ls_trainer_open(const ls_model *model, const ls_trainer_options *options, ls_trainer **out) {
    ls_trainer *trainer = ls_calloc(1, sizeof *trainer, "a trainer");
    if (trainer == NULL) {
        return LS_DEVICE_FAILED;
    }
    trainer->options = *options;
    ls_rc rc = ls_replica_open(model, &options->replica, &trainer->replica);
    if (rc == LS_OK) {
        ls_replica_set_masks(trainer->replica, options->seed, 0);
        rc = set_initial_values(model, options->seed, trainer->replica);
    }
    if (rc != LS_OK) {
        ls_trainer_close(trainer);
        return rc;
    }
    *out = trainer;
    return LS_OK;
}

void ls_trainer_close(ls_trainer *trainer) {
    if (trainer == NULL) {
        return;
    }
    ls_replica_close(trainer->replica);
    free(trainer);
}

ls_rc ls_trainer_load(ls_trainer *trainer, const ls_batch *batch) {
    return ls_replica_load(trainer->replica, batch);
}

ls_rc ls_trainer_run(ls_trainer *trainer) {
    ls_replica *replica = trainer->replica;
    LS_TRY(ls_replica_scale(replica));
    LS_TRY(ls_replica_forward(replica, NULL));
    LS_TRY(ls_replica_loss(replica, (double)ls_replica_batch_count(replica)));
    LS_TRY(ls_replica_backward(replica, NULL));
    return ls_replica_update(replica);
}

ls_rc ls_trainer_step(ls_trainer *trainer, const ls_batch *batch) {
    LS_RANGE_NUMBERED("step", ls_replica_step(trainer->replica));
    LS_TRY(ls_trainer_load(trainer, batch));
    return ls_trainer_run(trainer);
}

ls_replica *ls_trainer_replica(ls_trainer *trainer) {
    return trainer->replica;
}
