/* The data set of a run: its sampler, whether its network fits it, and a rank's share of it. */
#include "impls/rank.h"

ls_sampler ls_run_sampler(const ls_run *run, size_t count, size_t world, size_t rank) {
    return (ls_sampler){.count = count,
                        .world = world,
                        .rank = rank,
                        .shuffle = !run->no_shuffle,
                        .drop_last = run->drop_last,
                        .seed = run->seed};
}

ls_rc ls_run_fits(const ls_run *run, const ls_model *model, const ls_dataset *data) {
    const ls_shape *input = &model->input;
    bool shape = data->channels == input->channels && data->height == input->height && data->width == input->width;
    if (data->target_count > 0 && run->loss.kind == LS_LOSS_CROSS_ENTROPY) {
        return ls_fail(
            LS_BAD_INPUT,
            "--data %s has %zu float targets a sample, --loss cross-entropy needs labels; choose --loss mse or "
            "rmse",
            run->data, data->target_count);
    }
    if (data->target_count > 0 && (!shape || data->target_count != model->classes)) {
        return ls_fail(
            LS_BAD_INPUT,
            "--data %s has samples of %zux%zux%zu with %zu float targets each, model %s takes %zux%zux%zu and "
            "gives %zu outputs; choose a network that fits",
            run->data, data->channels, data->height, data->width, data->target_count, model->name, input->channels,
            input->height, input->width, model->classes);
    }
    if (!shape || data->classes > model->classes) {
        return ls_fail(LS_BAD_INPUT,
                       "--data %s has samples of %zux%zux%zu in %zu classes, model %s takes %zux%zux%zu and tells %zu "
                       "classes apart; choose a network that fits",
                       run->data, data->channels, data->height, data->width, data->classes, model->name,
                       input->channels, input->height, input->width, model->classes);
    }
    return LS_OK;
}

ls_rc ls_run_full_steps(const ls_run *run) {
    size_t length, batch;
    ls_dataset data = {0};
    LS_TRY(ls_dataset_shape(run->data, LS_SPLIT_TRAIN, &data));
    LS_TRY(ls_run_share(run, data.count, &length, &batch));
    if (batch <= length) {
        return LS_OK;
    }
    size_t ranks = ls_impl_find(run->impl)->ranks(run->devices);
    return ls_fail(
        LS_BAD_INPUT,
        "%s %zu: %s on %zu devices has %zu samples a rank and step, a rank's shard %zu (%zu samples over %zu "
        "rank%s), so there is no full step to time; choose a smaller batch or more data",
        run->global_batch > 0 ? "--global-batch" : "--batch", run->global_batch > 0 ? run->global_batch : run->batch,
        run->impl, run->devices, batch, length, data.count, ranks, ranks == 1 ? "" : "s");
}

ls_rc ls_run_share(const ls_run *run, size_t count, size_t *length, size_t *batch) {
    size_t local, global;
    LS_TRY(ls_run_batches(run, &local, &global));
    size_t ranks = ls_impl_find(run->impl)->ranks(run->devices);
    ls_sampler sampler = ls_run_sampler(run, count, ranks, 0);
    *length = ls_sampler_length(&sampler);
    *batch = global / ranks;
    return LS_OK;
}
