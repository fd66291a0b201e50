/* A rank of `lockstep eval`: no training, the accuracy of loaded parameters. */
#include <stdlib.h>

#include "impls/json_number.h"
#include "impls/rank_restore.h"
#include "reference/hash.h"

static ls_rc record(ls_rank_task *task, const ls_test_score *score) {
    json_t *correct = score->right_or_wrong ? json_integer((json_int_t)score->correct) : json_null();
    json_t *row = json_pack("{s:o, s:o, s:o, s:I}", "test_loss", ls_json_number(score->loss), "test_accuracy",
                            ls_rank_score_accuracy(score), "correct", correct, "samples", (json_int_t)score->count);
    return row != NULL && json_array_append_new(task->epochs, row) == 0
               ? LS_OK
               : ls_fail(LS_DEVICE_FAILED, "out of memory for the result of a rank");
}

/* The result file, with the hash of the parameters that were evaluated. */
static ls_rc write_result(ls_rank_task *task) {
    const ls_rank_data *data = task->data;
    size_t bytes = data->model.param_count * ls_dtype_size(data->run->dtype);
    void *flat = ls_calloc(1, bytes, "parameters");
    if (flat == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_rc rc = data->impl->parameters(task->self, flat);
    if (rc == LS_OK && data->folder != NULL) {
        rc = ls_rank_result_write(task, ls_hash(LS_HASH_SEED, flat, bytes), NULL);
    }
    free(flat);
    return rc;
}

static ls_rc evaluate(ls_rank_task *task, const ls_rank_slice *slice) {
    const ls_rank_data *data = task->data;
    size_t first_epoch;
    ls_test_score score;
    LS_TRY(data->impl->open(data->run, &task->rank, &data->model, data->batch, &task->self));
    ls_progress_bump(task->progress, LS_STAGE_OPENING);
    LS_TRY(ls_rank_restore(task, &first_epoch));
    LS_TRY(ls_rank_evaluate(task, slice, &score));
    if (task->rank.rank == 0) {
        ls_rank_score_print(&score);
    }
    LS_TRY(record(task, &score));
    LS_TRY(write_result(task));
    ls_progress_bump(task->progress, LS_STAGE_SAVING);
    return LS_OK;
}

ls_rc ls_rank_run_evaluation(ls_rank_task *task) {
    ls_rank_slice slice = {0};
    ls_progress_bump(task->progress, LS_STAGE_OPENING);
    LS_TRY(ls_rank_result_open(task));
    LS_CUDA(cudaSetDevice(task->rank.device));
    LS_TRY(ls_rank_slice_open(&task->data->test, task->rank.rank, task->rank.world, &slice));
    LS_TRY(evaluate(task, &slice)); /* after a failure the process ends: closing could wait for peers that are gone */
    task->data->impl->close(task->self);
    ls_rank_slice_close(&slice);
    ls_rank_result_close(task);
    return LS_OK;
}
