/* Layer 0: dropout's masks are what they should be. The oracle follows whatever mask a device drew, so here the masks
 * themselves are judged: every byte is 0 or 1; the share kept over all samples of a step fits the probability; no two devices
 * and no two steps have the same mask.
 *
 * The number kept of n independent values has mean n(1-p) and variance n p(1-p); it lies more than 6 standard deviations off
 * with a probability of about 2e-9 (and one value for the discreteness of small n). Two independent masks agree in a value
 * with probability p^2 + (1-p)^2 = a, so in n values with a^n: below 1e-9 they must not be equal. */
#include <math.h>
#include <string.h>

#include "verify/check.h"

static const double most_deviations = 6;
static const double least_chance = 1e-9;

static const uint8_t *mask_of(const ls_case *c, const ls_layer *layer, size_t step, size_t device, size_t sample) {
    return ls_case_local(c, step, device)->decisions + sample * c->model.decisions_per_sample + layer->decision_offset;
}

static void check_share(const ls_case *c, const ls_layer *layer, size_t step, ls_finding *finding) {
    double kept = 0;
    double count = 0;
    for (size_t device = 0; device < c->devices; device++) {
        for (size_t i = 0; i < (size_t)ls_case_local(c, step, device)->count; i++) {
            const uint8_t *mask = mask_of(c, layer, step, device, i);
            for (size_t f = 0; f < layer->decisions; f++) {
                if (mask[f] > 1) {
                    ls_finding_measure(finding, INFINITY, most_deviations);
                    ls_finding_fail(finding, "step %zu, device %zu: the mask of %s holds %u at value %zu, not 0 or 1",
                                    step, device, layer->name, mask[f], f);
                }
                kept += mask[f] != 0 ? 1 : 0;
            }
            count += (double)layer->decisions;
        }
    }
    double deviation = sqrt(count * layer->p * (1 - layer->p));
    double off = fmax(0, fabs(kept - count * (1 - layer->p)) - 1);
    double observed = off == 0 ? 0 : off / deviation;
    if (!ls_finding_measure(finding, observed, most_deviations)) {
        ls_finding_fail(finding, "step %zu: %s keeps %.0f of %.0f values, expected %.1f with a deviation of %.1f", step,
                        layer->name, kept, count, count * (1 - layer->p), deviation);
        snprintf(finding->cause, sizeof finding->cause, "dropout: another probability than %g, or a poor generator",
                 layer->p);
    }
}

/* Whether the masks of two devices or steps are equal over the samples that both have, where chance rules that out. */
static bool suspicious(const ls_case *c, const ls_layer *layer, size_t step, size_t device, size_t other_step,
                       size_t other) {
    size_t count = (size_t)ls_case_local(c, step, device)->count;
    size_t there = (size_t)ls_case_local(c, other_step, other)->count;
    count = there < count ? there : count;
    double agree = layer->p * layer->p + (1 - layer->p) * (1 - layer->p);
    if (pow(agree, (double)(count * layer->decisions)) >= least_chance) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (memcmp(mask_of(c, layer, step, device, i), mask_of(c, layer, other_step, other, i), layer->decisions) !=
            0) {
            return false;
        }
    }
    return true;
}

static void fail_equal(const ls_layer *layer, ls_finding *finding, const char *whose, const char *cause) {
    ls_finding_measure(finding, INFINITY, most_deviations);
    ls_finding_fail(finding, "%s have the same mask of %s", whose, layer->name);
    snprintf(finding->cause, sizeof finding->cause, "dropout: %s", cause);
}

static void check_different(const ls_case *c, const ls_layer *layer, size_t step, ls_finding *finding) {
    char whose[96];
    for (size_t device = 0; device < c->devices; device++) {
        for (size_t other = 0; other < device; other++) {
            if (suspicious(c, layer, step, device, step, other)) {
                snprintf(whose, sizeof whose, "step %zu: devices %zu and %zu", step, other, device);
                fail_equal(layer, finding, whose, "the masks do not depend on the rank");
            }
        }
        if (step > 0 && suspicious(c, layer, step, device, step - 1, device)) {
            snprintf(whose, sizeof whose, "device %zu: steps %zu and %zu", device, step - 1, step);
            fail_equal(layer, finding, whose, "the masks do not depend on the step");
        }
    }
}

ls_rc ls_check_masks(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    bool any = false;
    for (size_t l = 0; l < c->model.layer_count; l++) {
        const ls_layer *layer = &c->model.layers[l];
        any = any || layer->kind == LS_LAYER_DROPOUT;
        for (size_t step = 0; layer->kind == LS_LAYER_DROPOUT && step < c->steps; step++) {
            check_share(c, layer, step, finding);
            check_different(c, layer, step, finding);
        }
    }
    if (!any) {
        ls_finding_skip(finding, "%s has no dropout", c->model.name);
    }
    return LS_OK;
}
