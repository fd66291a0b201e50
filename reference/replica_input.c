/* Batches onto the device. */
#include "gpu/range.h"
#include "reference/cleanup.h"
#include "reference/replica_internal.h"

_Static_assert((int)LS_INPUT_MAX_CHANNELS == (int)LS_NORMALIZE_MAX_CHANNELS, "a setting must fit the kernel's");

/* The normalisation as the kernel takes it: float32. */
static ls_input_scale input_scale(const ls_replica *replica) {
    const ls_normalize *normalize = &replica->options.normalize;
    const ls_shape *input = &replica->model->input;
    ls_input_scale scale = {.channels = normalize->channels, .plane = input->height * input->width};
    for (size_t c = 0; c < normalize->channels; c++) {
        scale.mean[c] = (float)normalize->mean[c];
        scale.std[c] = (float)normalize->std[c];
        if (LS_MUTANT(deviation_off)) {
            scale.std[c] += 1e-4F;
        }
    }
    return scale;
}

/* Room in the stages of uploads; floats take the most. */
static size_t upload_bytes(const ls_replica *replica, size_t target_count) {
    size_t count = replica->options.max_batch;
    return ls_upload_room(count * ls_shape_features(replica->model->input) * sizeof(float)) +
           ls_upload_room(count * sizeof *replica->labels) +
           ls_upload_room(count * target_count * sizeof *replica->targets);
}

ls_rc ls_replica_input_open(ls_replica *replica) {
    size_t max_batch = replica->options.max_batch;
    void *memory = NULL;
    LS_CUDA(cudaMalloc(&memory, max_batch * ls_shape_features(replica->model->input) * sizeof(float)));
    replica->samples = memory;
    LS_CUDA(cudaMalloc(&memory, max_batch * sizeof *replica->labels));
    replica->labels = memory;
    LS_TRY(ls_upload_stream(replica->stream, &replica->copies));
    return ls_upload_open(&replica->upload, replica->stream, replica->copies, upload_bytes(replica, 0));
}

void ls_replica_input_close(ls_replica *replica, ls_rc *rc) {
    ls_upload_close(&replica->upload, rc);
    LS_CLOSE(*rc, cudaFree(replica->samples));
    LS_CLOSE(*rc, cudaFree(replica->labels));
    LS_CLOSE(*rc, cudaFree(replica->targets));
    if (replica->copies != NULL && replica->copies != replica->stream) {
        LS_CLOSE(*rc, cudaStreamDestroy(replica->copies));
    }
}

/* Room for the targets of a full batch, made when the first ones come: most data sets have none. */
static ls_rc reserve_targets(ls_replica *replica, size_t target_count) {
    if (replica->targets != NULL && target_count == replica->target_count) {
        return LS_OK;
    }
    void *memory = NULL;
    LS_CUDA(cudaStreamSynchronize(replica->stream));
    LS_CUDA(cudaFree(replica->targets));
    replica->targets = NULL;
    LS_CUDA(cudaMalloc(&memory, replica->options.max_batch * target_count * sizeof *replica->targets));
    replica->targets = memory;
    replica->target_count = target_count;
    return ls_upload_reserve(&replica->upload, upload_bytes(replica, target_count));
}

static ls_rc copy_batch(ls_replica *replica, const ls_batch *batch) {
    const ls_replica_options *options = &replica->options;
    size_t features = ls_shape_features(replica->model->input), count = batch->count;
    if (count > options->max_batch) {
        return ls_fail(LS_BAD_INPUT, "batch of a replica: expected at most %zu samples, found %zu", options->max_batch,
                       count);
    }
    if (count == 0) {
        return LS_OK;
    }
    bool floats = batch->values != NULL;
    ls_upload_part parts[3] = {
        {replica->samples, floats ? (const void *)batch->values : batch->pixels,
         count * features * (floats ? sizeof *batch->values : sizeof *batch->pixels)},
        {replica->labels, batch->labels, count * sizeof *batch->labels},
    };
    if (batch->targets == NULL) {
        return ls_upload_run(&replica->upload, parts, 2);
    }
    LS_TRY(reserve_targets(replica, batch->target_count));
    parts[2] = (ls_upload_part){replica->targets, batch->targets, count * batch->target_count * sizeof *batch->targets};
    return ls_upload_run(&replica->upload, parts, 3);
}

static ls_rc scale_batch(ls_replica *replica, size_t count, bool floats) {
    const ls_replica_options *options = &replica->options;
    size_t features = ls_shape_features(replica->model->input);
    if (count == 0) {
        return LS_OK;
    }
    ls_input_scale scale = input_scale(replica);
    LS_CUDA(floats ? ls_kernel_input_values(replica->stream, options->dtype, replica->lanes, count, features,
                                            replica->samples, &scale, replica->slots[0])
                   : ls_kernel_input(replica->stream, options->dtype, replica->lanes, count, features, replica->samples,
                                     &scale, replica->slots[0]));
    return LS_OK;
}

ls_rc ls_replica_run_input(ls_replica *replica, const ls_batch *batch) {
    LS_TRY(copy_batch(replica, batch));
    return scale_batch(replica, batch->count, batch->values != NULL);
}

/* What the step's kernels will read where their arguments are fixed. */
static ls_rc set_live(ls_replica *replica) {
    const ls_optimizer_options *options = &replica->options.optimizer;
    ls_step_values values = {.mask_step = replica->step};
    if (replica->live == NULL) {
        return LS_OK;
    }
    ls_optimizer_of(options)->live(options, replica->optimizer_steps, replica->lr, values.scalar);
    LS_CUDA(ls_kernel_step_values(replica->stream, &values, replica->live));
    return LS_OK;
}

ls_rc ls_replica_load(ls_replica *replica, const ls_batch *batch) {
    LS_RANGE("input");
    LS_TRY(copy_batch(replica, batch));
    replica->batch = batch->count;
    replica->floats = batch->values != NULL;
    return set_live(replica);
}

ls_rc ls_replica_scale(ls_replica *replica) {
    LS_RANGE("scale");
    return scale_batch(replica, replica->batch, replica->floats);
}

ls_rc ls_replica_input(ls_replica *replica, const ls_batch *batch) {
    LS_TRY(ls_replica_load(replica, batch));
    return ls_replica_scale(replica);
}

void ls_replica_replayed(ls_replica *replica, bool updated) {
    replica->step += replica->training ? 1 : 0;
    replica->optimizer_steps += updated ? 1 : 0;
    ls_loss_replayed(replica->loss, replica->batch);
    if (replica->options.capture) {
        replica->captured_batch = replica->batch;
    }
}

ls_batch ls_batch_part(const ls_batch *batch, size_t features, size_t first, size_t count) {
    return (ls_batch){
        .count = count,
        .pixels = batch->pixels != NULL ? batch->pixels + first * features : NULL,
        .values = batch->values != NULL ? batch->values + first * features : NULL,
        .labels = batch->labels + first,
        .targets = batch->targets != NULL ? batch->targets + first * batch->target_count : NULL,
        .target_count = batch->target_count,
        .indices = batch->indices != NULL ? batch->indices + first : NULL,
    };
}
