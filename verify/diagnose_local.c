/* Which device's own gradient is wrong, before any communication. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/diagnose.h"
#include "verify/values.h"

/* The bias of a layer whose output goes to a batchnorm, which takes every constant away again: its gradient is rounding
 * alone, so no distance of it tells anything. */
static bool is_vain(const ls_model *model, size_t tensor) {
    size_t layer = model->params[tensor].layer;
    const ls_layer *own = &model->layers[layer];
    bool constant = own->bias == tensor && own->kind != LS_LAYER_BATCHNORM;
    while (constant && layer + 1 < model->layer_count &&
           (model->layers[layer + 1].kind == LS_LAYER_AVGPOOL || model->layers[layer + 1].kind == LS_LAYER_FLATTEN)) {
        layer++;
    }
    return constant && layer + 1 < model->layer_count && model->layers[layer + 1].kind == LS_LAYER_BATCHNORM;
}

/* Largest relative distance of a device's tensors from the reference; *tensor: whose. */
static double worst_tensor(const ls_case *c, const void *grads, const double *reference, size_t *tensor) {
    double worst = 0;
    for (size_t t = 0; t < c->model.param_tensors; t++) {
        if (is_vain(&c->model, t)) {
            continue;
        }
        const ls_param *param = &c->model.params[t];
        ls_distance d = ls_distance_measure(c->run.dtype, grads, reference, param->offset, param->count);
        double relative = d.l2 == 0 ? 0 : d.l2 / d.reference_l2;
        if (!(relative <= worst)) {
            worst = isnan(relative) ? INFINITY : relative;
            *tensor = t;
        }
    }
    return worst;
}

/* The gradient that the device should have had: of the loss over its samples, or its part in one loss over all. */
static ls_rc local_reference(const ls_check_input *input, size_t step, size_t device, double *out) {
    const ls_case *c = input->c;
    const ls_oracle_local *local = NULL;
    double *weights = ls_calloc(c->devices, sizeof *weights, "weights of devices");
    double loss = 0;
    ls_rc rc = weights != NULL ? ls_oracle_cache_weights(input->oracle, c, step, weights, &loss) : LS_DEVICE_FAILED;
    if (rc == LS_OK) {
        rc = ls_oracle_cache_local(input->oracle, c, step, device, &local);
    }
    double ranks = c->reduction == LS_REDUCTION_MEAN ? (double)c->ranks : 1; /* the mean comes with the reduction */
    for (size_t i = 0; rc == LS_OK && i < c->model.param_count; i++) {
        out[i] = local->grads[i] * weights[device] * ranks;
    }
    free(weights);
    return rc;
}

typedef struct culprits {
    size_t wrong;         /* devices whose gradient is off */
    size_t first, tensor; /* of them, and its worst tensor */
    double distance, scale;
    const char *verdict; /* why it may be off */
    size_t other;        /* the device that the verdict is about */
} culprits;

static const char unknown[] = ": its samples, inputs, parameters or kernels";
static const char accumulated[] = "; it contains the gradient of the step before, which was not cleared";
static const char stale[] = "; stale: it is the gradient of the step before";
static const char scaled[] = "; it is right but for the scale";
static const char others[] = "; other samples: it is the gradient of the samples of device";

static bool close_to(const ls_case *c, const void *grads, const double *reference, double limit) {
    size_t unused = 0;
    return worst_tensor(c, grads, reference, &unused) <= limit;
}

/* The first explanation that fits the gradient of a device whose own would be `reference`, which is overwritten. */
static ls_rc explain(const ls_check_input *input, size_t step, double limit, double *reference, culprits *out) {
    const ls_case *c = input->c;
    const void *grads = ls_case_local(c, step, out->first)->grads;
    size_t count = c->model.param_count;
    if (step > 0) {
        const void *before = ls_case_local(c, step - 1, out->first)->grads;
        if (memcmp(before, grads, count * ls_dtype_size(c->run.dtype)) == 0) {
            out->verdict = stale;
            return LS_OK;
        }
        for (size_t i = 0; i < count; i++) {
            reference[i] += ls_value(c->run.dtype, before, i);
        }
        if (close_to(c, grads, reference, limit)) {
            out->verdict = accumulated;
            return LS_OK;
        }
    }
    LS_TRY(local_reference(input, step, out->first, reference));
    for (size_t i = 0; i < count; i++) {
        reference[i] *= out->scale;
    }
    if (close_to(c, grads, reference, limit)) {
        out->verdict = scaled;
        return LS_OK;
    }
    for (size_t other = 0; other < c->devices; other++) {
        LS_TRY(local_reference(input, step, other, reference));
        if (other != out->first && close_to(c, grads, reference, limit)) {
            out->verdict = others;
            out->other = other;
            return LS_OK;
        }
    }
    return LS_OK;
}

static void inspect(const ls_case *c, size_t step, size_t device, const double *reference, double limit,
                    culprits *out) {
    const void *grads = ls_case_local(c, step, device)->grads;
    size_t tensor = 0;
    double distance = worst_tensor(c, grads, reference, &tensor);
    if (distance <= limit || out->wrong++ > 0) {
        return;
    }
    const ls_param *param = &c->model.params[tensor];
    out->first = device;
    out->tensor = tensor;
    out->distance = distance;
    out->scale = ls_scale_fit(c->run.dtype, grads, reference, param->offset, param->count);
}

ls_rc ls_diagnose_local(const ls_check_input *input, size_t step, double limit, char *cause, size_t size) {
    const ls_case *c = input->c;
    double *reference = ls_calloc(c->model.param_count, sizeof *reference, "a gradient");
    if (reference == NULL) {
        return LS_DEVICE_FAILED;
    }
    culprits found = {.verdict = unknown};
    ls_rc rc = LS_OK;
    for (size_t device = 0; device < c->devices && rc == LS_OK; device++) {
        rc = local_reference(input, step, device, reference);
        if (rc == LS_OK) {
            inspect(c, step, device, reference, limit, &found);
        }
    }
    if (rc == LS_OK && found.wrong > 0) {
        rc = local_reference(input, step, found.first, reference);
        rc = rc == LS_OK ? explain(input, step, limit, reference, &found) : rc;
    }
    free(reference);
    if (found.wrong == 0) {
        snprintf(cause, size, "every local gradient agrees with the oracle: the fault lies in the reduction");
        return rc;
    }
    char who[64], other[24] = "";
    if (found.wrong == c->devices && c->devices > 1) {
        snprintf(who, sizeof who, "the local gradients of all devices are off");
    } else {
        snprintf(who, sizeof who, "the local gradient of device %zu is off", found.first);
    }
    if (found.verdict == others) {
        snprintf(other, sizeof other, " %zu", found.other);
    }
    snprintf(cause, size, "%s before any communication: %s by %.3g (scale %.6g)%s%s", who,
             c->model.params[found.tensor].name, found.distance, found.scale, found.verdict, other);
    return rc;
}
