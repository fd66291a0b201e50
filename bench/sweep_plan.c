#include "bench/sweep_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impls/impl.h"
#include "impls/launch.h"
#include "impls/rank.h"
#include "impls/run_spec.h"

static size_t largest(const size_t *values, size_t count) {
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        most = values[i] > most ? values[i] : most;
    }
    return most;
}

/* The point's batch sizes and its base's: the base does with one device what the scaling mode keeps fixed. */
static void set_batches(const ls_options *options, ls_sweep_point *point) {
    point->base = point->run;
    ls_run_make_single(&point->base);
    if (strcmp(point->scaling, "strong") == 0) {
        size_t fixed = options->run.global_batch;
        fixed = fixed > 0 ? fixed : options->run.batch * largest(options->devices, options->device_count);
        point->run.global_batch = point->base.global_batch = fixed;
    } else {
        point->run.global_batch = point->base.global_batch = 0;
    }
}

static ls_rc add_point(const ls_options *options, const ls_impl *impl, const ls_run *run, const char *scaling,
                       ls_sweep_plan *plan) {
    ls_sweep_point *grown = realloc(plan->points, (plan->count + 1) * sizeof plan->points[0]);
    if (grown == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for %zu sweep points", plan->count + 1);
    }
    plan->points = grown;
    ls_sweep_point *point = &plan->points[plan->count++];
    *point = (ls_sweep_point){.run = *run, .scaling = scaling};
    set_batches(options, point);
    if (options->impl_all && !(ls_run_suits(run, impl, point->skip, sizeof point->skip) &&
                               ls_impl_available(impl, point->skip, sizeof point->skip))) {
        return LS_OK;
    }
    LS_TRY(ls_run_check(&point->run));
    LS_TRY(ls_run_full_steps(&point->run));
    LS_TRY(ls_run_check(&point->base));
    return ls_run_full_steps(&point->base);
}

/* The points of one implementation for one model, dtype, scaling and device count. */
static ls_rc add_variants(const ls_options *options, const ls_impl *impl, const ls_run *run, const char *scaling,
                          ls_sweep_plan *plan) {
    size_t kinds = (impl->capabilities & LS_CAP_RANK_THREADS) != 0 ? options->ranks_count : 1;
    size_t caps = (impl->capabilities & LS_CAP_BUCKETS) != 0 ? options->bucket_count : 1;
    for (size_t kind = 0; kind < kinds; kind++) {
        for (size_t cap = 0; cap < caps; cap++) {
            ls_run variant = *run;
            variant.ranks = kinds > 1 || (impl->capabilities & LS_CAP_RANK_THREADS) != 0 ? options->ranks[kind]
                                                                                         : LS_RANKS_PROCESSES;
            variant.bucket_bytes = options->buckets[cap];
            LS_TRY(add_point(options, impl, &variant, scaling, plan));
        }
    }
    return LS_OK;
}

static ls_rc add_implementations(const ls_options *options, const ls_run *run, const char *scaling,
                                 ls_sweep_plan *plan) {
    for (size_t i = 0; i < options->impl_count; i++) {
        const ls_impl *impl = ls_impl_find(options->impls[i]);
        bool one_device = (impl->capabilities & LS_CAP_MULTI_DEVICE) == 0;
        for (size_t d = 0; d < (one_device ? 1 : options->device_count); d++) {
            ls_run variant = *run;
            snprintf(variant.impl, sizeof variant.impl, "%s", impl->name);
            variant.devices = one_device ? 1 : options->devices[d];
            LS_TRY(add_variants(options, impl, &variant, scaling, plan));
        }
    }
    return LS_OK;
}

ls_rc ls_sweep_plan_make(const ls_options *options, ls_sweep_plan *out) {
    *out = (ls_sweep_plan){0};
    for (size_t m = 0; m < options->model_count; m++) {
        for (size_t t = 0; t < options->dtype_count; t++) {
            for (size_t s = 0; s < options->scaling_count; s++) {
                ls_run run = options->run;
                ls_run_use_model(options, m, &run);
                run.dtype = options->dtypes[t];
                ls_rc rc = add_implementations(options, &run, options->scaling[s], out);
                if (rc != LS_OK) {
                    ls_sweep_plan_free(out);
                    return rc;
                }
            }
        }
    }
    return LS_OK;
}

void ls_sweep_plan_free(ls_sweep_plan *plan) {
    free(plan->points);
    *plan = (ls_sweep_plan){0};
}
