/* Flat tensors of either dtype as numbers, and how far two of them lie apart. */
#ifndef LS_VERIFY_VALUES_H
#define LS_VERIFY_VALUES_H

#include "gpu/base/dtype.h"
#include "reference/model.h"

static inline double ls_value(ls_dtype dtype, const void *values, size_t index) {
    return dtype == LS_FLOAT64 ? ((const double *)values)[index] : (double)((const float *)values)[index];
}

/* Unit roundoff u, and half the distance of neighbouring denormals: the most that an underflowing operation loses. */
static inline double ls_roundoff(ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? 0x1p-53 : 0x1p-24;
}
static inline double ls_smallest(ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? 0x1p-1074 : 0x1p-149;
}
/* The smallest number of the normal range: what a device that flushes to zero may lose. */
static inline double ls_smallest_normal(ls_dtype dtype) {
    return dtype == LS_FLOAT64 ? 0x1p-1022 : 0x1p-126;
}

/* How values differ from a reference over count elements. Not-a-number anywhere makes every distance infinite. */
typedef struct ls_distance {
    double l2, reference_l2;   /* ||found - reference||, ||reference|| */
    double max, reference_max; /* largest |found - reference|, largest |reference| */
    size_t worst;              /* element of the largest difference, from first */
} ls_distance;

/* Elements [first, first + count) of found against reference[0 .. param_count). */
ls_distance ls_distance_measure(ls_dtype dtype, const void *found, const double *reference, size_t first, size_t count);

/* <found, reference>/<reference, reference>: 1 when found is right but for noise, W when a mean was forgotten. NaN when
 * the reference is zero. */
double ls_scale_fit(ls_dtype dtype, const void *found, const double *reference, size_t first, size_t count);

/* The parameter that an element of the flat buffer belongs to. */
const ls_param *ls_param_at(const ls_model *model, size_t element);

/* "fc1.weight[3,17]" */
void ls_element_name(const ls_model *model, size_t element, char *text, size_t size);

#endif
