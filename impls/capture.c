#include "impls/capture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reference/optimizer.h"

/* A record: a header of words, then the arrays. The header repeats what the sizes follow from, so that a file of another
 * run is noticed. */
typedef struct record_header {
    uint64_t magic;
    uint64_t step, count; /* count: samples; 0 in a reduced record */
    uint64_t param_count, element, decisions_per_sample, features;
    uint64_t extra[3]; /* local: targets of a sample; reduced: states, buckets, collectives */
    double loss;
} record_header;

static const uint64_t local_magic = UINT64_C(0x6c732d6361706c32);   /* "ls-capl2" */
static const uint64_t reduced_magic = UINT64_C(0x6c732d6361707232); /* "ls-capr2" */

void ls_capture_path_local(const char *run_dir, size_t device, char *path, size_t size) {
    snprintf(path, size, "%s/capture-%zu.bin", run_dir, device);
}

void ls_capture_path_reduced(const char *run_dir, size_t rank, char *path, size_t size) {
    snprintf(path, size, "%s/reduced-%zu.bin", run_dir, rank);
}

static ls_rc write_bytes(FILE *file, const void *bytes, size_t count) {
    if (count > 0 && fwrite(bytes, 1, count, file) != count) {
        return ls_fail(LS_DEVICE_FAILED, "cannot write a capture: %s", strerror(errno));
    }
    return LS_OK;
}

static record_header make_header(uint64_t magic, const ls_model *model, ls_dtype dtype) {
    return (record_header){
        .magic = magic,
        .param_count = model->param_count,
        .element = ls_dtype_size(dtype),
        .decisions_per_sample = model->decisions_per_sample,
        .features = ls_shape_features(model->input),
    };
}

ls_rc ls_capture_write_local(FILE *file, const ls_model *model, ls_dtype dtype, const ls_capture_local *record) {
    record_header header = make_header(local_magic, model, dtype);
    header.step = record->step;
    header.count = record->count;
    header.loss = record->loss_sum;
    header.extra[0] = record->target_count;
    LS_TRY(write_bytes(file, &header, sizeof header));
    LS_TRY(write_bytes(file, record->indices, record->count * sizeof *record->indices));
    LS_TRY(write_bytes(file, record->grads, model->param_count * ls_dtype_size(dtype)));
    LS_TRY(write_bytes(file, record->decisions, record->count * model->decisions_per_sample));
    LS_TRY(write_bytes(file, record->inputs, record->count * header.features * header.element));
    LS_TRY(write_bytes(file, record->labels, record->count * sizeof *record->labels));
    return write_bytes(file, record->targets, record->count * record->target_count * sizeof *record->targets);
}

ls_rc ls_capture_write_reduced(FILE *file, const ls_model *model, ls_dtype dtype, const ls_capture_reduced *record) {
    size_t bytes = model->param_count * ls_dtype_size(dtype);
    record_header header = make_header(reduced_magic, model, dtype);
    header.step = record->step;
    header.loss = record->loss;
    header.extra[0] = record->state_count;
    header.extra[1] = record->plan_count;
    header.extra[2] = record->collective_count;
    LS_TRY(write_bytes(file, &header, sizeof header));
    LS_TRY(write_bytes(file, record->params_before, bytes));
    LS_TRY(write_bytes(file, record->grads, bytes));
    LS_TRY(write_bytes(file, record->params_after, bytes));
    LS_TRY(write_bytes(file, record->buffers, model->buffer_count * ls_dtype_size(dtype)));
    LS_TRY(write_bytes(file, record->tracked, model->tracked_count * sizeof *record->tracked));
    LS_TRY(write_bytes(file, record->state, record->state_count * bytes));
    LS_TRY(write_bytes(file, record->plan, record->plan_count * sizeof *record->plan));
    return write_bytes(file, record->collectives, record->collective_count * sizeof *record->collectives);
}

static ls_rc fail_read(FILE *file, const char *what) {
    return ls_fail(LS_DEVICE_FAILED, "capture at offset %ld: %s", ftell(file), what);
}

/* Reads a header and checks that it is of this model and type; *end when there is no more. */
static ls_rc read_header(FILE *file, const record_header *expected, record_header *header, bool *end) {
    size_t got = fread(header, 1, sizeof *header, file);
    *end = got == 0 && feof(file) != 0;
    if (*end) {
        return LS_OK;
    }
    if (got != sizeof *header) {
        return fail_read(file, "the file ends inside a record");
    }
    if (header->magic != expected->magic || header->param_count != expected->param_count ||
        header->element != expected->element || header->decisions_per_sample != expected->decisions_per_sample ||
        header->features != expected->features) {
        return fail_read(file, "a record of another model, type or kind");
    }
    return LS_OK;
}

/* Reads an array into new memory. */
static ls_rc read_array(FILE *file, size_t count, size_t size, void *array) {
    void *memory = ls_calloc(count, size, "a capture");
    memcpy(array, &memory, sizeof memory);
    if (memory == NULL) {
        return LS_DEVICE_FAILED;
    }
    return fread(memory, size, count, file) == count ? LS_OK : fail_read(file, "the file ends inside a record");
}

/* Most samples, targets of one, collectives of a record: more is a broken file, not a reason to allocate. */
static const uint64_t most_samples = UINT64_C(1) << 24;
static const uint64_t most_targets = UINT64_C(1) << 24;
static const uint64_t most_collectives = UINT64_C(1) << 20;

ls_rc ls_capture_read_local(FILE *file, const ls_model *model, ls_dtype dtype, ls_capture_local *record, bool *end) {
    record_header expected = make_header(local_magic, model, dtype), header;
    *record = (ls_capture_local){0};
    LS_TRY(read_header(file, &expected, &header, end));
    if (*end) {
        return LS_OK;
    }
    if (header.count > most_samples || header.extra[0] > most_targets) {
        return fail_read(file, "an absurd number of samples");
    }
    record->target_count = header.extra[0];
    record->step = header.step;
    record->count = header.count;
    record->loss_sum = header.loss;
    ls_rc rc = read_array(file, header.count, sizeof *record->indices, &record->indices);
    if (rc == LS_OK) {
        rc = read_array(file, model->param_count, ls_dtype_size(dtype), &record->grads);
    }
    if (rc == LS_OK) {
        rc = read_array(file, header.count * model->decisions_per_sample, 1, &record->decisions);
    }
    if (rc == LS_OK) {
        rc = read_array(file, header.count * header.features, header.element, &record->inputs);
    }
    if (rc == LS_OK) {
        rc = read_array(file, header.count, sizeof *record->labels, &record->labels);
    }
    if (rc == LS_OK) {
        rc = read_array(file, header.count * record->target_count, sizeof *record->targets, &record->targets);
    }
    if (rc != LS_OK) {
        ls_capture_free_local(record);
    }
    return rc;
}

ls_rc ls_capture_read_reduced(FILE *file, const ls_model *model, ls_dtype dtype, ls_capture_reduced *record,
                              bool *end) {
    record_header expected = make_header(reduced_magic, model, dtype), header;
    *record = (ls_capture_reduced){0};
    LS_TRY(read_header(file, &expected, &header, end));
    if (*end) {
        return LS_OK;
    }
    if (header.extra[0] > LS_OPTIMIZER_MAX_STATES || header.extra[1] > LS_MODEL_MAX_PARAMS ||
        header.extra[2] > most_collectives) {
        return fail_read(file, "an absurd number of states, buckets or collectives");
    }
    record->step = header.step;
    record->loss = header.loss;
    record->state_count = header.extra[0];
    record->plan_count = header.extra[1];
    record->collective_count = header.extra[2];
    void **arrays[] = {&record->params_before, &record->grads, &record->params_after};
    ls_rc rc = LS_OK;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0] && rc == LS_OK; i++) {
        rc = read_array(file, model->param_count, ls_dtype_size(dtype), arrays[i]);
    }
    if (rc == LS_OK) {
        rc = read_array(file, model->buffer_count, ls_dtype_size(dtype), &record->buffers);
    }
    if (rc == LS_OK) {
        rc = read_array(file, model->tracked_count, sizeof *record->tracked, &record->tracked);
    }
    if (rc == LS_OK) {
        rc = read_array(file, record->state_count * model->param_count, header.element, &record->state);
    }
    if (rc == LS_OK) {
        rc = read_array(file, record->plan_count, sizeof *record->plan, &record->plan);
    }
    if (rc == LS_OK) {
        rc = read_array(file, record->collective_count, sizeof *record->collectives, &record->collectives);
    }
    if (rc != LS_OK) {
        ls_capture_free_reduced(record);
    }
    return rc;
}

void ls_capture_free_local(ls_capture_local *record) {
    free(record->indices);
    free(record->grads);
    free(record->decisions);
    free(record->inputs);
    free(record->labels);
    free(record->targets);
    *record = (ls_capture_local){0};
}

void ls_capture_free_reduced(ls_capture_reduced *record) {
    free(record->params_before);
    free(record->grads);
    free(record->params_after);
    free(record->buffers);
    free(record->tracked);
    free(record->state);
    free(record->plan);
    free(record->collectives);
    *record = (ls_capture_reduced){0};
}
