#include "verify/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "verify/range.h"

const ls_check ls_checks[] = {
    {0, "samples", "samples", ls_check_samples},
    {0, "inputs and answers", "inputs", ls_check_inputs},
    {0, "initial values", "initial", ls_check_initial},
    {0, "masks of dropout", "masks", ls_check_masks},
    {1, "equal bits across ranks", "bits", ls_check_bits},
    {1, "plan and log of collectives", "protocol", ls_check_protocol},
    {2, "reduction of local gradients", "reduction", ls_check_reduction},
    {3, "float64 against the oracle", "float64", ls_check_float64},
    {4, "float32 against the oracle", "float32", ls_check_float32},
    {5, "exact inputs", "exact", ls_check_exact},
    {6, "each update", "update", ls_check_update},
    {6, "trajectory", "trajectory", ls_check_trajectory},
    {6, "buffers of batchnorm", "buffers", ls_check_buffers},
    {0, NULL, NULL, NULL},
};

const char *ls_status_name(ls_status status) {
    static const char *const names[] = {
        [LS_SKIPPED] = "SKIPPED", [LS_PASSED] = "PASSED", [LS_MISTRUSTED] = "MISTRUSTED", [LS_FAILED] = "FAILED"};
    return names[status];
}

/* How far a value has used up its bound; beyond 1 it has failed. */
static double used_up(double observed, double bound) {
    if (isnan(observed) || isnan(bound)) {
        return INFINITY;
    }
    return observed <= bound ? (bound > 0 ? observed / bound : 0) : (bound > 0 ? observed / bound : INFINITY);
}

bool ls_finding_measure(ls_finding *finding, double observed, double bound) {
    if (finding->status == LS_SKIPPED) {
        finding->status = LS_PASSED;
    }
    if (isnan(finding->bound) || used_up(observed, bound) > used_up(finding->observed, finding->bound)) {
        finding->observed = observed;
        finding->bound = bound;
    }
    return observed <= bound; /* false for not-a-number */
}

void ls_finding_fail(ls_finding *finding, const char *format, ...) {
    finding->status = LS_FAILED;
    if (finding->detail[0] != '\0') {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->detail, sizeof finding->detail, format, arguments);
    va_end(arguments);
}

void ls_finding_skip(ls_finding *finding, const char *format, ...) {
    finding->status = LS_SKIPPED;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->reason, sizeof finding->reason, format, arguments);
    va_end(arguments);
}

void ls_finding_mistrust(ls_finding *finding, const char *format, ...) {
    if (finding->status == LS_FAILED || finding->status == LS_MISTRUSTED) {
        return; /* what failed has failed; the first reason stays */
    }
    finding->status = LS_MISTRUSTED;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->reason, sizeof finding->reason, format, arguments);
    va_end(arguments);
}

/* From this layer on checks compare numbers with bounds. */
enum { FIRST_BOUNDED = 2 };

/* What holds for bits and samples holds in every step; numbers are looked at while they stay in range. */
static ls_rc run_check(const ls_check *check, const ls_check_input *whole, const ls_check_input *in_range,
                       const char *why, ls_finding *finding) {
    *finding = (ls_finding){.status = LS_SKIPPED, .observed = NAN, .bound = NAN};
    if (check->layer < FIRST_BOUNDED || why[0] == '\0') {
        return check->run(whole, finding);
    }
    if (in_range->c->steps > 0) {
        LS_TRY(check->run(in_range, finding));
    }
    if (finding->status == LS_PASSED || in_range->c->steps == 0) {
        ls_finding_mistrust(finding, "%s", why);
    }
    return LS_OK;
}

ls_rc ls_case_verify(const ls_check_input *input, ls_verdict *out) {
    char why[sizeof out->findings[0].reason];
    ls_case first_steps = *input->c; /* records are in order of steps */
    ls_check_input in_range = *input;
    in_range.c = &first_steps;
    *out = (ls_verdict){.status = LS_SKIPPED};
    LS_TRY(ls_range_steps(input, &first_steps.steps, why, sizeof why));
    for (const ls_check *check = ls_checks; check->name != NULL; check++) {
        ls_finding *finding = &out->findings[out->count];
        LS_TRY(run_check(check, input, &in_range, why, finding));
        if (finding->status > out->status) {
            out->status = finding->status;
            out->decisive = out->count;
        }
        out->count++;
    }
    return LS_OK;
}
