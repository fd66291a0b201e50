/* A training checkpoint: what a run needs to go on bit for bit, as one safetensors file. Tensors: model.<parameter>,
 * optimizer.<buffer>.<parameter>; texts: what the run was and how far it has come (docs/checkpoints.md). */
#ifndef LS_REFERENCE_CHECKPOINT_TRAINING_H
#define LS_REFERENCE_CHECKPOINT_TRAINING_H

#include <stdbool.h>

#include "gpu/base/dtype.h"
#include "reference/checkpoint/model_state.h"
#include "reference/checkpoint/state.h"
#include "reference/loss.h"
#include "reference/model.h"
#include "reference/normalize.h"
#include "reference/spec.h"

#define LS_TRAINING_MODEL     "model."
#define LS_TRAINING_OPTIMIZER "optimizer."

enum { LS_TRAINING_MAX_BUFFERS = 4 };

typedef struct ls_training {
    /* must be alike in the run that goes on */
    size_t ranks, devices, global_batch;
    size_t samples; /* of the training set; with the seed they make the order */
    uint64_t data;  /* ls_dataset_hash of the training set; 0: not known here, and not compared */
    ls_loss_options loss;
    ls_normalize normalize; /* in force */
    uint64_t seed;
    ls_dtype dtype;
    const char *optimizer; /* "sgd" */
    /* a name of the zoo, or the text of an own network as ls_spec_format writes it: layers without parameters count too */
    char network[LS_SPEC_TEXT_SIZE];
    bool shuffle, drop_last;
    /* how far it has come */
    uint64_t epochs, steps;  /* completed */
    uint64_t optimizer_step; /* updates that the optimizer's buffers have seen; 0: they are not started */
    uint64_t mask_step;      /* forward passes in training: names dropout's next masks */
    /* flat buffers on the host, owned by the caller; the optimizer's as the parameters */
    ls_model_values values;
    size_t buffer_count;
    const char *buffer_names[LS_TRAINING_MAX_BUFFERS]; /* PyTorch's: "momentum_buffer" */
    void *buffers[LS_TRAINING_MAX_BUFFERS];
} ls_training;

/* Whether a state is a training checkpoint's. */
bool ls_training_is(const ls_state *state);

/* Writes to a temporary file in the folder of path, syncs and renames. */
ls_rc ls_training_write(const char *path, const ls_model *model, const ls_training *training);

/* Reads the file at path: epochs, steps the counts, values and buffers; with values.params NULL only checks. What must be
 * alike is in *training on entry and compared. One line and LS_BAD_INPUT when the file is none, damaged, or of another
 * run. */
ls_rc ls_training_read(const char *path, const ls_model *model, ls_training *training);

#endif
