/* Test accuracy over all ranks: disjoint slices, no padding, so every sample counts once. */
#include <stdlib.h>
#include <string.h>

#include "impls/rank_internal.h"

ls_rc ls_rank_slice_open(const ls_dataset *test, size_t rank, size_t world, ls_rank_slice *out) {
    *out = (ls_rank_slice){.samples = {.count = test->count, .pixels = test->pixels, .labels = test->labels}};
    if (world == 1) {
        return LS_OK;
    }
    size_t features = test->channels * test->height * test->width;
    size_t count = rank < test->count ? (test->count - rank - 1) / world + 1 : 0;
    out->pixels = ls_calloc(count * features, 1, "a slice of the test set");
    out->labels = ls_calloc(count, sizeof *out->labels, "a slice of the test set");
    if (out->pixels == NULL || out->labels == NULL) {
        ls_rank_slice_close(out);
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(out->pixels + i * features, test->pixels + (rank + i * world) * features, features);
        out->labels[i] = test->labels[rank + i * world];
    }
    out->samples = (ls_batch){.count = count, .pixels = out->pixels, .labels = out->labels};
    return LS_OK;
}

void ls_rank_slice_close(ls_rank_slice *slice) {
    free(slice->pixels);
    free(slice->labels);
    *slice = (ls_rank_slice){0};
}

ls_rc ls_rank_evaluate(ls_rank_task *task, const ls_rank_slice *slice, double *loss, double *correct, double *count) {
    const ls_dataset *test = &task->data->test;
    size_t features = test->channels * test->height * test->width, replicas;
    ls_replica *replica = task->data->impl->replica(task->self, 0, &replicas);
    double sums[3] = {0, 0, (double)slice->samples.count};
    /* in parts, so that the launcher sees progress */
    enum { PART = 4096 };
    for (size_t first = 0; first < slice->samples.count; first += PART) {
        size_t left = slice->samples.count - first;
        ls_batch part = {
            .count = left < PART ? left : PART,
            .pixels = slice->samples.pixels + first * features,
            .labels = slice->samples.labels + first,
        };
        LS_TRY(ls_replica_evaluate(replica, &part, &sums[0], &sums[1]));
        ls_progress_bump(task->progress, LS_STAGE_EVALUATING);
    }
    LS_TRY(task->data->impl->sum(task->self, sums, 3));
    ls_progress_bump(task->progress, LS_STAGE_EVALUATING);
    ls_loss_options mean = task->data->run->loss; /* over the test set, whatever the training's reduction */
    mean.reduction = LS_LOSS_MEAN;
    *loss = sums[2] > 0 ? ls_loss_value(&mean, sums[0], sums[2], task->data->model.classes) : 0;
    *correct = sums[1];
    *count = sums[2];
    return LS_OK;
}
