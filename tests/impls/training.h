/* For tests of implementations: a run, batches of synthetic images, and ranks as threads that train and keep what each step
 * left behind. */
#ifndef LS_TESTS_IMPLS_TRAINING_H
#define LS_TESTS_IMPLS_TRAINING_H

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impls/impl.h"
#include "impls/options.h"
#include "impls/thread_group.h"
#include "reference/dataset.h"
#include "reference/spec.h"

enum { TRAINING_MAX_WORLD = 8, TRAINING_MAX_STEPS = 16 };

/* What a rank trains on and what came of it. Batches follow each other in the data set: step s takes the global samples
 * [s*G, (s+1)*G) for G = sum of the ranks' counts, rank after rank. */
typedef struct training {
    ls_run run;
    ls_rank rank;
    const ls_model *model;
    const ls_dataset *data;
    size_t steps;
    size_t first, count, global; /* this rank's samples within a step's G = global samples */
    ls_rc rc;
    double *grads[TRAINING_MAX_STEPS]; /* [param_count] each, widened to double; freed by training_free */
    double
        *local[TRAINING_MAX_STEPS]; /* as captured before any communication, of the first replica; with run.capture */
    double *params;                 /* after the last step */
    double losses[TRAINING_MAX_STEPS];
    double sum; /* of rank + 1 over all ranks */
    ls_counters counters;
} training;

/* seed-cnn's layers in a tenth of its work, for runs whose size shows nothing more. */
#define TRAINING_SMALL \
    "conv 4 k5; maxpool 2; relu; conv 8 k5; maxpool 2; relu; flatten; linear 20; relu; linear 10; log-softmax"

/* A network of the zoo, or a spec's for MNIST's shape. */
static inline void training_resolve(const char *name, ls_model *model) {
    char error[256] = "";
    ls_model_spec own = {0};
    const ls_model_spec *spec = ls_zoo_find(name);
    if (spec == NULL && ls_spec_parse(name, &own, error, sizeof error) == 0) {
        own.channels = 1;
        own.height = own.width = 28;
        own.classes = 10;
        spec = &own;
    }
    if (spec == NULL || ls_model_resolve(spec, model, error, sizeof error) != 0) {
        abort();
    }
}

static inline void training_run(ls_run *run, const char *impl, size_t devices, ls_dtype dtype) {
    ls_run_defaults(run);
    (void)snprintf(run->impl, sizeof run->impl, "%s", impl);
    (void)snprintf(run->model, sizeof run->model, "seed-cnn");
    run->devices = devices;
    run->dtype = dtype;
    run->ranks = LS_RANKS_THREADS;
    run->lr = 0.05; /* larger than the default, so that a step that goes wrong shows in the next ones */
    run->seed = 42;
}

/* A buffer of dtype as doubles; frees the buffer. */
static inline double *training_widen(void *flat, size_t count, ls_dtype dtype) {
    if (dtype == LS_FLOAT64) {
        return flat;
    }
    double *wide = malloc(count * sizeof *wide);
    for (size_t i = 0; wide != NULL && i < count; i++) {
        wide[i] = ((float *)flat)[i];
    }
    free(flat);
    return wide;
}

static inline ls_rc training_read(training *t, const ls_impl *impl, void *self, size_t step) {
    size_t count = t->model->param_count;
    void *flat = malloc(count * sizeof(double));
    if (flat == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_rc rc = impl->gradients(self, flat);
    t->grads[step] = training_widen(flat, count, t->run.dtype);
    if (rc == LS_OK && t->run.capture) {
        flat = malloc(count * sizeof(double));
        rc = flat == NULL ? LS_DEVICE_FAILED : ls_replica_read_captured_grads(impl->replica(self, 0, NULL), flat);
        t->local[step] = training_widen(flat, count, t->run.dtype);
    }
    return rc == LS_OK ? impl->loss(self, &t->losses[step]) : rc;
}

static inline ls_rc training_steps(training *t, const ls_impl *impl, void *self) {
    size_t features = ls_shape_features(t->model->input);
    size_t indices[1024];
    for (size_t s = 0; s < t->steps; s++) {
        size_t first = s * t->global + t->first;
        for (size_t i = 0; i < t->count; i++) {
            indices[i] = first + i;
        }
        ls_batch batch = {.count = t->count,
                          .pixels = t->data->pixels + first * features,
                          .labels = t->data->labels + first,
                          .indices = indices};
        LS_TRY(impl->step(self, &batch, t->global));
        LS_TRY(impl->synchronize(self));
        LS_TRY(training_read(t, impl, self, s));
    }
    t->sum = (double)t->rank.rank + 1.0;
    LS_TRY(impl->sum(self, &t->sum, 1));
    void *flat = malloc(t->model->param_count * sizeof(double));
    ls_rc rc = flat == NULL ? LS_DEVICE_FAILED : impl->parameters(self, flat);
    t->params = training_widen(flat, t->model->param_count, t->run.dtype);
    impl->counters(self, &t->counters);
    return rc;
}

/* The body of one rank, as a thread or called. max_batch: the largest count of any rank. */
static inline void *training_rank(void *argument) {
    training *t = argument;
    const ls_impl *impl = ls_impl_find(t->run.impl);
    void *self = NULL;
    ls_error_set_rank((int)t->rank.rank, t->rank.device);
    t->rc = impl->open(&t->run, &t->rank, t->model, t->count > 0 ? t->count : 1, &self);
    if (t->rc == LS_OK) {
        t->rc = training_steps(t, impl, self);
        impl->close(self);
    } else if (t->rank.shared != NULL) {
        ls_thread_group_cancel(t->rank.shared);
    }
    return NULL;
}

/* One rank that takes all `global` samples. */
static inline ls_rc training_alone(training *t, const ls_run *run, const ls_model *model, const ls_dataset *data,
                                   size_t global, size_t steps) {
    *t = (training){.run = *run, .model = model, .data = data, .steps = steps, .count = global, .global = global};
    t->rank = (ls_rank){.world = 1, .timeout = 60.0};
    (void)training_rank(t);
    return t->rc;
}

/* run->devices ranks as threads, rank r with counts[r] samples. Returns the first failure. */
static inline ls_rc training_threads(training *ranks, const ls_run *run, const ls_model *model, const ls_dataset *data,
                                     const size_t *counts, size_t steps) {
    pthread_t threads[TRAINING_MAX_WORLD];
    ls_thread_group *group = NULL;
    size_t global = 0;
    LS_TRY(ls_thread_group_open(run->devices, &group));
    for (size_t r = 0; r < run->devices; r++) {
        ranks[r] = (training){.run = *run, .model = model, .data = data, .steps = steps};
        ranks[r].first = global;
        ranks[r].count = counts[r];
        ranks[r].rank = (ls_rank){
            .rank = r, .world = run->devices, .local_rank = r, .device = (int)r, .timeout = 60.0, .shared = group};
        global += counts[r];
    }
    size_t started = 0;
    for (size_t r = 0; r < run->devices; r++) {
        ranks[r].global = global;
        started += pthread_create(&threads[r], NULL, training_rank, &ranks[r]) == 0;
    }
    ls_rc rc = started == run->devices ? LS_OK : LS_DEVICE_FAILED;
    for (size_t r = 0; r < started; r++) {
        (void)pthread_join(threads[r], NULL);
        rc = rc == LS_OK ? ranks[r].rc : rc;
    }
    ls_thread_group_close(group);
    return rc;
}

static inline void training_free(training *ranks, size_t count) {
    for (size_t r = 0; r < count; r++) {
        for (size_t s = 0; s < TRAINING_MAX_STEPS; s++) {
            free(ranks[r].grads[s]);
            free(ranks[r].local[s]);
        }
        free(ranks[r].params);
        ranks[r].params = NULL;
    }
}

/* |a - b| / |b| in the Euclidean norm, of the worst parameter tensor. */
static inline double training_distance(const ls_model *model, const double *a, const double *b) {
    double worst = 0;
    for (size_t p = 0; p < model->param_tensors; p++) {
        const ls_param *param = &model->params[p];
        double difference = 0, norm = 0;
        for (size_t i = param->offset; i < param->offset + param->count; i++) {
            difference += (a[i] - b[i]) * (a[i] - b[i]);
            norm += b[i] * b[i];
        }
        double relative = sqrt(difference) / sqrt(norm);
        worst = relative > worst || isnan(relative) ? relative : worst;
    }
    return worst;
}

#endif
