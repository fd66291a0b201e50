#include "impls/mutant_terms.h"

#include <pthread.h>

#include "gpu/kernels/kernels.h"
#include "reference/mutant_faults.h"

typedef enum fault {
    FAULT_NONE = 0,
    FAULT_DROP,   /* the last rank's term is missing */
    FAULT_DOUBLE, /* it is counted twice */
    FAULT_STALE,  /* it is that of the step before */
    FAULT_KEEP,   /* nothing is reduced: every rank, or the first device, keeps its own */
    FAULT_SHIFT,  /* the sum lands one element further on */
    FAULT_FLOAT16,
    FAULT_BFLOAT16,
} fault;

typedef enum extent {
    EXTENT_ALL = 0,
    EXTENT_LAST_TENSOR, /* of ready order */
    EXTENT_ITEM,        /* in step 1 + i the i-th item: elements, then tensors, then buckets */
} extent;

static const struct {
    const char *name;
    fault kind;
    extent extent;
} table[] = {
    {"rank_dropped", FAULT_DROP, EXTENT_ALL},         {"rank_twice", FAULT_DOUBLE, EXTENT_ALL},
    {"rank_stale", FAULT_STALE, EXTENT_ALL},          {"bias_left_local", FAULT_KEEP, EXTENT_LAST_TENSOR},
    {"unpack_shifted", FAULT_SHIFT, EXTENT_ALL},      {"silent_float16", FAULT_FLOAT16, EXTENT_ALL},
    {"silent_bfloat16", FAULT_BFLOAT16, EXTENT_ALL},  {"each_term_dropped", FAULT_DROP, EXTENT_ITEM},
    {"each_term_doubled", FAULT_DOUBLE, EXTENT_ITEM}, {"each_term_stale", FAULT_STALE, EXTENT_ITEM},
    {"each_sum_left_local", FAULT_KEEP, EXTENT_ITEM},
};

typedef struct range {
    size_t offset, count;
} range;

/* The fault switched on; the extent is for faulty_range. */
static fault active(extent *out) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (ls_mutant_is(table[i].name)) {
            *out = table[i].extent;
            return table[i].kind;
        }
    }
    return FAULT_NONE;
}

static range tensor_range(const ls_model *model, size_t position) {
    const ls_param *param = &model->params[model->ready[position]];
    return (range){param->offset, param->count};
}

static range item_range(const ls_mutant_place *place, size_t item) {
    const ls_model *model = place->model;
    if (item < model->param_count) {
        return (range){item, 1};
    }
    item -= model->param_count;
    if (item < model->param_tensors) {
        return tensor_range(model, item);
    }
    item -= model->param_tensors;
    if (place->plan != NULL && item < place->plan->count) {
        return (range){place->plan->buckets[item].offset, place->plan->buckets[item].count};
    }
    return (range){0, 0};
}

/* What the fault of this step touches of [offset, offset + count). */
static range faulty_range(const ls_mutant_place *place, extent scope, size_t offset, size_t count) {
    range r = {0, place->model->param_count};
    if (scope == EXTENT_LAST_TENSOR) {
        r = tensor_range(place->model, place->model->param_tensors - 1);
    } else if (scope == EXTENT_ITEM) {
        r = place->step > 0 ? item_range(place, (size_t)place->step - 1) : (range){0, 0};
    }
    size_t first = r.offset > offset ? r.offset : offset;
    size_t end = r.offset + r.count < offset + count ? r.offset + r.count : offset + count;
    return (range){first, end > first ? end - first : 0};
}

/* A term as it was put in, of this step and the one before. */
typedef struct memory {
    const void *flat;
    void *terms[2]; /* of even and odd steps; on the device of flat */
} memory;

enum { MOST_MEMORIES = 64 };

/* The memory of flat, made when it is first asked for and kept until the process ends. */
static ls_rc memory_of(const ls_mutant_place *place, const void *flat, memory *out) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static memory memories[MOST_MEMORIES];
    static size_t used = 0;
    (void)pthread_mutex_lock(&mutex);
    size_t i = 0;
    while (i < used && memories[i].flat != flat) {
        i++;
    }
    ls_rc rc = i < MOST_MEMORIES ? LS_OK : ls_fail(LS_DEVICE_FAILED, "a mutant has room for %d terms", MOST_MEMORIES);
    if (rc == LS_OK && i == used) {
        size_t bytes = place->model->param_count * ls_dtype_size(place->dtype);
        memories[i].flat = flat;
        for (size_t k = 0; k < 2 && rc == LS_OK; k++) {
            rc = ls_cuda_check(cudaMalloc(&memories[i].terms[k], bytes), "cudaMalloc", __FILE__, __LINE__);
        }
        used++;
    }
    if (rc == LS_OK) {
        *out = memories[i];
    }
    (void)pthread_mutex_unlock(&mutex);
    return rc;
}

static void *at(const ls_mutant_place *place, void *flat, size_t offset) {
    return (char *)flat + offset * ls_dtype_size(place->dtype);
}

static ls_rc copy(const ls_mutant_place *place, void *to, size_t to_offset, void *from, size_t from_offset,
                  size_t count) {
    LS_CUDA(cudaMemcpyAsync(at(place, to, to_offset), at(place, from, from_offset), count * ls_dtype_size(place->dtype),
                            cudaMemcpyDeviceToDevice, place->stream));
    return LS_OK;
}

ls_rc ls_mutant_term(const ls_mutant_place *place, size_t offset, size_t count, void *flat) {
    extent scope = EXTENT_ALL;
    fault kind = active(&scope);
    memory m;
    if (kind == FAULT_NONE) {
        return LS_OK;
    }
    LS_TRY(memory_of(place, flat, &m));
    LS_TRY(copy(place, m.terms[place->step % 2], offset, flat, offset, count));
    range r = faulty_range(place, scope, offset, count);
    void *faulty = at(place, flat, r.offset);
    if (r.count == 0 || !place->last) {
        return LS_OK;
    }
    if (kind == FAULT_DROP) {
        LS_CUDA(cudaMemsetAsync(faulty, 0, r.count * ls_dtype_size(place->dtype), place->stream));
    } else if (kind == FAULT_DOUBLE) {
        LS_CUDA(ls_kernel_scale(place->stream, place->dtype, r.count, 2, faulty));
    } else if (kind == FAULT_STALE && place->step > 0) {
        return copy(place, flat, r.offset, m.terms[(place->step + 1) % 2], r.offset, r.count);
    } else if (kind == FAULT_FLOAT16) {
        return ls_mutant_round(place->stream, place->dtype, faulty, r.count, 11, -14);
    } else if (kind == FAULT_BFLOAT16) {
        return ls_mutant_round(place->stream, place->dtype, faulty, r.count, 8, -126);
    }
    return LS_OK;
}

ls_rc ls_mutant_sum(const ls_mutant_place *place, size_t offset, size_t count, void *flat) {
    extent scope = EXTENT_ALL;
    fault kind = active(&scope);
    memory m;
    if (kind != FAULT_KEEP && kind != FAULT_SHIFT) {
        return LS_OK;
    }
    LS_TRY(memory_of(place, flat, &m));
    range r = faulty_range(place, scope, offset, count);
    if (r.count == 0) {
        return LS_OK;
    }
    if (kind == FAULT_KEEP) {
        return copy(place, flat, r.offset, m.terms[place->step % 2], r.offset, r.count);
    }
    void *spare = m.terms[(place->step + 1) % 2];
    LS_TRY(copy(place, spare, r.offset, flat, r.offset, r.count));
    return copy(place, flat, r.offset + 1, spare, r.offset, r.count - 1);
}
