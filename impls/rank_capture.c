/* Recording each step of a rank for verification. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "impls/capture.h"
#include "impls/chunk.h"
#include "impls/rank_internal.h"
#include "reference/replica_buffers.h"

struct ls_rank_capture {
    ls_rank_task *task;
    size_t replicas;
    FILE **local; /* [replicas] */
    FILE *reduced;
    ls_capture_reduced side; /* memory for the reduced side */
    void *grads;             /* for the local side: [param_count] */
    uint8_t *decisions;      /* [batch][decisions_per_sample] */
    void *inputs;            /* [batch][features] */
    int32_t *labels;         /* [batch] */
    float *targets;          /* [batch][target_count] */
};

static ls_rc open_file(const char *path, FILE **out) {
    *out = fopen(path, "wb");
    return *out != NULL ? LS_OK : ls_fail(LS_DEVICE_FAILED, "cannot create %s: %s", path, strerror(errno));
}

static ls_rc open_files(ls_rank_capture *capture) {
    const ls_rank_task *task = capture->task;
    char path[LS_PATH_SIZE + 48];
    for (size_t i = 0; i < capture->replicas; i++) {
        /* dp's devices are its replicas, in order; a rank's device is named by the rank, which is unique over hosts and
         * processes */
        size_t device = capture->replicas > 1 ? i : task->rank.rank;
        ls_capture_path_local(task->data->folder, device, path, sizeof path);
        LS_TRY(open_file(path, &capture->local[i]));
    }
    ls_capture_path_reduced(task->data->folder, task->rank.rank, path, sizeof path);
    return open_file(path, &capture->reduced);
}

ls_rc ls_rank_capture_open(ls_rank_task *task, ls_rank_capture **out) {
    *out = NULL;
    if (!task->data->run->capture || task->data->folder == NULL) {
        return LS_OK;
    }
    const ls_model *model = &task->data->model;
    size_t element = ls_dtype_size(task->data->run->dtype);
    ls_rank_capture *capture = ls_calloc(1, sizeof *capture, "captures");
    if (capture == NULL) {
        return LS_DEVICE_FAILED;
    }
    *out = capture;
    capture->task = task;
    (void)task->data->impl->replica(task->self, 0, &capture->replicas);
    capture->local = ls_calloc(capture->replicas, sizeof *capture->local, "captures");
    capture->grads = ls_calloc(model->param_count, element, "captures");
    capture->decisions = ls_calloc(task->data->batch, model->decisions_per_sample, "captures");
    capture->inputs = ls_calloc(task->data->batch * ls_shape_features(model->input), element, "captures");
    capture->labels = ls_calloc(task->data->batch, sizeof *capture->labels, "captures");
    capture->targets = ls_calloc(task->data->batch * task->data->train.target_count, sizeof(float), "captures");
    capture->side.state_count = ls_optimizer_state_count(&task->data->run->optimizer);
    capture->side.state = ls_calloc(capture->side.state_count * model->param_count, element, "captures");
    capture->side.params_before = ls_calloc(model->param_count, element, "captures");
    capture->side.grads = ls_calloc(model->param_count, element, "captures");
    capture->side.params_after = ls_calloc(model->param_count, element, "captures");
    capture->side.buffers = ls_calloc(model->buffer_count, element, "captures");
    capture->side.tracked = ls_calloc(model->tracked_count, sizeof *capture->side.tracked, "captures");
    bool whole = capture->local != NULL && capture->grads != NULL && capture->decisions != NULL &&
                 capture->inputs != NULL && capture->labels != NULL && capture->targets != NULL &&
                 capture->side.state != NULL && capture->side.params_before != NULL && capture->side.grads != NULL &&
                 capture->side.params_after != NULL && capture->side.buffers != NULL && capture->side.tracked != NULL;
    return whole ? open_files(capture) : LS_DEVICE_FAILED;
}

void ls_rank_capture_close(ls_rank_capture *capture) {
    if (capture == NULL) {
        return;
    }
    for (size_t i = 0; capture->local != NULL && i < capture->replicas; i++) {
        if (capture->local[i] != NULL) {
            (void)fclose(capture->local[i]); /* flushed after each step */
        }
    }
    if (capture->reduced != NULL) {
        (void)fclose(capture->reduced);
    }
    capture->side.plan = NULL; /* the implementation's own */
    capture->side.collectives = NULL;
    ls_capture_free_reduced(&capture->side);
    free(capture->local);
    free(capture->grads);
    free(capture->decisions);
    free(capture->inputs);
    free(capture->labels);
    free(capture->targets);
    free(capture);
}

ls_rc ls_rank_capture_before(ls_rank_capture *capture) {
    if (capture == NULL) {
        return LS_OK;
    }
    const ls_rank_task *task = capture->task;
    return task->data->impl->parameters(task->self, capture->side.params_before);
}

static ls_rc flush(FILE *file) {
    return fflush(file) == 0 ? LS_OK : ls_fail(LS_DEVICE_FAILED, "cannot write a capture: %s", strerror(errno));
}

/* The part of the batch that a replica took: all of it, or with several replicas torch.chunk's. */
static ls_rc write_local(ls_rank_capture *capture, size_t index, const ls_batch *batch) {
    const ls_rank_task *task = capture->task;
    const ls_rank_data *data = task->data;
    size_t first, count = ls_chunk(batch->count, capture->replicas, index, &first), replicas;
    ls_replica *replica = data->impl->replica(task->self, index, &replicas);
    ls_capture_local record = {
        .step = task->steps,
        .count = count,
        .indices = (size_t *)batch->indices + first,
        .grads = capture->grads,
        .decisions = capture->decisions,
        .loss_sum = NAN,
        .inputs = capture->inputs,
        .labels = capture->labels,
        .targets = capture->targets,
        .target_count = batch->targets != NULL ? batch->target_count : 0,
    };
    LS_CUDA(cudaSetDevice(ls_replica_device(replica)));
    LS_TRY(ls_replica_read_captured_grads(replica, capture->grads));
    if (count > 0) {
        LS_TRY(ls_replica_read_decisions(replica, capture->decisions));
        LS_TRY(ls_replica_read_inputs(replica, capture->inputs, capture->labels, capture->targets));
    }
    if (data->impl->reduction == LS_REDUCTION_MEAN) {
        LS_TRY(ls_replica_read_loss_sum(replica, &record.loss_sum));
    }
    LS_TRY(ls_capture_write_local(capture->local[index], &data->model, data->run->dtype, &record));
    return flush(capture->local[index]);
}

/* The optimizer's buffers, of the replica that updates: the first. */
static ls_rc read_state(ls_rank_capture *capture, ls_replica *replica) {
    size_t bytes = capture->task->data->model.param_count * ls_dtype_size(capture->task->data->run->dtype);
    for (size_t k = 0; k < capture->side.state_count; k++) {
        LS_TRY(ls_replica_read_optimizer_state(replica, k, (char *)capture->side.state + k * bytes));
    }
    return LS_OK;
}

/* Bucket plan and collectives: views of the implementation's own. */
static void take_protocol(ls_capture_reduced *side, ls_protocol *protocol) {
    if (protocol == NULL) {
        return;
    }
    side->plan_count = protocol->plan->count;
    side->plan = (ls_bucket *)protocol->plan->buckets;
    side->collective_count = protocol->count;
    side->collectives = protocol->collectives;
}

ls_rc ls_rank_capture_after(ls_rank_capture *capture, const ls_batch *batch) {
    if (capture == NULL) {
        return LS_OK;
    }
    const ls_rank_task *task = capture->task;
    const ls_rank_data *data = task->data;
    LS_TRY(data->impl->synchronize(task->self));
    for (size_t i = 0; i < capture->replicas; i++) {
        LS_TRY(write_local(capture, i, batch));
    }
    LS_CUDA(cudaSetDevice(task->rank.device));
    capture->side.step = task->steps;
    LS_TRY(data->impl->gradients(task->self, capture->side.grads));
    LS_TRY(data->impl->parameters(task->self, capture->side.params_after));
    LS_TRY(data->impl->loss(task->self, &capture->side.loss));
    size_t replicas;
    ls_replica *first = data->impl->replica(task->self, 0, &replicas);
    LS_TRY(ls_replica_read_buffers(first, capture->side.buffers, capture->side.tracked));
    LS_TRY(read_state(capture, first));
    ls_protocol *protocol = data->impl->protocol != NULL ? data->impl->protocol(task->self) : NULL;
    take_protocol(&capture->side, protocol);
    LS_TRY(ls_capture_write_reduced(capture->reduced, &data->model, data->run->dtype, &capture->side));
    if (protocol != NULL) {
        ls_protocol_forget(protocol);
    }
    return flush(capture->reduced);
}
