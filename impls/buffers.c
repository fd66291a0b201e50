#include "impls/buffers.h"

#include <stdlib.h>

#include "reference/replica_buffers.h"

/* What is moved: values as the replica has them, and as doubles for the sum. */
typedef struct copies {
    size_t count, tracked_count;
    void *values; /* of dtype */
    int64_t *tracked;
    double *sums; /* [count + tracked_count] */
} copies;

static void to_sums(const copies *c, ls_dtype dtype) {
    for (size_t i = 0; i < c->count; i++) {
        c->sums[i] = dtype == LS_FLOAT64 ? ((const double *)c->values)[i] : (double)((const float *)c->values)[i];
    }
    for (size_t i = 0; i < c->tracked_count; i++) {
        c->sums[c->count + i] = (double)c->tracked[i]; /* exact below 2^53 steps */
    }
}

static void from_sums(const copies *c, ls_dtype dtype) {
    for (size_t i = 0; i < c->count; i++) {
        if (dtype == LS_FLOAT64) {
            ((double *)c->values)[i] = c->sums[i];
        } else {
            ((float *)c->values)[i] = (float)c->sums[i];
        }
    }
    for (size_t i = 0; i < c->tracked_count; i++) {
        c->tracked[i] = (int64_t)c->sums[c->count + i];
    }
}

static ls_rc share(const ls_impl *impl, void *self, size_t rank, ls_replica *replica, const copies *c) {
    ls_dtype dtype = ls_replica_dtype(replica);
    if (rank == 0) {
        LS_TRY(ls_replica_read_buffers(replica, c->values, c->tracked));
        to_sums(c, dtype);
    }
    LS_TRY(impl->sum(self, c->sums, c->count + c->tracked_count));
    if (rank == 0) {
        return LS_OK;
    }
    from_sums(c, dtype);
    return ls_replica_write_buffers(replica, c->values, c->tracked);
}

ls_rc ls_buffers_share(const ls_impl *impl, void *self, size_t rank, size_t world) {
    size_t replicas;
    ls_replica *replica = impl->replica(self, 0, &replicas);
    const ls_model *model = ls_replica_model(replica);
    if (world == 1 || model->buffer_tensors == 0) {
        return LS_OK;
    }
    copies c = {.count = model->buffer_count, .tracked_count = model->tracked_count};
    c.values = ls_calloc(c.count, sizeof(double), "buffers");
    c.tracked = ls_calloc(c.tracked_count, sizeof *c.tracked, "buffers");
    c.sums = ls_calloc(c.count + c.tracked_count, sizeof *c.sums, "buffers");
    ls_rc rc = LS_DEVICE_FAILED;
    if (c.values != NULL && c.tracked != NULL && c.sums != NULL) {
        rc = share(impl, self, rank, replica, &c);
    }
    free(c.values);
    free(c.tracked);
    free(c.sums);
    return rc;
}
