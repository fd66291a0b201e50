#include "verify/oracle_cache.h"

#include <stdlib.h>
#include <string.h>

#include "reference/hash.h"
#include "verify/oracle_cache_parts.h"
#include "verify/values.h"

ls_rc ls_oracle_cache_open(ls_oracle_cache **out) {
    *out = ls_calloc(1, sizeof **out, "the oracle's results");
    return *out != NULL ? LS_OK : LS_DEVICE_FAILED;
}

static void forget(ls_oracle_cache *cache) {
    for (size_t i = 0; i < cache->count; i++) {
        free(cache->entries[i]->local.grads);
        free(cache->entries[i]->local.statistics);
        free(cache->entries[i]->local.statistics_error);
        free(cache->entries[i]);
    }
    free(cache->entries);
    ls_oracle_cache_forget_roundings(cache);
    cache->entries = NULL;
    cache->count = 0;
    cache->capacity = 0;
    ls_oracle_close(cache->oracle);
    cache->oracle = NULL;
    cache->has_model = false;
}

void ls_oracle_cache_close(ls_oracle_cache *cache) {
    if (cache != NULL) {
        forget(cache);
        free(cache);
    }
}

void ls_oracle_cache_counts(const ls_oracle_cache *cache, size_t *computed, size_t *reused) {
    *computed = cache->computed;
    *reused = cache->reused;
}

/* Equal layers in equal order over equal inputs: whatever else a model holds follows from them. */
static bool same_model(const ls_model *a, const ls_model *b) {
    bool same = a->layer_count == b->layer_count && a->param_count == b->param_count &&
                ls_shape_features(a->input) == ls_shape_features(b->input);
    for (size_t i = 0; same && i < a->layer_count; i++) {
        const ls_layer *x = &a->layers[i], *y = &b->layers[i];
        same = x->kind == y->kind && x->kernel == y->kernel && x->stride == y->stride && x->padding == y->padding &&
               x->in.channels == y->in.channels && x->in.height == y->in.height && x->in.width == y->in.width &&
               x->out.channels == y->out.channels && strcmp(x->name, y->name) == 0;
    }
    return same;
}

ls_rc ls_oracle_cache_use_model(ls_oracle_cache *cache, const ls_model *model) {
    if (cache->has_model && same_model(&cache->model, model)) {
        return LS_OK;
    }
    forget(cache);
    memcpy(&cache->model, model, sizeof *model);
    if (ls_oracle_open(&cache->model, &cache->oracle) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the oracle of %s", model->name);
    }
    cache->has_model = true;
    return LS_OK;
}

void ls_oracle_problem_close(ls_oracle_problem *p) {
    free(p->params);
    free(p->x);
    free(p->labels);
    free(p->targets);
}

ls_rc ls_oracle_problem_open(const ls_case *c, size_t step, size_t device, ls_oracle_problem *p) {
    const ls_capture_local *local = ls_case_local(c, step, device);
    const void *params = ls_case_reduced(c, step, ls_case_rank_of(c, device))->params_before;
    size_t features = ls_shape_features(c->model.input);
    size_t count = (size_t)local->count;
    *p = (ls_oracle_problem){.params = ls_calloc(c->model.param_count, sizeof(double), "parameters"),
                             .x = ls_calloc(count * features, sizeof(double), "inputs"),
                             .labels = ls_calloc(count, sizeof(int32_t), "labels")};
    size_t target_count = c->data->targets != NULL ? c->data->target_count : 0;
    if (target_count > 0) {
        p->targets = ls_calloc(count * target_count, sizeof(double), "targets");
    }
    if (p->params == NULL || p->x == NULL || p->labels == NULL || (target_count > 0 && p->targets == NULL)) {
        ls_oracle_problem_close(p);
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < c->model.param_count; i++) {
        p->params[i] = ls_value(c->run.dtype, params, i);
    }
    for (size_t i = 0; i < count; i++) {
        size_t sample = local->indices[i];
        if (c->data->values != NULL) {
            ls_oracle_values(c->data->values + sample * features, c->model.input, &c->normalize, p->x + i * features);
        } else {
            ls_oracle_pixels(c->data->pixels + sample * features, c->model.input, &c->normalize, p->x + i * features);
        }
        p->labels[i] = c->data->labels[sample];
        for (size_t t = 0; t < target_count; t++) {
            p->targets[i * target_count + t] = c->data->targets[sample * target_count + t];
        }
    }
    p->input = (ls_oracle_input){.params = p->params,
                                 .count = count,
                                 .x = p->x,
                                 .labels = p->labels,
                                 .targets = p->targets,
                                 .loss = ls_case_loss(c),
                                 .denominator = 1,
                                 .decisions = local->decisions,
                                 .unit_roundoff = ls_roundoff(c->run.dtype)};
    return LS_OK;
}

void ls_oracle_cache_key(const ls_case *c, size_t step, size_t device, uint64_t key[2]) {
    const ls_capture_local *local = ls_case_local(c, step, device);
    const void *params = ls_case_reduced(c, step, ls_case_rank_of(c, device))->params_before;
    double loss[] = {(double)c->run.loss.kind, c->run.loss.label_smoothing};
    for (size_t k = 0; k < 2; k++) {
        uint64_t hash = LS_HASH_SEED ^ (k * UINT64_C(0x9e3779b97f4a7c15));
        hash = ls_hash(hash, &c->run.dtype, sizeof c->run.dtype);
        hash = ls_hash(hash, &c->normalize, sizeof c->normalize);
        hash = ls_hash(hash, loss, sizeof loss);
        hash = ls_hash(hash, &c->data, sizeof c->data);
        hash = ls_hash(hash, params, c->model.param_count * ls_dtype_size(c->run.dtype));
        hash = ls_hash(hash, local->indices, (size_t)local->count * sizeof *local->indices);
        key[k] = ls_hash(hash, local->decisions, (size_t)local->count * c->model.decisions_per_sample);
    }
}

static const ls_oracle_local *find(const ls_oracle_cache *cache, const uint64_t key[2]) {
    for (size_t i = 0; i < cache->count; i++) {
        if (memcmp(cache->entries[i]->key, key, sizeof cache->entries[i]->key) == 0) {
            return &cache->entries[i]->local;
        }
    }
    return NULL;
}

/* Room for one more entry; the entry itself is zeroed and has its gradient allocated. */
static ls_rc add_entry(ls_oracle_cache *cache, ls_oracle_entry **out) {
    if (cache->count == cache->capacity) {
        size_t capacity = cache->capacity == 0 ? 64 : cache->capacity * 2;
        ls_oracle_entry **grown = realloc(cache->entries, capacity * sizeof(ls_oracle_entry *));
        if (grown == NULL) {
            return ls_fail(LS_DEVICE_FAILED, "out of memory for the oracle's results");
        }
        cache->entries = grown;
        cache->capacity = capacity;
    }
    ls_oracle_entry *e = ls_calloc(1, sizeof *e, "a result of the oracle");
    double *grads = ls_calloc(cache->model.param_count, sizeof(double), "a gradient of the oracle");
    double *statistics = ls_calloc(cache->model.buffer_count, sizeof(double), "statistics of the oracle");
    double *error = ls_calloc(cache->model.buffer_count, sizeof(double), "statistics of the oracle");
    if (e == NULL || grads == NULL || statistics == NULL || error == NULL) {
        free(e);
        free(grads);
        free(statistics);
        free(error);
        return LS_DEVICE_FAILED;
    }
    e->local.grads = grads;
    e->local.statistics = statistics;
    e->local.statistics_error = error;
    cache->entries[cache->count++] = e;
    *out = e;
    return LS_OK;
}

ls_rc ls_oracle_cache_local(ls_oracle_cache *cache, const ls_case *c, size_t step, size_t device,
                            const ls_oracle_local **out) {
    LS_TRY(ls_oracle_cache_use_model(cache, &c->model));
    uint64_t key[2];
    ls_oracle_cache_key(c, step, device, key);
    *out = find(cache, key);
    if (*out != NULL) {
        cache->reused++;
        return LS_OK;
    }
    ls_oracle_problem p;
    LS_TRY(ls_oracle_problem_open(c, step, device, &p));
    ls_oracle_entry *e = NULL;
    ls_rc rc = add_entry(cache, &e);
    if (rc == LS_OK) {
        memcpy(e->key, key, sizeof e->key);
        p.input.statistics = e->local.statistics;
        p.input.statistics_error = e->local.statistics_error;
        if (ls_oracle_gradient(cache->oracle, &p.input, e->local.grads, &e->local.loss_sum, &e->local.decisions) != 0) {
            rc = ls_fail(LS_DEVICE_FAILED, "out of memory in the oracle");
        }
        cache->computed++;
        *out = &e->local;
    }
    ls_oracle_problem_close(&p);
    return rc;
}

double ls_oracle_cache_weight(const ls_case *c, const ls_oracle_loss *kind, double sum, double samples) {
    double slope = samples > 0 ? ls_oracle_loss_slope(kind, sum, samples, c->model.classes) : 0;
    return c->reduction == LS_REDUCTION_MEAN ? slope / (double)c->ranks : slope;
}

ls_rc ls_oracle_cache_weights(ls_oracle_cache *cache, const ls_case *c, size_t step, double *weights, double *loss) {
    ls_oracle_loss kind = ls_case_loss(c);
    double ranks = (double)c->ranks;
    *loss = 0;
    for (size_t rank = 0; rank < c->ranks; rank++) {
        double sum = 0;
        double samples = 0;
        for (size_t device = 0; device < c->devices; device++) {
            const ls_oracle_local *local = NULL;
            if (ls_case_rank_of(c, device) == rank) {
                LS_TRY(ls_oracle_cache_local(cache, c, step, device, &local));
                sum += local->loss_sum;
                samples += (double)ls_case_local(c, step, device)->count;
            }
        }
        *loss += samples > 0 ? ls_oracle_loss_value(&kind, sum, samples, c->model.classes) / ranks : 0;
        for (size_t device = 0; device < c->devices; device++) {
            if (ls_case_rank_of(c, device) == rank) {
                weights[device] = ls_oracle_cache_weight(c, &kind, sum, samples);
            }
        }
    }
    return LS_OK;
}

static ls_rc add_locals(ls_oracle_cache *cache, const ls_case *c, size_t step, double *weights, double *grads,
                        double *loss) {
    LS_TRY(ls_oracle_cache_weights(cache, c, step, weights, loss));
    for (size_t device = 0; device < c->devices; device++) {
        const ls_oracle_local *local = NULL;
        LS_TRY(ls_oracle_cache_local(cache, c, step, device, &local));
        for (size_t i = 0; i < c->model.param_count; i++) {
            grads[i] += local->grads[i] * weights[device];
        }
    }
    return LS_OK;
}

ls_rc ls_oracle_cache_global(ls_oracle_cache *cache, const ls_case *c, size_t step, double *grads, double *loss) {
    memset(grads, 0, c->model.param_count * sizeof *grads);
    double *weights = ls_calloc(c->devices, sizeof *weights, "weights of devices");
    ls_rc rc = weights != NULL ? add_locals(cache, c, step, weights, grads, loss) : LS_DEVICE_FAILED;
    free(weights);
    return rc;
}
