/* Layer 1: ranks agree on how they communicate. The bucket plan is the same on all ranks and cuts the flat gradient as its
 * cap says; each rank begins the same collectives (kind, elements, type, root) in the same order; and the allreduces of a
 * step are the plan's buckets, one after the other, none left out, none twice. A difference would reduce unlike gradients,
 * or hang where sizes differ; equal sizes hide it from everything but this. */
#include <string.h>

#include "verify/check.h"
#include "verify/values.h"

static const char plan_cause[] = "the bucket plan: another cap, another order of tensors, or tensors left out";

static void fail(ls_finding *finding, const char *cause) {
    ls_finding_measure(finding, 1, 0);
    if (finding->cause[0] == '\0') {
        snprintf(finding->cause, sizeof finding->cause, "%s", cause);
    }
}

/* Elements of the last tensor of a bucket; 0: its end is not a tensor's. */
static size_t last_tensor(const ls_case *c, const ls_bucket *bucket) {
    for (size_t p = 0; p < c->model.param_tensors; p++) {
        const ls_param *param = &c->model.params[p];
        if (param->offset + param->count == bucket->offset + bucket->count) {
            return param->count;
        }
    }
    return 0;
}

/* A bucket closes with the tensor that brings it to the cap: whole tensors from where the one before ended. */
static void check_plan(const ls_case *c, size_t rank, ls_finding *finding) {
    const ls_capture_reduced *record = ls_case_reduced(c, 0, rank);
    size_t element = ls_dtype_size(c->run.dtype);
    size_t end = 0;
    for (size_t b = 0; b < record->plan_count; b++) {
        const ls_bucket *bucket = &record->plan[b];
        size_t last = last_tensor(c, bucket);
        bool closed = bucket->count * element >= c->run.bucket_bytes || b + 1 == record->plan_count;
        bool needed = last > 0 && last <= bucket->count && (bucket->count - last) * element < c->run.bucket_bytes;
        if (bucket->offset != end || !closed || !needed) {
            ls_finding_fail(finding,
                            "rank %zu: bucket %zu holds elements %zu to %zu, the one before ends at %zu; cap %zu bytes",
                            rank, b, bucket->offset, bucket->offset + bucket->count, end, c->run.bucket_bytes);
            fail(finding, plan_cause);
            return;
        }
        end += bucket->count;
    }
    if (!ls_finding_measure(finding, end == c->model.param_count ? 0 : 1, 0)) {
        ls_finding_fail(finding, "rank %zu: the buckets hold %zu of %zu elements", rank, end, c->model.param_count);
        fail(finding, plan_cause);
    }
}

/* The same list on a rank as on rank 0. */
static void compare(const ls_case *c, size_t step, size_t rank, ls_finding *finding) {
    const ls_capture_reduced *zero = ls_case_reduced(c, step, 0), *other = ls_case_reduced(c, step, rank);
    size_t most = zero->collective_count > other->collective_count ? zero->collective_count : other->collective_count;
    for (size_t k = 0; k < most; k++) {
        char here[64] = "nothing", there[64] = "nothing";
        if (k < zero->collective_count && k < other->collective_count &&
            memcmp(&zero->collectives[k], &other->collectives[k], sizeof zero->collectives[k]) == 0) {
            continue;
        }
        if (k < zero->collective_count) {
            ls_collective_describe(&zero->collectives[k], here, sizeof here);
        }
        if (k < other->collective_count) {
            ls_collective_describe(&other->collectives[k], there, sizeof there);
        }
        ls_finding_fail(finding, "step %zu, collective %zu: %s on rank 0, %s on rank %zu", step, k, here, there, rank);
        fail(finding, "ranks begin different collectives, or the same ones in another order");
        return;
    }
    if (zero->plan_count != other->plan_count ||
        memcmp(zero->plan, other->plan, zero->plan_count * sizeof *zero->plan) != 0) {
        ls_finding_fail(finding, "step %zu: the bucket plan of rank %zu is not that of rank 0", step, rank);
        fail(finding, plan_cause);
    }
}

/* The allreduces of a step against the plan. */
static void check_step(const ls_case *c, size_t step, size_t rank, ls_finding *finding) {
    const ls_capture_reduced *record = ls_case_reduced(c, step, rank);
    size_t next = 0;
    for (size_t k = 0; k < record->collective_count; k++) {
        const ls_collective *collective = &record->collectives[k];
        if (collective->kind != LS_COLLECTIVE_ALLREDUCE) {
            continue;
        }
        if (next == record->plan_count || collective->count != record->plan[next].count ||
            collective->element != ls_dtype_size(c->run.dtype) || collective->floats != 1) {
            char text[64];
            ls_collective_describe(collective, text, sizeof text);
            ls_finding_fail(finding, "step %zu, rank %zu: collective %zu is an %s, bucket %zu of %zu has %zu elements",
                            step, rank, k, text, next, (size_t)record->plan_count,
                            next < record->plan_count ? record->plan[next].count : 0);
            fail(finding, "buckets are reduced in another order, in part or in another type");
            return;
        }
        next++;
    }
    if (!ls_finding_measure(finding, (double)(record->plan_count - next), 0)) {
        ls_finding_fail(finding, "step %zu, rank %zu: %zu of %zu buckets are reduced", step, rank, next,
                        (size_t)record->plan_count);
        fail(finding, "a bucket is left out of the reduction");
    }
}

ls_rc ls_check_protocol(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    const ls_impl *impl = ls_impl_find(c->run.impl);
    if (impl == NULL || (impl->capabilities & LS_CAP_BUCKETS) == 0) {
        ls_finding_skip(finding, "%s has no buckets and no collectives", c->run.impl);
        return LS_OK;
    }
    for (size_t rank = 0; rank < c->ranks; rank++) {
        check_plan(c, rank, finding);
        for (size_t step = 0; step < c->steps; step++) {
            compare(c, step, rank, finding);
            check_step(c, step, rank, finding);
        }
    }
    return LS_OK;
}
