#include "impls/rank_restore.h"

#include <stdlib.h>
#include <string.h>

#include "impls/rank.h"
#include "impls/run_spec.h"
#include "reference/checkpoint/formats.h"
#include "reference/checkpoint/model_state.h"
#include "reference/checkpoint/training.h"
#include "reference/dataset.h"
#include "reference/replica_buffers.h"

/* What of a checkpoint must be alike in the run, but for the hash of the training set. samples: of that set. */
static ls_rc training_of(const ls_run *run, const ls_impl *impl, size_t global_batch, size_t samples,
                         ls_training *training) {
    ls_model model;
    *training = (ls_training){
        .ranks = impl->ranks(run->devices),
        .devices = run->devices,
        .global_batch = global_batch,
        .samples = samples,
        .loss = run->loss,
        .seed = run->seed,
        .dtype = run->dtype,
        .optimizer = ls_optimizer_of(&run->optimizer)->name,
        .shuffle = !run->no_shuffle,
        .drop_last = run->drop_last,
        .buffer_count = ls_optimizer_state_count(&run->optimizer),
    };
    for (size_t k = 0; k < training->buffer_count; k++) {
        training->buffer_names[k] = ls_optimizer_state_name(&run->optimizer, k);
    }
    LS_TRY(ls_run_model(run, &model, &training->normalize));
    return ls_run_network(run, training->network);
}

size_t ls_restore_epoch_limit(const ls_run *run) {
    if (run->epochs != 0) {
        return run->epochs;
    }
    ls_model_spec spec;
    return run->steps != SIZE_MAX || ls_run_spec(run, &spec) != LS_OK ? SIZE_MAX : spec.epochs;
}

/* A run that goes on must have something left to do. */
static ls_rc check_left(const ls_run *run, const ls_training *training) {
    size_t limit = ls_restore_epoch_limit(run);
    if (training->epochs >= limit) {
        return ls_fail(LS_BAD_INPUT, "--resume %s: it has %llu epochs, the run is to have %zu in all; raise --epochs",
                       run->resume, (unsigned long long)training->epochs, limit);
    }
    if (training->steps >= run->steps) {
        return ls_fail(LS_BAD_INPUT, "--resume %s: it has %llu steps, the run is to have %zu in all; raise --steps",
                       run->resume, (unsigned long long)training->steps, run->steps);
    }
    return LS_OK;
}

/* *done: the steps that the run begins with; 0, or those of a checkpoint. */
static ls_rc check_inputs(const ls_run *run, const ls_model *model, uint64_t *done) {
    *done = 0;
    if (run->load[0] != '\0' && run->resume[0] != '\0') {
        return ls_fail(LS_BAD_INPUT, "--load and --resume both say what to start from; give one of them");
    }
    if (run->evaluate_only && run->load[0] == '\0') {
        return ls_fail(LS_BAD_INPUT, "option '--load' is missing: the file whose parameters are to be evaluated");
    }
    if (run->load[0] != '\0') {
        LS_TRY(ls_model_load(run->load, model, run->dtype, NULL));
    }
    if (run->resume[0] == '\0') {
        return LS_OK;
    }
    size_t local, global;
    ls_dataset data = {0};
    LS_TRY(ls_run_batches(run, &local, &global));
    LS_TRY(ls_dataset_shape(run->data, LS_SPLIT_TRAIN, &data)); /* its size is part of the order */
    ls_training training;
    LS_TRY(training_of(run, ls_impl_find(run->impl), global, data.count, &training));
    LS_TRY(ls_training_read(run->resume, model, &training));
    *done = training.steps;
    return check_left(run, &training);
}

/* Checkpoints are written after whole epochs, so --steps must leave room for one. done: steps that --resume begins with, after a
 * whole epoch. */
static ls_rc check_whole_epoch(const ls_run *run, uint64_t done) {
    size_t length, batch;
    ls_dataset data = {0};
    LS_TRY(ls_dataset_shape(run->data, LS_SPLIT_TRAIN, &data));
    LS_TRY(ls_run_share(run, data.count, &length, &batch));
    uint64_t end = done + length / batch + (length % batch != 0);
    if (run->steps >= end) {
        return LS_OK;
    }
    return ls_fail(
        LS_BAD_INPUT,
        "--checkpoint: it is written after whole epochs, the %s after step %llu, and the run ends after step "
        "%zu; raise --steps, or --save the parameters alone",
        done > 0 ? "next" : "first", (unsigned long long)end, run->steps);
}

ls_rc ls_restore_check(const ls_run *run) {
    static const char ending[] = ".safetensors";
    ls_model model;
    ls_normalize normalize;
    LS_TRY(ls_run_model(run, &model, &normalize));
    uint64_t done;
    LS_TRY(check_inputs(run, &model, &done));
    uint64_t bytes = (uint64_t)model.param_count * ls_dtype_size(run->dtype);
    if (run->save[0] != '\0') {
        LS_TRY(ls_state_check_output("--save", run->save, bytes));
    }
    if (run->save_grads[0] != '\0' && run->steps == 0) {
        return ls_fail(LS_BAD_INPUT, "--save-grads: a run of 0 steps has no gradients; raise --steps");
    }
    if (run->save_grads[0] != '\0') {
        LS_TRY(ls_state_check_output("--save-grads", run->save_grads, bytes));
    }
    if (run->checkpoint[0] == '\0') {
        return LS_OK;
    }
    size_t length = strlen(run->checkpoint);
    if (length < sizeof ending || strcmp(run->checkpoint + length - (sizeof ending - 1), ending) != 0) {
        return ls_fail(LS_BAD_INPUT, "--checkpoint: expected a file name that ends in %s, found '%s'", ending,
                       run->checkpoint);
    }
    LS_TRY(check_whole_epoch(run, done));
    return ls_state_check_output("--checkpoint", run->checkpoint, bytes);
}

/* Sharing. */

/* Rank 0's words to all ranks, through the control path, which sums doubles: the other ranks give zeros, and 32 bits are
 * exact in a double, so that every bit arrives, that of a negative zero as well. */
static ls_rc share_words(ls_rank_task *task, uint32_t *words, size_t count) {
    enum { PART = 1 << 16 };
    double *part = ls_calloc(PART, sizeof *part, "parameters on their way");
    ls_rc rc = part != NULL ? LS_OK : LS_DEVICE_FAILED;
    for (size_t first = 0; first < count && rc == LS_OK; first += PART) {
        size_t left = count - first < PART ? count - first : PART;
        for (size_t i = 0; i < left; i++) {
            part[i] = task->rank.rank == 0 ? (double)words[first + i] : 0.0;
        }
        rc = task->data->impl->sum(task->self, part, left);
        for (size_t i = 0; i < left; i++) {
            words[first + i] = (uint32_t)part[i];
        }
        ls_progress_bump(task->progress, LS_STAGE_OPENING);
    }
    free(part);
    return rc;
}

static ls_rc share_numbers(ls_rank_task *task, ls_training *training) {
    uint64_t *const numbers[] = {&training->epochs, &training->steps, &training->optimizer_step, &training->mask_step};
    enum { COUNT = sizeof numbers / sizeof numbers[0] };
    uint64_t values[COUNT];
    uint32_t words[2 * COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = *numbers[i];
    }
    memcpy(words, values, sizeof words);
    LS_TRY(share_words(task, words, 2 * COUNT));
    memcpy(values, words, sizeof values);
    for (size_t i = 0; i < COUNT; i++) {
        *numbers[i] = values[i];
    }
    return LS_OK;
}

/* What the model holds: to every rank's first replica. dp copies it to its others in every step, and the other
 * implementations have one. */
static ls_rc restore_model(ls_rank_task *task, ls_replica *replica, const ls_model_values *values) {
    const ls_model *model = &task->data->model;
    size_t element = ls_dtype_size(task->data->run->dtype) / sizeof(uint32_t);
    LS_TRY(share_words(task, values->params, model->param_count * element));
    LS_TRY(ls_replica_write_params(replica, values->params));
    if (model->buffer_tensors == 0) {
        return LS_OK;
    }
    LS_TRY(share_words(task, values->buffers, model->buffer_count * element));
    LS_TRY(share_words(task, (uint32_t *)values->tracked, 2 * model->tracked_count));
    return ls_replica_write_buffers(replica, values->buffers, values->tracked);
}

static ls_rc restore_optimizer(ls_rank_task *task, ls_replica *replica, ls_training *training) {
    size_t words = task->data->model.param_count * ls_dtype_size(task->data->run->dtype) / sizeof(uint32_t);
    for (size_t k = 0; k < training->buffer_count; k++) {
        LS_TRY(share_words(task, training->buffers[k], words));
        LS_TRY(ls_replica_write_optimizer_state(replica, k, training->buffers[k]));
    }
    LS_TRY(share_numbers(task, training));
    ls_replica_optimizer_set_step(replica, training->optimizer_step);
    size_t replicas = 1;
    for (size_t i = 0; i < replicas; i++) { /* each has masks of its own */
        ls_replica_set_step(task->data->impl->replica(task->self, i, &replicas), training->mask_step);
    }
    return LS_OK;
}

/* Reads on rank 0 and shares. */
static ls_rc restore(ls_rank_task *task, ls_training *training) {
    const ls_rank_data *data = task->data;
    const ls_run *run = data->run;
    bool resume = run->resume[0] != '\0';
    size_t replicas;
    ls_replica *replica = data->impl->replica(task->self, 0, &replicas);
    if (task->rank.rank == 0) {
        training->data = resume ? ls_dataset_hash(&data->train) : 0;
        LS_TRY(resume ? ls_training_read(run->resume, &data->model, training)
                      : ls_model_load(run->load, &data->model, run->dtype, &training->values));
    }
    LS_TRY(restore_model(task, replica, &training->values));
    return resume ? restore_optimizer(task, replica, training) : LS_OK;
}

/* Memory for the flat buffers of training. */
static ls_rc allocate(const ls_rank_data *data, ls_training *training) {
    size_t element = ls_dtype_size(data->run->dtype);
    LS_TRY(ls_rank_values_open(data, &training->values));
    for (size_t k = 0; k < training->buffer_count; k++) {
        training->buffers[k] = ls_calloc(data->model.param_count, element, "optimizer state of a checkpoint");
        if (training->buffers[k] == NULL) {
            return LS_DEVICE_FAILED;
        }
    }
    return LS_OK;
}

static void release(ls_training *training) {
    ls_rank_values_close(&training->values);
    for (size_t k = 0; k < training->buffer_count; k++) {
        free(training->buffers[k]);
    }
}

ls_rc ls_rank_values_open(const ls_rank_data *data, ls_model_values *out) {
    size_t element = ls_dtype_size(data->run->dtype);
    *out = (ls_model_values){
        .params = ls_calloc(data->model.param_count, element, "parameters"),
        .buffers = ls_calloc(data->model.buffer_count, element, "buffers of the model"),
        .tracked = ls_calloc(data->model.tracked_count, sizeof *out->tracked, "buffers of the model"),
    };
    if (out->params == NULL || out->buffers == NULL || out->tracked == NULL) {
        ls_rank_values_close(out);
        return LS_DEVICE_FAILED;
    }
    return LS_OK;
}

void ls_rank_values_close(ls_model_values *values) {
    free(values->params);
    free(values->buffers);
    free(values->tracked);
    *values = (ls_model_values){0};
}

ls_rc ls_rank_values_read(ls_rank_task *task, ls_model_values *values) {
    const ls_rank_data *data = task->data;
    size_t replicas;
    LS_TRY(data->impl->parameters(task->self, values->params));
    ls_replica *replica = data->impl->replica(task->self, 0, &replicas);
    return data->model.buffer_tensors == 0 ? LS_OK : ls_replica_read_buffers(replica, values->buffers, values->tracked);
}

ls_rc ls_rank_restore(ls_rank_task *task, size_t *first_epoch) {
    const ls_rank_data *data = task->data;
    *first_epoch = 0;
    if (data->run->load[0] == '\0' && data->run->resume[0] == '\0') {
        return LS_OK;
    }
    ls_training training;
    LS_TRY(training_of(data->run, data->impl, data->global_batch, data->train.count, &training));
    ls_rc rc = allocate(data, &training);
    if (rc == LS_OK) {
        rc = restore(task, &training);
    }
    release(&training);
    if (rc == LS_OK && data->run->resume[0] != '\0') {
        *first_epoch = (size_t)training.epochs;
        task->steps = task->resumed = training.steps;
        if (task->rank.rank == 0 && data->run->log_every != 0) {
            printf("Resumed from %s: %llu epochs, %llu steps\n", data->run->resume, (unsigned long long)training.epochs,
                   (unsigned long long)training.steps);
        }
    }
    return rc;
}

static ls_rc write_checkpoint(ls_rank_task *task, ls_training *training) {
    const ls_rank_data *data = task->data;
    size_t replicas;
    ls_replica *replica = data->impl->replica(task->self, 0, &replicas);
    LS_TRY(ls_rank_values_read(task, &training->values));
    for (size_t k = 0; k < training->buffer_count; k++) {
        LS_TRY(ls_replica_read_optimizer_state(replica, k, training->buffers[k]));
    }
    training->data = ls_dataset_hash(&data->train);
    training->optimizer_step = ls_replica_optimizer_step(replica);
    training->mask_step = ls_replica_step(replica);
    return ls_training_write(data->run->checkpoint, &data->model, training);
}

ls_rc ls_rank_checkpoint(ls_rank_task *task, size_t epochs) {
    const ls_rank_data *data = task->data;
    if (data->run->checkpoint[0] == '\0' || task->rank.rank != 0) {
        return LS_OK;
    }
    ls_progress_bump(task->progress, LS_STAGE_SAVING);
    ls_training training;
    LS_TRY(training_of(data->run, data->impl, data->global_batch, data->train.count, &training));
    training.epochs = epochs;
    training.steps = task->steps;
    ls_rc rc = allocate(data, &training);
    if (rc == LS_OK) {
        rc = write_checkpoint(task, &training);
    }
    release(&training);
    ls_progress_bump(task->progress, LS_STAGE_SAVING);
    return rc;
}
