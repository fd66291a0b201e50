/* What follows from a run's options alone. */
#include <stdio.h>
#include <string.h>

#include "impls/chunk.h"
#include "impls/rank.h"
#include "impls/run_spec.h"

ls_rc ls_run_model(const ls_run *run, ls_model *model, ls_normalize *normalize) {
    ls_model_spec spec;
    LS_TRY(ls_run_resolve(run, &spec, model));
    *normalize = run->normalize_given ? run->normalize : spec.normalize;
    if (normalize->channels > 1 && normalize->channels != model->input.channels) {
        return ls_fail(LS_BAD_INPUT,
                       "--normalize: expected one MEAN,STD for all channels or one for each of the %zu channels of the "
                       "inputs of model %s, found %zu",
                       model->input.channels, run->model, normalize->channels);
    }
    return LS_OK;
}

void ls_run_make_single(ls_run *run) {
    snprintf(run->impl, sizeof run->impl, "single");
    run->devices = 1;
    run->nccl_register = false;
}

ls_rc ls_run_batches(const ls_run *run, size_t *local, size_t *global) {
    const ls_impl *impl = ls_impl_find(run->impl);
    if (run->devices == 0) {
        return ls_fail(LS_BAD_INPUT, "--devices: expected at least 1, found 0");
    }
    if (run->global_batch == 0) {
        if (run->batch == 0 || run->batch > SIZE_MAX / run->devices) {
            return ls_fail(LS_BAD_INPUT, "--batch: expected 1 or more samples a device, found %zu", run->batch);
        }
        *local = run->batch;
        *global = run->batch * run->devices;
        return LS_OK;
    }
    /* Ranks average their means, which is the mean over all samples only when all have the same number. */
    size_t ranks = impl != NULL ? impl->ranks(run->devices) : run->devices;
    if (run->global_batch % ranks != 0) {
        return ls_fail(LS_BAD_INPUT,
                       "--global-batch %zu cannot be split evenly over %zu ranks; choose a multiple of %zu",
                       run->global_batch, ranks, ranks);
    }
    *local = ls_chunk_size(run->global_batch, run->devices);
    *global = run->global_batch;
    return LS_OK;
}

size_t ls_run_epochs(const ls_run *run) {
    const ls_model_spec *spec = ls_zoo_find(run->model);
    return run->epochs != 0 || spec == NULL ? run->epochs : spec->epochs;
}

double ls_run_rate(const ls_run *run, uint64_t step, size_t epoch) {
    size_t epochs = ls_run_epochs(run);
    return ls_schedule_rate(&run->schedule, run->lr, step, epoch, epochs > 0 ? epochs : 1);
}
