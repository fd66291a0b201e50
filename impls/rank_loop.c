/* The training loop of one rank: epochs, steps, log lines, evaluation, timing, saving. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gpu/base/clock.h"
#include "impls/json_number.h"
#include "impls/rank.h"
#include "impls/rank_internal.h"
#include "impls/rank_restore.h"
#include "impls/run_spec.h"
#include "reference/batcher.h"
#include "reference/checkpoint/model_state.h"
#include "reference/hash.h"

typedef struct loop {
    ls_rank_task *task;
    ls_batcher *batcher;
    ls_rank_capture *capture;
    ls_rank_slice slice;
    size_t first_epoch; /* above 0: the run goes on from a checkpoint */
    size_t epochs;      /* at most */
    double logged;      /* sum of the losses logged in this epoch */
    size_t logged_count;
    bool logs; /* this rank prints */
} loop;

static ls_rc append_number(json_t *array, double value) {
    return json_array_append_new(array, ls_json_number(value)) == 0
               ? LS_OK
               : ls_fail(LS_DEVICE_FAILED, "out of memory for the result of a rank");
}

/* The copies that read the batch are enqueued: the batcher waits for them before it reuses the memory. */
static ls_rc mark_used(loop *l) {
    const ls_rank_data *data = l->task->data;
    size_t count = 1;
    for (size_t i = 0; i < count; i++) {
        ls_replica *replica = data->impl->replica(l->task->self, i, &count);
        if (count > 1) {
            LS_CUDA(cudaSetDevice(ls_replica_device(replica))); /* an event belongs to its stream's device */
        }
        LS_TRY(ls_batcher_used(l->batcher, ls_replica_input_stream(replica)));
    }
    if (count > 1) {
        LS_CUDA(cudaSetDevice(l->task->rank.device));
    }
    return LS_OK;
}

/* A step with its time: all ranks start together, and the clock stops when the devices of this rank have finished. A
 * partial batch and the steps of the warm-up are not samples of a full step. */
static ls_rc timed_step(loop *l, const ls_batch *batch, size_t global_count) {
    ls_rank_task *task = l->task;
    const ls_rank_data *data = task->data;
    double one = 1;
    LS_TRY(data->impl->sum(task->self, &one, 1));
    double start = ls_now_seconds();
    LS_TRY(data->impl->step(task->self, batch, global_count));
    LS_TRY(data->impl->synchronize(task->self));
    double seconds = ls_now_seconds() - start;
    if (task->steps < data->run->warmup) {
        return append_number(task->warmup_seconds, seconds);
    }
    return batch->count == data->batch ? append_number(task->step_seconds, seconds) : LS_OK;
}

static ls_rc log_loss(loop *l, size_t epoch, size_t step) {
    ls_rank_task *task = l->task;
    const ls_rank_data *data = task->data;
    double loss;
    LS_TRY(data->impl->loss(task->self, &loss));
    LS_TRY(data->impl->sum(task->self, &loss, 1));
    loss /= (double)task->rank.world;
    l->logged += loss;
    l->logged_count++;
    if (json_array_append_new(task->log, json_pack("{s:I, s:I, s:o}", "epoch", (json_int_t)epoch + 1, "batch",
                                                   (json_int_t)step, "loss", ls_json_number(loss))) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the result of a rank");
    }
    if (l->logs) {
        printf("Train Epoch: %zu [%zu/%zu (%.0f%%)]\tLoss: %.6f\n", epoch + 1, step * data->global_batch,
               data->train.count, 100.0 * (double)step / (double)ls_batcher_steps(l->batcher), ls_printed_loss(loss));
    }
    return LS_OK;
}

/* Every replica gets the step's learning rate, whoever updates. */
static void set_rate(loop *l, size_t epoch) {
    const ls_rank_task *task = l->task;
    double rate = ls_run_rate(task->data->run, task->steps, epoch);
    size_t count = 1;
    for (size_t i = 0; i < count; i++) {
        ls_replica_set_lr(task->data->impl->replica(task->self, i, &count), rate);
    }
}

static ls_rc run_step(loop *l, size_t epoch, size_t step) {
    ls_rank_task *task = l->task;
    const ls_run *run = task->data->run;
    ls_batch batch;
    ls_progress_step(task->progress, task->steps);
    ls_progress_bump(task->progress, LS_STAGE_TRAINING);
    LS_TRY(ls_batcher_get(l->batcher, step, &batch));
    size_t global_count = batch.count * task->rank.world; /* shards have equal lengths */
    set_rate(l, epoch);
    LS_TRY(ls_rank_capture_before(l->capture));
    if (run->time_steps) {
        LS_TRY(timed_step(l, &batch, global_count));
    } else {
        LS_TRY(task->data->impl->step(task->self, &batch, global_count));
    }
    LS_TRY(mark_used(l));
    ls_progress_bump(task->progress, LS_STAGE_TRAINING);
    LS_TRY(ls_rank_capture_after(l->capture, &batch));
    if (run->log_every != 0 && step % run->log_every == 0) {
        LS_TRY(log_loss(l, epoch, step));
        ls_progress_bump(task->progress, LS_STAGE_TRAINING);
    }
    task->steps++;
    task->samples += global_count;
    return LS_OK;
}

/* Adds the epoch to the result. Losses that nobody logged and accuracies that nobody measured are null. */
static ls_rc record_epoch(loop *l, double seconds, uint64_t samples, const ls_test_score *score) {
    json_t *loss = l->logged_count > 0 ? ls_json_number(l->logged / (double)l->logged_count) : json_null();
    json_t *row = json_pack("{s:o, s:o, s:o, s:f, s:f}", "loss", loss, "test_loss",
                            score != NULL ? ls_json_number(score->loss) : json_null(), "test_accuracy",
                            score != NULL ? ls_rank_score_accuracy(score) : json_null(), "seconds", seconds,
                            "samples_per_second", seconds > 0 ? (double)samples / seconds : 0.0);
    if (row == NULL || json_array_append_new(l->task->epochs, row) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the result of a rank");
    }
    return LS_OK;
}

static ls_rc finish_epoch(loop *l, size_t epoch, double seconds, uint64_t samples) {
    const ls_run *run = l->task->data->run;
    ls_test_score score;
    if (!run->evaluate) {
        return record_epoch(l, seconds, samples, NULL);
    }
    LS_TRY(ls_rank_evaluate(l->task, &l->slice, &score));
    if (l->logs) {
        ls_rank_score_print(&score);
        printf("Epoch %zu: %llu samples in %.2f s, %.0f samples/s\n", epoch + 1, (unsigned long long)samples, seconds,
               seconds > 0 ? (double)samples / seconds : 0.0);
    }
    return record_epoch(l, seconds, samples, &score);
}

static ls_rc run_epoch(loop *l, size_t epoch) {
    ls_rank_task *task = l->task;
    const ls_rank_data *data = task->data;
    size_t steps = ls_batcher_steps(l->batcher);
    uint64_t before = task->samples;
    l->logged = 0;
    l->logged_count = 0;
    LS_TRY(ls_batcher_set_epoch(l->batcher, epoch));
    double start = ls_now_seconds();
    size_t made = 0;
    for (; made < steps && task->steps < data->run->steps; made++) {
        LS_TRY(run_step(l, epoch, made));
    }
    LS_TRY(data->impl->synchronize(task->self));
    ls_progress_bump(task->progress, LS_STAGE_TRAINING);
    double seconds = ls_now_seconds() - start;
    task->train_seconds += seconds;
    LS_TRY(finish_epoch(l, epoch, seconds, task->samples - before));
    bool whole = made == steps; /* --steps may end it before */
    return whole ? ls_rank_checkpoint(task, epoch + 1) : LS_OK;
}

static ls_rc train(loop *l) {
    ls_rank_task *task = l->task;
    const ls_run *run = task->data->run;
    for (size_t epoch = l->first_epoch; epoch < l->epochs && task->steps < run->steps; epoch++) {
        LS_TRY(run_epoch(l, epoch));
    }
    if (l->logs) {
        printf("Trained %llu samples in %.2f s: %.0f samples/s\n", (unsigned long long)task->samples,
               task->train_seconds, task->train_seconds > 0 ? (double)task->samples / task->train_seconds : 0.0);
    }
    task->input_seconds = ls_batcher_seconds(l->batcher);
    if (l->logs) {
        printf("Waited %.2f s for input, %.1f%% of it\n", task->input_seconds,
               task->train_seconds > 0 ? 100 * task->input_seconds / task->train_seconds : 0.0);
    }
    return LS_OK;
}

/* The last step's gradients, reduced over ranks: their hash, and the file that --save-grads names. */
static ls_rc conclude_gradients(ls_rank_task *task, void *flat, size_t bytes, uint64_t *hash) {
    const ls_rank_data *data = task->data;
    const char *path = data->run->save_grads;
    LS_TRY(data->impl->gradients(task->self, flat));
    *hash = ls_hash(LS_HASH_SEED, flat, bytes);
    bool saves = task->rank.rank == 0 && path[0] != '\0';
    return saves ? ls_model_save_params(path, &data->model, data->run->dtype, flat) : LS_OK;
}

/* Saves, and writes the result file. */
static ls_rc conclude(ls_rank_task *task) {
    const ls_rank_data *data = task->data;
    size_t bytes = data->model.param_count * ls_dtype_size(data->run->dtype);
    uint64_t grads = 0;
    ls_model_values values;
    ls_progress_bump(task->progress, LS_STAGE_SAVING);
    LS_TRY(ls_rank_values_open(data, &values));
    ls_rc rc = LS_OK;
    if (task->steps > 0) {
        rc = conclude_gradients(task, values.params, bytes, &grads);
    }
    if (rc == LS_OK) {
        rc = ls_rank_values_read(task, &values);
    }
    if (rc == LS_OK && task->rank.rank == 0 && data->run->save[0] != '\0') {
        rc = ls_model_save(data->run->save, &data->model, data->run->dtype, &values);
    }
    if (rc == LS_OK && data->folder != NULL) {
        rc = ls_rank_result_write(task, ls_hash(LS_HASH_SEED, values.params, bytes), task->steps > 0 ? &grads : NULL);
    }
    ls_rank_values_close(&values);
    ls_progress_bump(task->progress, LS_STAGE_SAVING);
    return rc;
}

static ls_rc open_loop(loop *l) {
    ls_rank_task *task = l->task;
    const ls_rank_data *data = task->data;
    ls_sampler sampler = ls_run_sampler(data->run, data->train.count, task->rank.world, task->rank.rank);
    ls_progress_bump(task->progress, LS_STAGE_OPENING);
    LS_TRY(ls_rank_result_open(task));
    LS_CUDA(cudaSetDevice(task->rank.device));
    LS_TRY(ls_batcher_open(&data->train, &sampler, data->batch, &l->batcher));
    LS_TRY(ls_batcher_start(l->batcher, data->run->loader_threads));
    if (data->run->evaluate) {
        LS_TRY(ls_rank_slice_open(&data->test, task->rank.rank, task->rank.world, &l->slice));
    }
    LS_TRY(data->impl->open(data->run, &task->rank, &data->model, data->batch, &task->self));
    LS_TRY(ls_rank_restore(task, &l->first_epoch));
    ls_progress_bump(task->progress, LS_STAGE_OPENING);
    return ls_rank_capture_open(task, &l->capture);
}

ls_rc ls_rank_run(ls_rank_task *task) {
    const ls_run *run = task->data->run;
    loop l = {
        .task = task,
        .epochs = ls_restore_epoch_limit(run),
        .logs = task->rank.rank == 0 && (run->log_every != 0 || run->evaluate),
    };
    ls_rc rc = open_loop(&l);
    if (rc == LS_OK) {
        rc = train(&l);
    }
    if (rc == LS_OK) {
        rc = conclude(task);
    }
    if (rc != LS_OK) {
        return rc; /* the process ends: closing could wait for peers that are gone */
    }
    ls_rank_capture_close(l.capture);
    ls_batcher_close(l.batcher);
    task->data->impl->close(task->self);
    ls_rank_slice_close(&l.slice);
    ls_rank_result_close(task);
    return LS_OK;
}
