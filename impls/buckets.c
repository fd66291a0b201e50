#include "impls/buckets.h"

void ls_bucket_plan_make(const ls_model *model, ls_dtype dtype, size_t cap_bytes, ls_bucket_plan *out) {
    size_t element = ls_dtype_size(dtype);
    *out = (ls_bucket_plan){0};
    bool open = false;
    for (size_t position = 0; position < model->param_tensors; position++) {
        const ls_param *param = &model->params[model->ready[position]];
        ls_bucket *bucket = &out->buckets[out->count];
        if (!open) {
            *bucket = (ls_bucket){.offset = param->offset, .first = position};
            open = true;
        }
        bucket->count += param->count;
        bucket->last = position;
        if (bucket->count * element >= cap_bytes) {
            out->count++;
            open = false;
        }
    }
    if (open) {
        out->count++;
    }
}
