#include "bench/verify_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impls/devices.h"
#include "impls/impl.h"
#include "impls/launch.h"
#include "impls/rank.h"
#include "impls/run_spec.h"
#include "verify/exact.h"

static const ls_impl *baseline_impl(void) {
    return ls_impl_find("single");
}

static bool asked_for(const ls_options *options, const char *name) {
    for (size_t i = 0; i < options->impl_count; i++) {
        if (strcmp(options->impls[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* A run of the options for verification: recorded, silent, not evaluated. */
static ls_run plain_run(const ls_options *options, size_t model, size_t dtype) {
    ls_run run = options->run;
    ls_run_use_model(options, model, &run);
    run.dtype = options->dtypes[dtype];
    run.log_every = 0;
    run.capture = true;
    run.evaluate = run.time_steps = false;
    run.warmup = 0;
    run.save[0] = run.json[0] = '\0';
    return run;
}

static ls_rc add_point(const ls_verify_point *point, ls_verify_plan *plan) {
    ls_verify_point *grown = realloc(plan->points, (plan->count + 1) * sizeof plan->points[0]);
    if (grown == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for %zu cases", plan->count + 1);
    }
    plan->points = grown;
    plan->points[plan->count++] = *point;
    return LS_OK;
}

/* The point of `single` on so many samples among those from `first` on, made when there is none yet. */
static ls_rc find_baseline(const ls_options *options, const ls_run *run, size_t first, ls_verify_plan *plan,
                           size_t *index) {
    size_t local = 0;
    size_t global = 0;
    LS_TRY(ls_run_batches(run, &local, &global));
    for (size_t i = first; i < plan->count; i++) {
        if (plan->points[i].baseline == i && plan->points[i].run.batch == global) {
            *index = i;
            return LS_OK;
        }
    }
    ls_verify_point point = {.run = *run, .baseline = plan->count, .asked = asked_for(options, "single")};
    ls_run_make_single(&point.run);
    point.run.batch = global;
    point.run.global_batch = 0;
    point.run.ranks = LS_RANKS_PROCESSES;
    point.run.bucket_bytes = LS_BUCKET_BYTES_DEFAULT;
    point.run.nccl_register = run->nccl_register && point.asked && !options->impl_all; /* which is refused */
    LS_TRY(ls_run_check(&point.run));
    *index = plan->count;
    return add_point(&point, plan);
}

/* Why a point with this rank kind cannot be; ranks in one process (dp) have no kind. */
static bool has_kind(const ls_impl *impl, ls_rank_kind kind, char *why, size_t size) {
    unsigned processes = LS_CAP_RANK_PROCESSES | LS_CAP_MPIRUN;
    bool can_threads = (impl->capabilities & LS_CAP_RANK_THREADS) != 0;
    bool can_processes = (impl->capabilities & processes) != 0;
    if (!can_threads && !can_processes) {
        return true;
    }
    bool has = kind == LS_RANKS_THREADS ? can_threads : can_processes;
    if (!has) {
        snprintf(why, size, "%s has no ranks as %s", impl->name, kind == LS_RANKS_THREADS ? "threads" : "processes");
    }
    return has;
}

/* Of many implementations asked for at once, one that trains on one device is no error beside more. */
static bool has_devices(const ls_options *options, const ls_impl *impl, size_t devices, char *why, size_t size) {
    bool has = devices == 1 || !options->impl_all || (impl->capabilities & LS_CAP_MULTI_DEVICE) != 0;
    if (!has) {
        snprintf(why, size, "%s trains on one device", impl->name);
    }
    return has;
}

/* Rank kinds that give different cases: all that were asked for where the implementation has both, else one. */
static size_t kinds_of(const ls_options *options, const ls_impl *impl, ls_rank_kind kinds[2]) {
    bool both = (impl->capabilities & LS_CAP_RANK_THREADS) != 0;
    kinds[0] = options->ranks[0];
    if (both) {
        for (size_t i = 0; i < options->ranks_count; i++) {
            kinds[i] = options->ranks[i];
        }
        return options->ranks_count;
    }
    for (size_t i = 0; i < options->ranks_count; i++) {
        if (options->ranks[i] == LS_RANKS_PROCESSES) {
            kinds[0] = LS_RANKS_PROCESSES;
        }
    }
    return 1;
}

static ls_rc add_variant(const ls_options *options, const ls_impl *impl, const ls_run *run, size_t first,
                         ls_verify_plan *plan) {
    ls_verify_point point = {.run = *run, .asked = true};
    bool runs = has_devices(options, impl, run->devices, point.skip, sizeof point.skip) &&
                has_kind(impl, run->ranks, point.skip, sizeof point.skip) &&
                (!ls_exact_is(run) || ls_exact_possible(run, impl, point.skip, sizeof point.skip));
    if (runs && options->impl_all && run->share_devices) {
        size_t present = 0;
        LS_TRY(ls_platform_device_count(&present));
        runs = ls_devices_suffice(run, impl, present, point.skip, sizeof point.skip);
    }
    if (runs && options->impl_all) {
        runs = ls_run_suits(run, impl, point.skip, sizeof point.skip) &&
               ls_impl_available(impl, point.skip, sizeof point.skip);
    }
    if (runs) {
        LS_TRY(ls_run_check(run));
    }
    LS_TRY(find_baseline(options, run, first, plan, &point.baseline));
    return add_point(&point, plan);
}

static ls_rc add_variants(const ls_options *options, const ls_impl *impl, const ls_run *run, size_t first,
                          ls_verify_plan *plan) {
    ls_rank_kind kinds[2];
    size_t kind_count = kinds_of(options, impl, kinds);
    bool buckets = (impl->capabilities & LS_CAP_BUCKETS) != 0;
    char why[sizeof(((ls_verify_point *)NULL)->skip)];
    if (ls_exact_is(run) && !ls_exact_possible(run, impl, why, sizeof why)) {
        kind_count = 1; /* one point tells why */
        buckets = false;
    }
    for (size_t kind = 0; kind < kind_count; kind++) {
        for (size_t cap = 0; cap < (buckets ? options->bucket_count : 1); cap++) {
            ls_run variant = *run;
            bool kindless = (impl->capabilities & (LS_CAP_RANK_THREADS | LS_CAP_RANK_PROCESSES | LS_CAP_MPIRUN)) == 0;
            variant.ranks = kindless ? LS_RANKS_PROCESSES : kinds[kind];
            variant.bucket_bytes = buckets ? options->buckets[cap] : LS_BUCKET_BYTES_DEFAULT;
            LS_TRY(add_variant(options, impl, &variant, first, plan));
        }
    }
    return LS_OK;
}

/* `single` on every global batch, then everyone on every device count. */
static ls_rc add_model(const ls_options *options, const ls_run *run, ls_verify_plan *plan) {
    bool exact = ls_exact_is(run);
    size_t first = plan->count;
    for (size_t d = 0; d < options->device_count; d++) {
        ls_run sized = *run;
        size_t unused = 0;
        sized.devices = options->devices[d];
        if (exact) {
            ls_exact_fit(&sized);
        }
        snprintf(sized.impl, sizeof sized.impl, "%s", baseline_impl()->name);
        LS_TRY(find_baseline(options, &sized, first, plan, &unused));
    }
    for (size_t i = 0; i < options->impl_count; i++) {
        const ls_impl *impl = ls_impl_find(options->impls[i]);
        for (size_t d = 0; impl != baseline_impl() && d < options->device_count; d++) {
            ls_run sized = *run;
            sized.devices = options->devices[d];
            if (exact) {
                ls_exact_fit(&sized);
            }
            snprintf(sized.impl, sizeof sized.impl, "%s", impl->name);
            LS_TRY(add_variants(options, impl, &sized, first, plan));
        }
    }
    return LS_OK;
}

/* The network `exact` with its data, at the end: in float32 where that was asked for. What is exact there is exact in
 * float64, too. */
static ls_rc add_exact(const ls_options *options, ls_verify_plan *plan) {
    size_t narrow = 0;
    for (size_t t = 0; t < options->dtype_count; t++) {
        narrow = options->dtypes[t] == LS_FLOAT32 ? t : narrow;
    }
    ls_run run = plain_run(options, 0, narrow);
    snprintf(run.model, sizeof run.model, "exact");
    return add_model(options, &run, plan);
}

static ls_rc add_models(const ls_options *options, ls_verify_plan *plan) {
    for (size_t m = 0; m < options->model_count; m++) {
        for (size_t t = 0; t < options->dtype_count; t++) {
            ls_run run = plain_run(options, m, t);
            LS_TRY(add_model(options, &run, plan));
        }
    }
    return options->model_all ? add_exact(options, plan) : LS_OK;
}

ls_rc ls_verify_plan_make(const ls_options *options, ls_verify_plan *out) {
    *out = (ls_verify_plan){0};
    ls_rc rc = add_models(options, out);
    if (rc != LS_OK) {
        ls_verify_plan_free(out);
    }
    return rc;
}

void ls_verify_plan_free(ls_verify_plan *plan) {
    free(plan->points);
    *plan = (ls_verify_plan){0};
}
