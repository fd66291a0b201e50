/* A replica with data for tests: opened from a spec, fed with synthetic images or with chosen inputs. */
#ifndef LS_TESTS_REFERENCE_REPLICA_FIXTURE_H
#define LS_TESTS_REFERENCE_REPLICA_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/dataset.h"
#include "reference/replica_internal.h"

#define OK(call)      assert_int_equal((call), LS_OK)
#define CUDA_OK(call) assert_int_equal((call), cudaSuccess)

/* |value - expected| <= bound; a NaN fails. */
#define assert_near(value, expected, bound) assert_near_at((value), (expected), (bound), __FILE__, __LINE__)
static inline void assert_near_at(double value, double expected, double bound, const char *file, int line) {
    if (!(fabs(value - expected) <= bound)) {
        print_error("%s:%d: expected %.17g within %.3g, found %.17g\n", file, line, expected, bound, value);
        _fail(file, line);
    }
}

typedef struct fixture {
    ls_model model;
    ls_replica *replica;
    float *initial; /* flat */
} fixture;

static inline void fixture_open(fixture *f, const ls_model_spec *spec, ls_dtype dtype, size_t max_batch, bool capture) {
    char error[256];
    assert_int_equal(ls_model_resolve(spec, &f->model, error, sizeof error), 0);
    ls_replica_options options = {.dtype = dtype,
                                  .max_batch = max_batch,
                                  .normalize = spec->normalize,
                                  .lr = 0.01,
                                  .optimizer = {.momentum = 0.5},
                                  .capture = capture};
    OK(ls_replica_open(&f->model, &options, &f->replica));
    f->initial = calloc(f->model.param_count, sizeof *f->initial);
    assert_non_null(f->initial);
    ls_model_init(&f->model, 42, f->initial);
    OK(ls_replica_init(f->replica, f->initial));
}

static inline void fixture_close(fixture *f) {
    ls_replica_close(f->replica);
    free(f->initial);
}

/* count samples of data from first on. */
static inline ls_batch batch_of(const ls_dataset *data, size_t first, size_t count) {
    size_t features = data->channels * data->height * data->width;
    return (ls_batch){.count = count, .pixels = data->pixels + first * features, .labels = data->labels + first};
}

/* Forward, loss over denominator, backward. */
static inline void run_passes(fixture *f, const ls_batch *batch, double denominator, const ls_hooks *hooks) {
    OK(ls_replica_input(f->replica, batch));
    OK(ls_replica_forward(f->replica, hooks));
    OK(ls_replica_loss(f->replica, denominator));
    OK(ls_replica_backward(f->replica, hooks));
}

/* The gradient as doubles; the caller frees. */
static inline double *read_grads(fixture *f) {
    size_t count = f->model.param_count;
    double *out = calloc(count, sizeof *out);
    float *narrow = calloc(count, sizeof *narrow);
    assert_non_null(out);
    assert_non_null(narrow);
    if (ls_replica_dtype(f->replica) == LS_FLOAT64) {
        OK(ls_replica_read_grads(f->replica, out));
    } else {
        OK(ls_replica_read_grads(f->replica, narrow));
        for (size_t i = 0; i < count; i++) {
            out[i] = narrow[i];
        }
    }
    free(narrow);
    return out;
}

/* |values| of a parameter, and |a - b|. */
static inline double norm_of(const ls_param *param, const double *flat) {
    double sum = 0.0;
    for (size_t i = 0; i < param->count; i++) {
        sum += flat[param->offset + i] * flat[param->offset + i];
    }
    return sqrt(sum);
}

static inline double distance_of(const ls_param *param, const double *a, const double *b) {
    double sum = 0.0;
    for (size_t i = 0; i < param->count; i++) {
        double difference = a[param->offset + i] - b[param->offset + i];
        sum += difference * difference;
    }
    return sqrt(sum);
}

#endif
