#include "verify/values.h"

#include <math.h>
#include <stdio.h>

ls_distance ls_distance_measure(ls_dtype dtype, const void *found, const double *reference, size_t first,
                                size_t count) {
    ls_distance d = {.worst = first};
    double squares = 0;
    double reference_squares = 0;
    for (size_t i = first; i < first + count; i++) {
        double error = fabs(ls_value(dtype, found, i) - reference[i]);
        if (isnan(error)) {
            error = INFINITY;
        }
        squares += error * error;
        reference_squares += reference[i] * reference[i];
        if (error > d.max) {
            d.max = error;
            d.worst = i;
        }
        d.reference_max = fmax(d.reference_max, fabs(reference[i]));
    }
    d.l2 = sqrt(squares);
    d.reference_l2 = sqrt(reference_squares);
    return d;
}

double ls_scale_fit(ls_dtype dtype, const void *found, const double *reference, size_t first, size_t count) {
    double product = 0;
    double square = 0;
    for (size_t i = first; i < first + count; i++) {
        product += ls_value(dtype, found, i) * reference[i];
        square += reference[i] * reference[i];
    }
    return product / square;
}

const ls_param *ls_param_at(const ls_model *model, size_t element) {
    for (size_t p = 0; p < model->param_tensors; p++) {
        const ls_param *param = &model->params[p];
        if (element >= param->offset && element < param->offset + param->count) {
            return param;
        }
    }
    return NULL;
}

void ls_element_name(const ls_model *model, size_t element, char *text, size_t size) {
    const ls_param *param = ls_param_at(model, element);
    if (param == NULL) {
        snprintf(text, size, "element %zu", element);
        return;
    }
    int used = snprintf(text, size, "%s[", param->name);
    size_t rest = element - param->offset;
    size_t block = param->count;
    for (size_t d = 0; d < param->dims && used > 0 && (size_t)used < size; d++) {
        block /= param->shape[d];
        used += snprintf(text + used, size - (size_t)used, "%zu%s", rest / block, d + 1 < param->dims ? "," : "]");
        rest %= block;
    }
}
