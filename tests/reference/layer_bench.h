/* One layer on the device, for tests of kinds of layers. */
#ifndef LS_TESTS_REFERENCE_LAYER_BENCH_H
#define LS_TESTS_REFERENCE_LAYER_BENCH_H

#include "tests/gpu/device_values.h"

#include "reference/layers/layer.h"
#include "reference/replica.h"

#define OK(call) assert_int_equal((call), LS_OK)

/* One layer on the device, with everything that a pass wants. */
typedef struct bench {
    ls_layer layer;
    const ls_layer_ops *ops;
    ls_math *math;
    void *state;
    ls_layer_pass pass;
    size_t in, out; /* features */
    void *params[4], *running[2];
} bench;

static inline void bench_open(bench *b, const ls_layer *layer, ls_dtype dtype, size_t batch) {
    *b = (bench){.layer = *layer, .ops = ls_layer_ops_of(layer->kind)};
    b->in = ls_shape_features(layer->in);
    b->out = ls_shape_features(layer->out);
    OK(ls_math_open(0, &b->math));
    if (b->ops->open != NULL) {
        OK(b->ops->open(b->math, &b->layer, dtype, batch, &b->state));
    }
    b->pass = (ls_layer_pass){.dtype = dtype, .lanes = ls_lanes(), .batch = batch, .training = true, .layer = 3};
    b->pass.index = device_alloc(ls_activation_count(batch, b->out));
    b->pass.y = device_unwritten(dtype, ls_activation_count(batch, b->out));
    b->pass.dx = device_unwritten(dtype, ls_activation_count(batch, b->in));
}

static inline void bench_close(bench *b) {
    CUDA_OK(cudaDeviceSynchronize());
    if (b->ops->close != NULL) {
        b->ops->close(b->state);
    }
    ls_math_close(b->math);
    device_free(b->pass.index);
    device_free(b->pass.y);
    device_free(b->pass.dx);
    device_free((void *)b->pass.x);
    device_free((void *)b->pass.dy);
    for (size_t i = 0; i < 4; i++) {
        device_free(b->params[i]);
    }
    device_free(b->running[0]);
    device_free(b->running[1]);
    device_free(b->pass.tracked);
}

static inline void give(const bench *b, const void **where, const double *values, size_t features) {
    device_free((void *)*where);
    *where = device_activation(b->pass.dtype, values, b->pass.batch, features);
}

static inline void forward(bench *b, const double *x) {
    give(b, &b->pass.x, x, b->in);
    OK(b->ops->forward(b->state, &b->layer, &b->pass));
}

static inline void backward(bench *b, const double *dy) {
    give(b, &b->pass.dy, dy, b->out);
    if (b->ops->backward_params != NULL) {
        OK(b->ops->backward_params(b->state, &b->layer, &b->pass));
    }
    OK(b->ops->backward_input(b->state, &b->layer, &b->pass));
    assert_unused_lanes_zero(b->pass.dtype, b->pass.dx, b->pass.batch, b->in);
}

/* |found - expected| <= u*factor*(|expected| + scale) for every value. */
static inline void assert_values(const char *what, ls_dtype dtype, double *found, const double *expected, size_t count,
                                 double factor, double scale) {
    for (size_t i = 0; i < count; i++) {
        double bound = unit_roundoff(dtype) * factor * (fabs(expected[i]) + scale);
        if (!(fabs(found[i] - expected[i]) <= bound)) {
            fail_msg("%s, %s, value %zu: found %.17g, expected %.17g within %.3g", what, ls_dtype_name(dtype), i,
                     found[i], expected[i], bound);
        }
    }
    free(found);
}

static inline double *result(const bench *b, const void *memory, size_t features) {
    return host_activation(b->pass.dtype, memory, b->pass.batch, features);
}

/* Less than a block of lanes, one and a bit, two and a bit. */
static const size_t odd_batches[] = {1, 5, 17, 33};
enum { ODD_BATCHES = sizeof odd_batches / sizeof odd_batches[0] };

#endif
