/* Test accuracy over all ranks: disjoint slices, no padding, so every sample counts once. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu/range.h"
#include "impls/buffers.h"
#include "impls/rank_internal.h"

static ls_rc slice_allocate(const ls_dataset *test, size_t count, ls_samples *out) {
    static const char what[] = "a slice of the test set";
    size_t features = ls_dataset_features(test);
    out->labels = ls_calloc(count, sizeof *out->labels, what);
    if (test->values != NULL) {
        out->values = ls_calloc(count * features, sizeof *out->values, what);
    } else {
        out->pixels = ls_calloc(count * features, 1, what);
    }
    if (test->targets != NULL) {
        out->targets = ls_calloc(count * test->target_count, sizeof *out->targets, what);
    }
    bool whole = out->labels != NULL && (out->values != NULL || out->pixels != NULL) &&
                 (out->targets != NULL || test->targets == NULL);
    return whole ? LS_OK : LS_DEVICE_FAILED;
}

static ls_batch batch_of(size_t count, const ls_samples *samples, size_t target_count) {
    return (ls_batch){.count = count,
                      .pixels = samples->pixels,
                      .values = samples->values,
                      .labels = samples->labels,
                      .targets = samples->targets,
                      .target_count = target_count};
}

ls_rc ls_rank_slice_open(const ls_dataset *test, size_t rank, size_t world, ls_rank_slice *out) {
    const ls_samples all = {
        .pixels = test->pixels, .values = test->values, .labels = test->labels, .targets = test->targets};
    *out = (ls_rank_slice){.samples = batch_of(test->count, &all, test->target_count)};
    if (world == 1) {
        return LS_OK;
    }
    size_t count = rank < test->count ? (test->count - rank - 1) / world + 1 : 0;
    if (slice_allocate(test, count, &out->own) != LS_OK) {
        ls_rank_slice_close(out);
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < count; i++) {
        ls_samples_copy(test, rank + i * world, &out->own, i);
    }
    out->samples = batch_of(count, &out->own, test->target_count);
    return LS_OK;
}

void ls_rank_slice_close(ls_rank_slice *slice) {
    free(slice->own.pixels);
    free(slice->own.values);
    free(slice->own.labels);
    free(slice->own.targets);
    *slice = (ls_rank_slice){0};
}

ls_rc ls_rank_evaluate(ls_rank_task *task, const ls_rank_slice *slice, ls_test_score *score) {
    LS_RANGE("evaluate");
    const ls_dataset *test = &task->data->test;
    size_t features = ls_dataset_features(test), replicas;
    ls_replica *replica = task->data->impl->replica(task->self, 0, &replicas);
    double sums[3] = {0, 0, (double)slice->samples.count};
    LS_TRY(ls_buffers_share(task->data->impl, task->self, task->rank.rank, task->rank.world));
    /* in parts, so that the launcher sees progress */
    enum { PART = 4096 };
    for (size_t first = 0; first < slice->samples.count; first += PART) {
        size_t left = slice->samples.count - first;
        ls_batch part = ls_batch_part(&slice->samples, features, first, left < PART ? left : PART);
        LS_TRY(ls_replica_evaluate(replica, &part, &sums[0], &sums[1]));
        ls_progress_bump(task->progress, LS_STAGE_EVALUATING);
    }
    LS_TRY(task->data->impl->sum(task->self, sums, 3));
    ls_progress_bump(task->progress, LS_STAGE_EVALUATING);
    ls_loss_options mean = task->data->run->loss; /* over the test set, whatever the training's reduction */
    mean.reduction = LS_LOSS_MEAN;
    *score = (ls_test_score){
        .loss = sums[2] > 0 ? ls_loss_value(&mean, sums[0], sums[2], task->data->model.classes) : 0,
        .correct = sums[1],
        .count = sums[2],
        .right_or_wrong = test->target_count == 0,
    };
    return LS_OK;
}

static double accuracy(const ls_test_score *score) {
    return score->count > 0 ? score->correct / score->count : 0;
}

void ls_rank_score_print(const ls_test_score *score) {
    printf("Test set: average loss %.4f", ls_printed_loss(score->loss));
    if (score->right_or_wrong) {
        printf(", accuracy: %.0f/%.0f (%.2f%%)", score->correct, score->count, 100 * accuracy(score));
    }
    putchar('\n');
}

json_t *ls_rank_score_accuracy(const ls_test_score *score) {
    return score->right_or_wrong ? json_real(accuracy(score)) : json_null();
}
