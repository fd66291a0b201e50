#include "impls/rank_restore.h"

#include <stdlib.h>
#include <string.h>

#include "impls/rank.h"
#include "reference/checkpoint/formats.h"
#include "reference/checkpoint/model_state.h"
#include "reference/checkpoint/training.h"

/* What of a checkpoint must be alike in the run. samples: of the training set. */
static ls_training training_of(const ls_run *run, const ls_impl *impl, size_t global_batch, size_t samples) {
    return (ls_training){
        .ranks = impl->ranks(run->devices),
        .devices = run->devices,
        .global_batch = global_batch,
        .samples = samples,
        .seed = run->seed,
        .dtype = run->dtype,
        .optimizer = "sgd",
        .buffer_count = 1,
        .buffer_names = {"momentum_buffer"},
    };
}

size_t ls_restore_epoch_limit(const ls_run *run) {
    if (run->epochs != 0) {
        return run->epochs;
    }
    const ls_model_spec *spec = ls_zoo_find(run->model);
    return run->steps != SIZE_MAX || spec == NULL ? SIZE_MAX : spec->epochs;
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

static ls_rc check_inputs(const ls_run *run, const ls_model *model) {
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
    LS_TRY(ls_dataset_open(run->data, LS_SPLIT_TRAIN, &data)); /* its size is part of the order */
    ls_training training = training_of(run, ls_impl_find(run->impl), global, data.count);
    ls_dataset_close(&data);
    LS_TRY(ls_training_read(run->resume, model, &training));
    return check_left(run, &training);
}

ls_rc ls_restore_check(const ls_run *run) {
    static const char ending[] = ".safetensors";
    ls_model model;
    bool normalize;
    double mean, std;
    LS_TRY(ls_run_model(run, &model, &normalize, &mean, &std));
    LS_TRY(check_inputs(run, &model));
    uint64_t bytes = (uint64_t)model.param_count * ls_dtype_size(run->dtype);
    if (run->save[0] != '\0') {
        LS_TRY(ls_state_check_output("--save", run->save, bytes));
    }
    if (run->checkpoint[0] == '\0') {
        return LS_OK;
    }
    size_t length = strlen(run->checkpoint);
    if (length < sizeof ending || strcmp(run->checkpoint + length - (sizeof ending - 1), ending) != 0) {
        return ls_fail(LS_BAD_INPUT, "--checkpoint: expected a file name that ends in %s, found '%s'", ending,
                       run->checkpoint);
    }
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
    uint64_t numbers[3] = {training->epochs, training->steps, training->optimizer_step};
    uint32_t words[6];
    memcpy(words, numbers, sizeof words);
    LS_TRY(share_words(task, words, 6));
    memcpy(numbers, words, sizeof numbers);
    training->epochs = numbers[0];
    training->steps = numbers[1];
    training->optimizer_step = numbers[2];
    return LS_OK;
}

/* Reads on rank 0, shares, and writes into this rank's first replica: dp copies the parameters to its others in every step,
 * and the other implementations have one. */
static ls_rc restore(ls_rank_task *task, ls_training *training) {
    const ls_rank_data *data = task->data;
    const ls_run *run = data->run;
    bool resume = run->resume[0] != '\0';
    size_t words = data->model.param_count * ls_dtype_size(run->dtype) / sizeof(uint32_t), replicas;
    ls_replica *replica = data->impl->replica(task->self, 0, &replicas);
    if (task->rank.rank == 0) {
        LS_TRY(resume ? ls_training_read(run->resume, &data->model, training)
                      : ls_model_load(run->load, &data->model, run->dtype, training->params));
    }
    LS_TRY(share_words(task, training->params, words));
    LS_TRY(ls_replica_write_params(replica, training->params));
    if (resume) {
        LS_TRY(share_words(task, training->buffers[0], words));
        LS_TRY(share_numbers(task, training));
        LS_TRY(ls_replica_write_velocity(replica, training->buffers[0], training->optimizer_step > 0));
    }
    return LS_OK;
}

/* Memory for the flat buffers of training. */
static ls_rc allocate(const ls_rank_data *data, ls_training *training) {
    size_t element = ls_dtype_size(data->run->dtype);
    training->params = ls_calloc(data->model.param_count, element, "parameters of a checkpoint");
    bool whole = training->params != NULL;
    for (size_t k = 0; k < training->buffer_count; k++) {
        training->buffers[k] = ls_calloc(data->model.param_count, element, "optimizer state of a checkpoint");
        whole = whole && training->buffers[k] != NULL;
    }
    return whole ? LS_OK : LS_DEVICE_FAILED;
}

static void release(ls_training *training) {
    free(training->params);
    for (size_t k = 0; k < training->buffer_count; k++) {
        free(training->buffers[k]);
    }
}

ls_rc ls_rank_restore(ls_rank_task *task, size_t *first_epoch) {
    const ls_rank_data *data = task->data;
    *first_epoch = 0;
    if (data->run->load[0] == '\0' && data->run->resume[0] == '\0') {
        return LS_OK;
    }
    ls_training training = training_of(data->run, data->impl, data->global_batch, data->train.count);
    ls_rc rc = allocate(data, &training);
    if (rc == LS_OK) {
        rc = restore(task, &training);
    }
    release(&training);
    if (rc == LS_OK && data->run->resume[0] != '\0') {
        *first_epoch = (size_t)training.epochs;
        task->steps = training.steps;
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
    bool started = false;
    ls_replica *replica = data->impl->replica(task->self, 0, &replicas);
    LS_TRY(data->impl->parameters(task->self, training->params));
    LS_TRY(ls_replica_read_velocity(replica, training->buffers[0], &started));
    training->optimizer_step = started ? task->steps : 0;
    return ls_training_write(data->run->checkpoint, &data->model, training);
}

ls_rc ls_rank_checkpoint(ls_rank_task *task, size_t epochs) {
    const ls_rank_data *data = task->data;
    if (data->run->checkpoint[0] == '\0' || task->rank.rank != 0) {
        return LS_OK;
    }
    ls_progress_bump(task->progress, LS_STAGE_SAVING);
    ls_training training = training_of(data->run, data->impl, data->global_batch, data->train.count);
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
