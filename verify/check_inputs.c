/* Layer 0: what each device computed on is what the data set says of the samples that it took: every value of its
 * normalised input, bit for bit (float32 arithmetic, as torchvision's ToTensor and Normalize; the oracle makes it from the
 * data set itself), its labels and its targets. No gradient is needed to see a pixel that is off by 1/255. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/check.h"
#include "verify/values.h"

/* One sample of a device in a step. */
typedef struct place {
    size_t step, device, index; /* index: among the device's samples */
    size_t sample;              /* of the data set */
} place;

static void expected_input(const ls_case *c, size_t sample, double *out) {
    size_t features = ls_shape_features(c->model.input);
    if (c->data->values != NULL) {
        ls_oracle_values(c->data->values + sample * features, c->model.input, &c->normalize, out);
    } else {
        ls_oracle_pixels(c->data->pixels + sample * features, c->model.input, &c->normalize, out);
    }
}

static double found_value(const ls_case *c, const place *p, size_t feature) {
    size_t features = ls_shape_features(c->model.input);
    return ls_value(c->run.dtype, ls_case_local(c, p->step, p->device)->inputs, p->index * features + feature);
}

/* Values that differ; *first: the first of them. Not-a-number differs from everything. */
static size_t count_wrong(const ls_case *c, const place *p, const double *expected, size_t *first) {
    size_t wrong = 0;
    for (size_t f = 0; f < ls_shape_features(c->model.input); f++) {
        if (!(found_value(c, p, f) == expected[f])) {
            *first = wrong++ == 0 ? f : *first;
        }
    }
    return wrong;
}

/* Another sample of the data set that the device has in this one's place. */
static bool find_other(const ls_case *c, const place *p, double *scratch, size_t *other) {
    size_t first = 0;
    for (size_t sample = 0; sample < c->data->count; sample++) {
        expected_input(c, sample, scratch);
        if (count_wrong(c, p, scratch, &first) == 0) {
            *other = sample;
            return true;
        }
    }
    return false;
}

/* found = slope*expected + shift, if all values lie on such a line but for float32 rounding: another mean or deviation. */
static bool fits_line(const ls_case *c, const place *p, const double *expected, double *slope, double *shift) {
    size_t features = ls_shape_features(c->model.input);
    double n = (double)features, x = 0, y = 0, xx = 0, xy = 0, largest = 0;
    for (size_t f = 0; f < features; f++) {
        double found = found_value(c, p, f);
        x += expected[f];
        y += found;
        xx += expected[f] * expected[f];
        xy += expected[f] * found;
        largest = fmax(largest, fabs(found));
    }
    *slope = (n * xy - x * y) / (n * xx - x * x);
    *shift = (y - *slope * x) / n;
    for (size_t f = 0; f < features; f++) {
        if (!(fabs(found_value(c, p, f) - *slope * expected[f] - *shift) <= 16 * 0x1p-24 * largest)) {
            return false;
        }
    }
    return true;
}

static void explain(const ls_case *c, const place *p, const double *expected, size_t wrong, ls_finding *finding) {
    size_t features = ls_shape_features(c->model.input);
    size_t other = 0;
    double slope = 0, shift = 0;
    double *scratch = calloc(features, sizeof *scratch); /* without memory there is no diagnosis, only a verdict */
    if (wrong == 1) {
        snprintf(finding->cause, sizeof finding->cause, "a single value was changed between data set and device");
    } else if (fits_line(c, p, expected, &slope, &shift)) {
        snprintf(finding->cause, sizeof finding->cause,
                 "normalisation: found = %.9g*expected %+.3g, another mean or standard deviation", slope, shift);
    } else if (scratch != NULL && find_other(c, p, scratch, &other)) {
        snprintf(finding->cause, sizeof finding->cause, "other samples: it is sample %zu of the data set", other);
    } else {
        snprintf(finding->cause, sizeof finding->cause, "inputs: a stale or overwritten batch, or another layout");
    }
    free(scratch);
}

static void check_input(const ls_case *c, const place *p, double *expected, ls_finding *finding) {
    expected_input(c, p->sample, expected);
    size_t first = 0;
    size_t wrong = count_wrong(c, p, expected, &first);
    if (ls_finding_measure(finding, (double)wrong, 0) || finding->detail[0] != '\0') {
        return;
    }
    ls_shape shape = c->model.input;
    size_t row = first / shape.width;
    ls_finding_fail(
        finding,
        "step %zu, device %zu: input %zu (sample %zu) is %a at [%zu,%zu,%zu], the data set gives %a; %zu of "
        "%zu values differ",
        p->step, p->device, p->index, p->sample, found_value(c, p, first), row / shape.height, row % shape.height,
        first % shape.width, expected[first], wrong, ls_shape_features(shape));
    explain(c, p, expected, wrong, finding);
}

static void check_answers(const ls_case *c, const place *p, ls_finding *finding) {
    const ls_capture_local *local = ls_case_local(c, p->step, p->device);
    int32_t label = c->data->labels[p->sample];
    bool first = finding->detail[0] == '\0';
    if (!ls_finding_measure(finding, local->labels[p->index] != label ? 1 : 0, 0)) {
        ls_finding_fail(finding,
                        "step %zu, device %zu: the label of input %zu (sample %zu) is %d, the data set says %d",
                        p->step, p->device, p->index, p->sample, (int)local->labels[p->index], (int)label);
        if (first) {
            snprintf(finding->cause, sizeof finding->cause, "labels: a wrong label, or those of other samples");
        }
    }
    size_t count = c->data->target_count;
    for (size_t t = 0; t < count; t++) {
        float found = local->targets[p->index * count + t];
        float wanted = c->data->targets[p->sample * count + t];
        if (!ls_finding_measure(finding, found == wanted ? 0 : 1, 0)) {
            ls_finding_fail(finding,
                            "step %zu, device %zu: target %zu of input %zu (sample %zu) is %a, the data set says %a",
                            p->step, p->device, t, p->index, p->sample, (double)found, (double)wanted);
        }
    }
}

ls_rc ls_check_inputs(const ls_check_input *input, ls_finding *finding) {
    const ls_case *c = input->c;
    double *expected = ls_calloc(ls_shape_features(c->model.input), sizeof *expected, "an input");
    if (expected == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t step = 0; step < c->steps; step++) {
        for (size_t device = 0; device < c->devices; device++) {
            const ls_capture_local *local = ls_case_local(c, step, device);
            for (size_t i = 0; i < (size_t)local->count; i++) {
                place p = {step, device, i, local->indices[i]};
                check_input(c, &p, expected, finding);
                check_answers(c, &p, finding);
            }
        }
    }
    free(expected);
    return LS_OK;
}
