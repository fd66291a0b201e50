/* A case of verification made by hand, for tests to damage: one replica plays every device in turn, plain loops reduce and
 * update. No rank is started. */
#ifndef LS_TESTS_VERIFY_SYNTHETIC_CASE_H
#define LS_TESTS_VERIFY_SYNTHETIC_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "impls/buckets.h"
#include "impls/rank.h"
#include "reference/replica_buffers.h"
#include "reference/sampler.h"
#include "verify/check.h"
#include "verify/values.h"

enum { SYNTHETIC_STEPS = 3, SYNTHETIC_BATCH = 6 };

typedef struct synthetic {
    ls_case c;
    ls_dataset data;
    ls_oracle_cache *oracle;
    ls_replica *replica;
    void *velocity;     /* of the last update, [param_count] */
    ls_samples samples; /* a batch */
    ls_verdict verdict;
} synthetic;

static inline double synthetic_get(const synthetic *s, const void *values, size_t index) {
    return ls_value(s->c.run.dtype, values, index);
}

static inline void synthetic_put(const synthetic *s, void *values, size_t index, double value) {
    if (s->c.run.dtype == LS_FLOAT64) {
        ((double *)values)[index] = value;
    } else {
        ((float *)values)[index] = (float)value;
    }
}

/* The next larger value of the case's dtype. */
static inline void synthetic_bump(const synthetic *s, void *values, size_t index) {
    if (s->c.run.dtype == LS_FLOAT64) {
        ((double *)values)[index] = nextafter(((double *)values)[index], INFINITY);
    } else {
        ((float *)values)[index] = nextafterf(((float *)values)[index], INFINITY);
    }
}

static inline size_t synthetic_bytes(const synthetic *s) {
    return s->c.model.param_count * ls_dtype_size(s->c.run.dtype);
}

static inline const ls_param *synthetic_param(const synthetic *s, const char *name) {
    for (size_t p = 0; p < s->c.model.param_tensors; p++) {
        if (strcmp(s->c.model.params[p].name, name) == 0) {
            return &s->c.model.params[p];
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

/* Masks of the device and step; rank 0's buffers after the step before, as after a broadcast. */
static inline void synthetic_start_buffers(synthetic *s, size_t step, size_t device) {
    const ls_model *model = &s->c.model;
    ls_replica_set_masks(s->replica, s->c.run.seed, device);
    ls_replica_set_step(s->replica, step);
    if (model->buffer_tensors == 0) {
        return;
    }
    if (step > 0) {
        const ls_capture_reduced *before = ls_case_reduced(&s->c, step - 1, 0);
        assert_int_equal(ls_replica_write_buffers(s->replica, before->buffers, before->tracked), LS_OK);
        return;
    }
    float *narrow = calloc(model->buffer_count, sizeof *narrow);
    void *values = calloc(model->buffer_count, sizeof(double));
    int64_t *tracked = calloc(model->tracked_count, sizeof *tracked);
    assert_true(narrow != NULL && values != NULL && tracked != NULL);
    ls_model_init_buffers(model, narrow, tracked);
    for (size_t i = 0; i < model->buffer_count; i++) {
        synthetic_put(s, values, i, (double)narrow[i]);
    }
    assert_int_equal(ls_replica_write_buffers(s->replica, values, tracked), LS_OK);
    free(narrow);
    free(values);
    free(tracked);
}

/* What a device computes in a step from the samples last gathered: forward, loss, backward at the parameters before the
 * step. */
static inline void synthetic_batch(synthetic *s, size_t step, size_t device) {
    ls_case *c = &s->c;
    ls_capture_local *local = ls_case_local(c, step, device);
    size_t count = (size_t)local->count;
    ls_batch batch = {.count = count,
                      .pixels = s->samples.pixels,
                      .values = s->samples.values,
                      .labels = s->samples.labels,
                      .targets = s->samples.targets,
                      .target_count = s->data.target_count,
                      .indices = local->indices};
    double denominator = (double)(c->reduction == LS_REDUCTION_MEAN ? count : ls_case_samples(c, step));
    const void *params = ls_case_reduced(c, step, ls_case_rank_of(c, device))->params_before;
    assert_int_equal(cudaMemcpy(ls_replica_params(s->replica), params, synthetic_bytes(s), cudaMemcpyHostToDevice), 0);
    synthetic_start_buffers(s, step, device);
    assert_int_equal(ls_replica_input(s->replica, &batch), LS_OK);
    assert_int_equal(ls_replica_forward(s->replica, NULL), LS_OK);
    assert_int_equal(ls_replica_loss(s->replica, denominator), LS_OK);
    assert_int_equal(ls_replica_backward(s->replica, NULL), LS_OK);
    assert_int_equal(ls_replica_read_loss_sum(s->replica, &local->loss_sum), LS_OK);
    assert_int_equal(ls_replica_read_captured_grads(s->replica, local->grads), LS_OK);
    assert_int_equal(ls_replica_read_decisions(s->replica, local->decisions), LS_OK);
    assert_int_equal(ls_replica_read_inputs(s->replica, local->inputs, local->labels, local->targets), LS_OK);
    size_t rank = ls_case_rank_of(c, device);
    if (rank == device) { /* DataParallel: of device 0 */
        ls_capture_reduced *reduced = ls_case_reduced(c, step, rank);
        assert_int_equal(ls_replica_read_buffers(s->replica, reduced->buffers, reduced->tracked), LS_OK);
    }
}

/* The samples of a device in a step, out of the data set. */
static inline void synthetic_gather(synthetic *s, size_t step, size_t device) {
    const ls_capture_local *local = ls_case_local(&s->c, step, device);
    for (size_t i = 0; i < (size_t)local->count; i++) {
        ls_samples_copy(&s->data, local->indices[i], &s->samples, i);
    }
}

/* What a device computes in a step. With a pixel number, that pixel of its first sample is off by 1/255. */
static inline void synthetic_local(synthetic *s, size_t step, size_t device, size_t wrong_pixel) {
    synthetic_gather(s, step, device);
    if (wrong_pixel < ls_shape_features(s->c.model.input)) {
        s->samples.pixels[wrong_pixel] ^= 1;
    }
    synthetic_batch(s, step, device);
}

/* The reduced gradient of a step on all ranks, and the rank losses, from what the devices computed. */
static inline void synthetic_reduce(synthetic *s, size_t step) {
    ls_case *c = &s->c;
    for (size_t i = 0; i < c->model.param_count; i++) {
        double sum = 0; /* exact for two ranks, and within the bound for more: rounded once at the end */
        for (size_t device = 0; device < c->devices; device++) {
            sum += synthetic_get(s, ls_case_local(c, step, device)->grads, i);
        }
        double scale = c->reduction == LS_REDUCTION_MEAN ? 1 / (double)c->devices : 1;
        for (size_t rank = 0; rank < c->ranks; rank++) {
            synthetic_put(s, ls_case_reduced(c, step, rank)->grads, i, sum * scale);
        }
    }
    for (size_t rank = 0; rank < c->ranks; rank++) {
        double loss = 0;
        size_t samples = 0;
        for (size_t device = 0; device < c->devices; device++) {
            if (ls_case_rank_of(c, device) == rank) {
                loss += ls_case_local(c, step, device)->loss_sum;
                samples += (size_t)ls_case_local(c, step, device)->count;
            }
        }
        ls_case_reduced(c, step, rank)->loss = ls_loss_value(&c->run.loss, loss, (double)samples, c->model.classes);
    }
}

/* SGD with momentum in the case's own precision on one rank. */
static inline void synthetic_update(synthetic *s, size_t step, size_t rank, double momentum) {
    const ls_run *run = &s->c.run;
    ls_capture_reduced *r = ls_case_reduced(&s->c, step, rank);
    for (size_t i = 0; i < s->c.model.param_count; i++) {
        if (run->dtype == LS_FLOAT64) {
            double *v = (double *)s->velocity + i;
            double w = ((double *)r->params_before)[i];
            double d = ((double *)r->grads)[i] + run->optimizer.weight_decay * w;
            *v = step == 0 ? d : momentum * *v + (1 - run->optimizer.dampening) * d;
            ((double *)r->params_after)[i] = w - run->lr * *v;
        } else {
            float *v = (float *)s->velocity + i;
            float w = ((float *)r->params_before)[i];
            float d = ((float *)r->grads)[i] + (float)run->optimizer.weight_decay * w;
            *v = step == 0 ? d : (float)momentum * *v + (float)(1 - run->optimizer.dampening) * d;
            ((float *)r->params_after)[i] = w - (float)run->lr * *v;
        }
    }
    if (r->state_count > 0) {
        memcpy(r->state, s->velocity, synthetic_bytes(s));
    }
}

/* The plan of the run, and an allreduce for each bucket. */
static inline void synthetic_protocol(const synthetic *s, ls_capture_reduced *reduced) {
    ls_bucket_plan plan;
    ls_bucket_plan_make(&s->c.model, s->c.run.dtype, s->c.run.bucket_bytes, &plan);
    reduced->plan_count = reduced->collective_count = plan.count;
    reduced->plan = calloc(plan.count, sizeof *reduced->plan);
    reduced->collectives = calloc(plan.count, sizeof *reduced->collectives);
    assert_true(reduced->plan != NULL && reduced->collectives != NULL);
    memcpy(reduced->plan, plan.buckets, plan.count * sizeof *reduced->plan);
    for (size_t b = 0; b < plan.count; b++) {
        reduced->collectives[b] = (ls_collective){.kind = LS_COLLECTIVE_ALLREDUCE,
                                                  .element = (uint32_t)ls_dtype_size(s->c.run.dtype),
                                                  .floats = 1,
                                                  .count = plan.buckets[b].count};
    }
}

static inline void synthetic_allocate(synthetic *s, size_t step) {
    ls_case *c = &s->c;
    for (size_t device = 0; device < c->devices; device++) {
        ls_capture_local *local = ls_case_local(c, step, device);
        local->step = step;
        local->count = SYNTHETIC_BATCH;
        local->indices = calloc(SYNTHETIC_BATCH, sizeof *local->indices);
        local->grads = calloc(1, synthetic_bytes(s));
        local->decisions = calloc(SYNTHETIC_BATCH, c->model.decisions_per_sample);
        local->inputs = calloc(SYNTHETIC_BATCH * ls_shape_features(c->model.input), ls_dtype_size(c->run.dtype));
        local->labels = calloc(SYNTHETIC_BATCH, sizeof *local->labels);
        local->target_count = s->data.target_count;
        local->targets = calloc(SYNTHETIC_BATCH * (s->data.target_count + 1), sizeof *local->targets);
        assert_true(local->indices != NULL && local->grads != NULL && local->decisions != NULL &&
                    local->inputs != NULL && local->labels != NULL && local->targets != NULL);
    }
    for (size_t rank = 0; rank < c->ranks; rank++) {
        ls_capture_reduced *reduced = ls_case_reduced(c, step, rank);
        reduced->step = step;
        reduced->params_before = calloc(1, synthetic_bytes(s));
        reduced->grads = calloc(1, synthetic_bytes(s));
        reduced->params_after = calloc(1, synthetic_bytes(s));
        reduced->buffers = calloc(c->model.buffer_count + 1, sizeof(double));
        reduced->tracked = calloc(c->model.tracked_count + 1, sizeof *reduced->tracked);
        reduced->state_count = ls_optimizer_state_count(&c->run.optimizer);
        reduced->state = calloc(reduced->state_count + 1, synthetic_bytes(s));
        assert_non_null(reduced->state);
        if ((ls_impl_find(c->run.impl)->capabilities & LS_CAP_BUCKETS) != 0) {
            synthetic_protocol(s, reduced);
        }
        assert_true(reduced->params_before != NULL && reduced->grads != NULL && reduced->params_after != NULL &&
                    reduced->buffers != NULL && reduced->tracked != NULL);
    }
}

/* DistributedSampler's samples for ranks, consecutive chunks for devices of one rank. */
static inline void synthetic_samples(synthetic *s, size_t step) {
    ls_case *c = &s->c;
    size_t *order = calloc(s->data.count, sizeof *order);
    assert_non_null(order);
    for (size_t device = 0; device < c->devices; device++) {
        size_t rank = ls_case_rank_of(c, device);
        ls_sampler sampler = {s->data.count, c->ranks, rank, true, false, c->run.seed};
        assert_int_equal(ls_sampler_order(&sampler, 0, order), 0);
        size_t first = c->ranks == 1 ? (step * c->devices + device) * SYNTHETIC_BATCH : step * SYNTHETIC_BATCH;
        memcpy(ls_case_local(c, step, device)->indices, order + first, SYNTHETIC_BATCH * sizeof *order);
    }
    free(order);
}

/* Every step anew from `first` on, from the parameters before it. */
static inline void synthetic_run(synthetic *s, size_t first) {
    ls_case *c = &s->c;
    for (size_t step = first; step < c->steps; step++) {
        for (size_t rank = 0; step > 0 && rank < c->ranks; rank++) {
            memcpy(ls_case_reduced(c, step, rank)->params_before, ls_case_reduced(c, step - 1, rank)->params_after,
                   synthetic_bytes(s));
        }
        for (size_t device = 0; device < c->devices; device++) {
            synthetic_local(s, step, device, SIZE_MAX);
        }
        synthetic_reduce(s, step);
        synthetic_update(s, step, 0, c->run.optimizer.momentum);
        for (size_t rank = 1; rank < c->ranks; rank++) {
            memcpy(ls_case_reduced(c, step, rank)->params_after, ls_case_reduced(c, step, 0)->params_after,
                   synthetic_bytes(s));
            memcpy(ls_case_reduced(c, step, rank)->state, ls_case_reduced(c, step, 0)->state,
                   ls_case_reduced(c, step, 0)->state_count * synthetic_bytes(s));
        }
    }
}

/* Everything for a run, before any step. used: the optimizer of ls_replica_update, which may be another than the run says. */
static inline void synthetic_prepare(synthetic *s, const ls_run *run, const ls_optimizer_options *used) {
    *s = (synthetic){0};
    assert_int_equal(ls_dataset_open(run->data, LS_SPLIT_TRAIN, &s->data), LS_OK);
    assert_int_equal(ls_case_open(run, ls_impl_find(run->impl), &s->data, SYNTHETIC_STEPS, &s->c), LS_OK);
    assert_int_equal(ls_oracle_cache_open(&s->oracle), LS_OK);
    ls_replica_options options = {.dtype = run->dtype,
                                  .max_batch = SYNTHETIC_BATCH,
                                  .normalize = s->c.normalize,
                                  .loss = run->loss,
                                  .optimizer = *used,
                                  .lr = run->lr,
                                  .capture = true};
    assert_int_equal(cudaSetDevice(0), 0);
    assert_int_equal(ls_replica_open(&s->c.model, &options, &s->replica), LS_OK);
    s->velocity = calloc(1, synthetic_bytes(s));
    size_t features = ls_shape_features(s->c.model.input);
    s->samples.labels = calloc(SYNTHETIC_BATCH, sizeof *s->samples.labels);
    if (s->data.floats) {
        s->samples.values = calloc(SYNTHETIC_BATCH * features, sizeof *s->samples.values);
    } else {
        s->samples.pixels = calloc(SYNTHETIC_BATCH, features);
    }
    if (s->data.target_count > 0) {
        s->samples.targets = calloc(SYNTHETIC_BATCH * s->data.target_count, sizeof *s->samples.targets);
    }
    float *initial = calloc(s->c.model.param_count, sizeof *initial);
    assert_true(s->velocity != NULL && s->samples.labels != NULL && initial != NULL);
    assert_true(s->samples.values != NULL || s->samples.pixels != NULL);
    for (size_t step = 0; step < s->c.steps; step++) {
        synthetic_allocate(s, step);
        synthetic_samples(s, step);
    }
    ls_model_init(&s->c.model, run->seed, initial);
    for (size_t rank = 0; rank < s->c.ranks; rank++) {
        for (size_t i = 0; i < s->c.model.param_count; i++) {
            synthetic_put(s, ls_case_reduced(&s->c, 0, rank)->params_before, i, (double)initial[i]);
        }
    }
    free(initial);
}

static inline ls_run synthetic_settings(const char *impl, const char *model, size_t devices, ls_dtype dtype) {
    ls_run run = {.devices = devices,
                  .data = "synthetic:600",
                  .dtype = dtype,
                  .batch = SYNTHETIC_BATCH,
                  .steps = SYNTHETIC_STEPS,
                  .lr = 0.01,
                  .optimizer = {.momentum = 0.5, .weight_decay = 1e-4},
                  .bucket_bytes = 16384,
                  .seed = 3};
    snprintf(run.impl, sizeof run.impl, "%s", impl);
    snprintf(run.model, sizeof run.model, "%s", model);
    return run;
}

/* impl: "ddp" (a rank a device, mean), "dp" (one rank, sum) or "single". */
static inline void synthetic_open(synthetic *s, const char *impl, const char *model, size_t devices, ls_dtype dtype) {
    ls_run run = synthetic_settings(impl, model, devices, dtype);
    synthetic_prepare(s, &run, &run.optimizer);
    synthetic_run(s, 0);
}

static inline void synthetic_close(synthetic *s) {
    ls_replica_close(s->replica);
    ls_oracle_cache_close(s->oracle);
    ls_case_close(&s->c);
    ls_dataset_close(&s->data);
    free(s->velocity);
    free(s->samples.pixels);
    free(s->samples.values);
    free(s->samples.labels);
    free(s->samples.targets);
}

static inline void synthetic_verify(synthetic *s, const ls_baseline *baseline) {
    ls_check_input input = {.c = &s->c, .oracle = s->oracle, .baseline = baseline};
    assert_int_equal(ls_case_verify(&input, &s->verdict), LS_OK);
}

static inline const ls_finding *synthetic_finding(const synthetic *s, const char *heading) {
    for (size_t i = 0; ls_checks[i].name != NULL; i++) {
        if (strcmp(ls_checks[i].heading, heading) == 0) {
            return &s->verdict.findings[i];
        }
    }
    fail_msg("no check %s", heading);
    return NULL;
}

/* The check has the status; what it says (detail, or else reason) and its cause contain the given texts. */
static inline void expect_finding(const synthetic *s, const char *heading, ls_status status, const char *says,
                                  const char *cause) {
    const ls_finding *finding = synthetic_finding(s, heading);
    const char *text = status == LS_FAILED ? finding->detail : finding->reason;
    if (finding->status != status || strstr(text, says) == NULL || strstr(finding->cause, cause) == NULL) {
        fail_msg("%s is %s, expected %s with '%s' and '%s': '%s', cause '%s'", heading, ls_status_name(finding->status),
                 ls_status_name(status), says, cause, text, finding->cause);
    }
}

static inline void expect_status(const synthetic *s, ls_status status) {
    const ls_finding *finding = &s->verdict.findings[s->verdict.decisive];
    if (s->verdict.status != status) {
        fail_msg("the case is %s, expected %s: %s %s", ls_status_name(s->verdict.status), ls_status_name(status),
                 finding->detail, finding->reason);
    }
}

#endif
