/* Gradient buckets: views of the flat gradient buffer, in ready order, closed when their size reaches the cap (as PyTorch's
 * compute_bucket_assignment_by_size: a tensor is never split, so a bucket may exceed the cap). */
#ifndef LS_IMPLS_BUCKETS_H
#define LS_IMPLS_BUCKETS_H

#include "gpu/base/dtype.h"
#include "reference/model.h"

typedef struct ls_bucket {
    size_t offset, count; /* elements of the flat buffer */
    size_t first, last;   /* ready positions, inclusive */
} ls_bucket;

typedef struct ls_bucket_plan {
    size_t count;
    ls_bucket buckets[LS_MODEL_MAX_PARAMS];
} ls_bucket_plan;

void ls_bucket_plan_make(const ls_model *model, ls_dtype dtype, size_t cap_bytes, ls_bucket_plan *out);

#endif
