/* Layer 0: the devices took the samples that a single process would have taken. With DistributedSampler's rule rank r takes
 * positions r, r+W, r+2W, ... of the padded order, so step k of all ranks covers positions [kWB, (k+1)WB) of the very
 * order that one process draws; DataParallel cuts that stretch into consecutive chunks. */
#include <stdlib.h>
#include <string.h>

#include "impls/rank.h"
#include "verify/check.h"

typedef struct order {
    size_t *samples; /* one process's order of an epoch */
    size_t count;
    size_t epoch;
} order;

static ls_rc order_load(const ls_case *c, size_t epoch, order *o) {
    ls_sampler sampler = ls_run_sampler(&c->run, c->data->count, 1, 0);
    if (ls_sampler_order(&sampler, epoch, o->samples) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for an order of %zu samples", c->data->count);
    }
    o->epoch = epoch;
    return LS_OK;
}

/* The stretch of the padded order that a step covers. */
typedef struct stretch {
    size_t first, count;
} stretch;

/* Each rank has ceil(N/W) samples an epoch (floor with drop-last), in steps of local_batch; the last step takes what is
 * left. */
static stretch stretch_of(const ls_case *c, size_t step, size_t *epoch) {
    ls_sampler sampler = ls_run_sampler(&c->run, c->data->count, c->ranks, 0);
    size_t length = ls_sampler_length(&sampler);
    size_t steps = (length + c->local_batch - 1) / c->local_batch;
    *epoch = step / steps;
    size_t first = step % steps * c->local_batch;
    size_t local = length - first < c->local_batch ? length - first : c->local_batch;
    return (stretch){.first = first * c->ranks, .count = local * c->ranks};
}

/* Position in the stretch of the k-th sample of a device, whose chunk starts at `chunk` when one rank has all. */
static size_t position_of(const ls_case *c, size_t device, size_t chunk, size_t k) {
    return c->ranks == 1 ? chunk + k : k * c->ranks + device;
}

static int compare_sizes(const void *a, const void *b) {
    size_t x = *(const size_t *)a;
    size_t y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

/* Which device took a sample in a step, and how often over all devices. */
static size_t count_sample(const ls_case *c, size_t step, size_t sample, char *who, size_t size) {
    size_t found = 0;
    size_t used = 0;
    who[0] = '\0';
    for (size_t device = 0; device < c->devices; device++) {
        const ls_capture_local *local = ls_case_local(c, step, device);
        for (size_t k = 0; k < local->count; k++) {
            if (local->indices[k] == sample) {
                int more = snprintf(who + used, size - used, "%s%zu", found > 0 ? ", " : "", device);
                used = more > 0 && used + (size_t)more < size ? used + (size_t)more : used;
                found++;
            }
        }
    }
    return found;
}

/* Names the first sample that is repeated or missing, comparing both sorted lists. */
static void name_difference(const ls_case *c, size_t step, const size_t *expected, size_t count, ls_finding *finding) {
    char who[128];
    for (size_t i = 0; i < count; i++) {
        size_t first = i;
        while (i + 1 < count && expected[i + 1] == expected[first]) {
            i++;
        }
        size_t wanted = i - first + 1;
        size_t found = count_sample(c, step, expected[first], who, sizeof who);
        if (found > wanted) {
            ls_finding_fail(finding, "step %zu: sample %zu is taken %zu times instead of %zu (devices %s)", step,
                            expected[first], found, wanted, who);
        } else if (found < wanted) {
            ls_finding_fail(finding, "step %zu: sample %zu is missing (taken %zu times instead of %zu)", step,
                            expected[first], found, wanted);
        }
    }
}

/* A sample that is repeated tells more than the one that is missing instead, so it is looked for first. */
static bool name_repeated(const ls_case *c, size_t step, ls_finding *finding) {
    char who[128];
    for (size_t device = 0; device < c->devices; device++) {
        const ls_capture_local *local = ls_case_local(c, step, device);
        for (size_t k = 0; k < local->count; k++) {
            size_t found = count_sample(c, step, local->indices[k], who, sizeof who);
            if (found > 1 && ls_case_samples(c, step) <= c->data->count) {
                ls_finding_fail(finding, "step %zu: sample %zu is taken %zu times (devices %s)", step,
                                local->indices[k], found, who);
                snprintf(finding->cause, sizeof finding->cause,
                         "ranks overlap: wrong rank or world size in the sampler");
                return true;
            }
        }
    }
    return false;
}

static void explain(const ls_case *c, size_t step, size_t *expected, size_t count, ls_finding *finding) {
    size_t taken = ls_case_samples(c, step);
    if (!name_repeated(c, step, finding)) {
        qsort(expected, count, sizeof *expected, compare_sizes);
        name_difference(c, step, expected, count, finding);
    }
    if (taken != count) {
        ls_finding_fail(finding, "step %zu: %zu samples are taken, expected %zu", step, taken, count);
    }
    if (finding->cause[0] == '\0') {
        snprintf(finding->cause, sizeof finding->cause,
                 "the sampler: another order, shard or batch size than one "
                 "process's");
    }
}

static ls_rc check_step(const ls_case *c, size_t step, const order *o, stretch s, ls_finding *finding) {
    size_t *expected = ls_calloc(s.count, sizeof *expected, "samples of a step");
    if (expected == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < s.count; i++) {
        expected[i] = o->samples[(s.first + i) % o->count];
    }
    size_t wrong = ls_case_samples(c, step) == s.count ? 0 : 1;
    char detail[256] = "";
    size_t chunk = 0;
    for (size_t device = 0; device < c->devices; device++) {
        const ls_capture_local *local = ls_case_local(c, step, device);
        for (size_t k = 0; k < local->count; k++) {
            size_t position = position_of(c, device, chunk, k);
            if (position >= s.count || local->indices[k] != expected[position]) {
                if (detail[0] == '\0') {
                    snprintf(detail, sizeof detail, "step %zu, device %zu: sample %zu at place %zu, expected %zu", step,
                             device, local->indices[k], k, position < s.count ? expected[position] : SIZE_MAX);
                }
                wrong++;
            }
        }
        chunk += (size_t)local->count;
    }
    if (!ls_finding_measure(finding, (double)wrong, 0)) {
        explain(c, step, expected, s.count, finding);
        ls_finding_fail(finding, "%s", detail); /* stays only when the sets are equal and the order is not */
    }
    free(expected);
    return LS_OK;
}

ls_rc ls_check_samples(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    order o = {.count = c->data->count, .epoch = SIZE_MAX};
    o.samples = ls_calloc(o.count, sizeof *o.samples, "an order of samples");
    if (o.samples == NULL) {
        return LS_DEVICE_FAILED;
    }
    ls_rc rc = LS_OK;
    for (size_t step = 0; step < c->steps && rc == LS_OK; step++) {
        size_t epoch = 0;
        stretch s = stretch_of(c, step, &epoch);
        if (epoch != o.epoch) {
            rc = order_load(c, epoch, &o);
        }
        if (rc == LS_OK) {
            rc = check_step(c, step, &o, s, finding);
        }
    }
    free(o.samples);
    return rc;
}
