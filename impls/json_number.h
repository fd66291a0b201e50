/* Numbers in results. */
#ifndef LS_IMPLS_JSON_NUMBER_H
#define LS_IMPLS_JSON_NUMBER_H

#include <jansson.h>
#include <math.h>

/* A new reference. JSON has no infinity and no not-a-number, as which a training that diverges has its loss: they are null. NULL
 * when memory is short. */
static inline json_t *ls_json_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

#endif
