#include "verify/case.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "impls/rank.h"

ls_rc ls_case_open(const ls_run *run, const ls_impl *impl, const ls_dataset *data, size_t steps, ls_case *out) {
    *out = (ls_case){.run = *run, .reduction = impl->reduction, .devices = run->devices, .steps = steps, .data = data};
    LS_TRY(ls_run_model(run, &out->model, &out->normalize));
    out->ranks = impl->ranks(run->devices);
    size_t local = 0;
    size_t global = 0;
    LS_TRY(ls_run_batches(run, &local, &global));
    out->local_batch = global / out->ranks;
    out->locals = ls_calloc(steps * out->devices, sizeof *out->locals, "captures of a run");
    out->reduced = ls_calloc(steps * out->ranks, sizeof *out->reduced, "captures of a run");
    if (out->locals == NULL || out->reduced == NULL) {
        ls_case_close(out);
        return LS_DEVICE_FAILED;
    }
    return LS_OK;
}

void ls_case_close(ls_case *c) {
    for (size_t i = 0; c->locals != NULL && i < c->steps * c->devices; i++) {
        ls_capture_free_local(&c->locals[i]);
    }
    for (size_t i = 0; c->reduced != NULL && i < c->steps * c->ranks; i++) {
        ls_capture_free_reduced(&c->reduced[i]);
    }
    free(c->locals);
    free(c->reduced);
    c->locals = NULL;
    c->reduced = NULL;
}

size_t ls_case_samples(const ls_case *c, size_t step) {
    size_t samples = 0;
    for (size_t device = 0; device < c->devices; device++) {
        samples += (size_t)ls_case_local(c, step, device)->count;
    }
    return samples;
}

/* A device that took no part in a step: no samples and a gradient of zeros. */
static ls_rc make_idle(const ls_case *c, size_t step, ls_capture_local *out) {
    *out = (ls_capture_local){.step = step};
    out->indices = ls_calloc(0, sizeof *out->indices, "indices");
    out->decisions = ls_calloc(0, 1, "decisions");
    out->inputs = ls_calloc(0, 1, "inputs");
    out->labels = ls_calloc(0, sizeof *out->labels, "labels");
    out->targets = ls_calloc(0, sizeof *out->targets, "targets");
    out->grads = ls_calloc(c->model.param_count, ls_dtype_size(c->run.dtype), "a gradient");
    return out->indices != NULL && out->decisions != NULL && out->grads != NULL && out->inputs != NULL &&
                   out->labels != NULL && out->targets != NULL
               ? LS_OK
               : LS_DEVICE_FAILED;
}

static ls_rc incomplete(char *why, size_t size, const char *path, size_t step) {
    snprintf(why, size, "%s: no record of step %zu", path, step);
    return LS_CHECK_FAILED;
}

/* DataParallel's chunks may leave devices idle (torch.chunk); everyone else records every device. */
static ls_rc read_device(ls_case *c, const char *run_dir, size_t device, char *why, size_t size) {
    char path[LS_PATH_SIZE];
    ls_capture_path_local(run_dir, device, path, sizeof path);
    FILE *file = fopen(path, "rb");
    bool may_idle = c->reduction == LS_REDUCTION_SUM && device > 0;
    if (file == NULL && !may_idle) {
        snprintf(why, size, "%s: %s", path, strerror(errno));
        return LS_CHECK_FAILED;
    }
    ls_rc rc = LS_OK;
    bool end = file == NULL;
    for (size_t step = 0; step < c->steps && rc == LS_OK; step++) {
        ls_capture_local *record = ls_case_local(c, step, device);
        if (!end) {
            rc = ls_capture_read_local(file, &c->model, c->run.dtype, record, &end);
        }
        if (rc == LS_OK && end) {
            rc = may_idle ? make_idle(c, step, record) : incomplete(why, size, path, step);
        }
        if (rc == LS_OK && record->count > 0 && record->target_count != c->data->target_count) {
            snprintf(why, size, "%s: record %zu has %zu targets a sample, the data set %zu", path, step,
                     (size_t)record->target_count, c->data->target_count);
            rc = LS_CHECK_FAILED;
        }
        if (rc == LS_OK && record->step != step) {
            snprintf(why, size, "%s: record %zu is of step %zu", path, step, (size_t)record->step);
            rc = LS_CHECK_FAILED;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return rc;
}

static ls_rc read_rank(ls_case *c, const char *run_dir, size_t rank, char *why, size_t size) {
    char path[LS_PATH_SIZE];
    ls_capture_path_reduced(run_dir, rank, path, sizeof path);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        snprintf(why, size, "%s: %s", path, strerror(errno));
        return LS_CHECK_FAILED;
    }
    ls_rc rc = LS_OK;
    for (size_t step = 0; step < c->steps && rc == LS_OK; step++) {
        ls_capture_reduced *record = ls_case_reduced(c, step, rank);
        bool end = false;
        rc = ls_capture_read_reduced(file, &c->model, c->run.dtype, record, &end);
        bool whole = !end && record->state_count == ls_optimizer_state_count(&c->run.optimizer);
        if (rc == LS_OK && (!whole || record->step != step)) {
            rc = incomplete(why, size, path, step);
        }
    }
    fclose(file);
    return rc;
}

/* Samples must exist before anything looks them up. */
static ls_rc check_indices(const ls_case *c, char *why, size_t size) {
    for (size_t i = 0; i < c->steps * c->devices; i++) {
        const ls_capture_local *record = &c->locals[i];
        for (size_t k = 0; k < record->count; k++) {
            if (record->indices[k] >= c->data->count) {
                snprintf(why, size, "step %zu, device %zu: sample %zu of a data set of %zu", i / c->devices,
                         i % c->devices, record->indices[k], c->data->count);
                return LS_CHECK_FAILED;
            }
        }
    }
    return LS_OK;
}

ls_rc ls_case_read(ls_case *c, const char *run_dir, char *why, size_t size) {
    for (size_t device = 0; device < c->devices; device++) {
        LS_TRY(read_device(c, run_dir, device, why, size));
    }
    for (size_t rank = 0; rank < c->ranks; rank++) {
        LS_TRY(read_rank(c, run_dir, rank, why, size));
    }
    return check_indices(c, why, size);
}
