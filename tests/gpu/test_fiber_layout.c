/* Inputs, changes of layout, pooling and dropout's masks at real block sizes, with 1 and 16 lanes. */
#include "tests/gpu/fiber/case.h"
#include "tests/gpu/fiber/running_error.h"

/* Of every kernel here. A batch that fills no block of lanes, and one that does. */
typedef struct shape {
    size_t batch, features;                         /* inputs, lanes, dropout */
    size_t channels, height, width, kernel, stride; /* pooling */
    size_t element;                                 /* bytes, of the changes of layout */
    ls_input_scale scale;
    ls_dropout_key key;
} shape;

static fiber_case new_case(const char *name, ls_dtype dtype, size_t lanes, const shape *s,
                           cudaError_t (*launch)(const fiber_case *c, bool fiber, void *const *at)) {
    unit = unit_roundoff(dtype);
    return (fiber_case){.name = name, .dtype = dtype, .lanes = lanes, .options = s, .launch = launch};
}

static cudaError_t launch_input(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    return KERNEL(ls_kernel_input)(0, c->dtype, c->lanes, s->batch, s->features, at[0], &s->scale, at[1]);
}

static cudaError_t launch_input_values(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    return KERNEL(ls_kernel_input_values)(0, c->dtype, c->lanes, s->batch, s->features, at[0], &s->scale, at[1]);
}

/* Exact: float32 step by step, as ToTensor and Normalize round. */
static void expect_input(const shape *s, size_t lanes, const case_array *from, case_array *x, float divisor) {
    for (size_t n = 0; n < s->batch; n++) {
        for (size_t f = 0; f < s->features; f++) {
            size_t channel = s->scale.channels > 1 ? f / s->scale.plane : 0;
            float value = (float)from->given[n * s->features + f] / divisor;
            if (s->scale.channels > 0) {
                value = (value - s->scale.mean[channel]) / s->scale.std[channel];
            }
            x->expected[lane_place(lanes, s->features, n, f)] = (double)value;
        }
    }
}

static void check_input(ls_dtype dtype, size_t lanes) {
    const ls_input_scale scales[] = {
        {.channels = 0},
        {.channels = 1, .mean = {0.1307f}, .std = {0.3081f}},
        {.channels = 3, .plane = 11, .mean = {0.5f, 0.4f, 0.3f}, .std = {0.2f, 0.3f, 0.25f}},
    };
    for (size_t k = 0; k < 3; k++) {
        const shape s = {.batch = 19 + 13 * (k % 2), .features = 33, .scale = scales[k]};
        size_t count = s.batch * s.features;
        fiber_case c = new_case("input", dtype, lanes, &s, launch_input);
        case_array *pixels = fiber_case_add(&c, "pixels", CASE_IN, CASE_BYTE, count);
        case_array *x = fiber_case_add(&c, "x", CASE_OUT, CASE_VALUE, lane_count(lanes, s.batch, s.features));
        for (size_t i = 0; i < count; i++) {
            pixels->given[i] = (double)(i * 37 % 256);
        }
        expect_input(&s, lanes, pixels, x, 255.0f);
        fiber_case_run(&c);

        c = new_case("input_values", dtype, lanes, &s, launch_input_values);
        case_array *values = fiber_case_add(&c, "values", CASE_IN, CASE_FLOAT, count);
        x = fiber_case_add(&c, "x", CASE_OUT, CASE_VALUE, lane_count(lanes, s.batch, s.features));
        case_fill(values, 31);
        expect_input(&s, lanes, values, x, 1.0f);
        fiber_case_run(&c);
    }
}

static void test_input(void **state) {
    (void)state;
    for_dtypes_lanes(check_input);
}

static cudaError_t launch_from_lanes(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    return KERNEL(ls_kernel_from_lanes)(0, s->element, c->lanes, s->batch, s->features, at[0], at[1]);
}

static cudaError_t launch_to_lanes(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    return KERNEL(ls_kernel_to_lanes)(0, s->element, c->lanes, s->batch, s->features, at[0], at[1]);
}

static void check_lanes(ls_dtype dtype, size_t lanes) {
    const case_kind kinds[] = {CASE_BYTE, CASE_VALUE};
    for (size_t k = 0; k < 4; k++) {
        case_kind kind = kinds[k % 2];
        const shape s = {
            .batch = k < 2 ? 33 : 5, .features = 27, .element = kind == CASE_BYTE ? 1 : ls_dtype_size(dtype)};
        size_t plain = s.batch * s.features, laned = lane_count(lanes, s.batch, s.features);
        fiber_case c = new_case("to_lanes", dtype, lanes, &s, launch_to_lanes);
        case_array *from = fiber_case_add(&c, "from", CASE_IN, kind, plain);
        case_array *to = fiber_case_add(&c, "to", CASE_OUT, kind, laned);
        for (size_t i = 0; i < plain; i++) {
            from->given[i] = (double)(i % 101 + 1);
            to->expected[lane_place(lanes, s.features, i / s.features, i % s.features)] = from->given[i];
        }
        fiber_case_run(&c);

        c = new_case("from_lanes", dtype, lanes, &s, launch_from_lanes);
        from = fiber_case_add(&c, "from", CASE_IN, kind, laned);
        to = fiber_case_add(&c, "to", CASE_OUT, kind, plain);
        for (size_t i = 0; i < laned; i++) {
            from->given[i] = (double)(i % 101 + 1);
        }
        for (size_t i = 0; i < plain; i++) {
            to->expected[i] = from->given[lane_place(lanes, s.features, i / s.features, i % s.features)];
        }
        fiber_case_run(&c);
    }
}

static void test_lanes(void **state) {
    (void)state;
    for_dtypes_lanes(check_lanes);
}

/* Kernels and strides that do and do not overlap, with the sizes that have code of their own. */
static const shape pools[] = {
    {.batch = 17, .channels = 3, .height = 7, .width = 9, .kernel = 2, .stride = 2},
    {.batch = 3, .channels = 2, .height = 11, .width = 8, .kernel = 3, .stride = 2},
    {.batch = 2, .channels = 1, .height = 9, .width = 10, .kernel = 4, .stride = 1},
    {.batch = 16, .channels = 1, .height = 8, .width = 8, .kernel = 2, .stride = 3},
};
enum { POOLS = sizeof pools / sizeof *pools };

static size_t out_size(size_t in, const shape *s) {
    return (in - s->kernel) / s->stride + 1;
}

static size_t in_count(const shape *s, size_t lanes) {
    return lane_count(lanes, s->batch, s->channels * s->height * s->width);
}

static size_t out_count(const shape *s, size_t lanes) {
    return lane_count(lanes, s->batch, s->channels * out_size(s->height, s) * out_size(s->width, s));
}

/* The element of the input that value k (row*kernel + column) of the window of element `out` is; padded lanes are lanes like
 * the others. */
static size_t window_place(const shape *s, size_t lanes, size_t out, size_t k) {
    size_t oh = out_size(s->height, s), ow = out_size(s->width, s);
    size_t lane = out % lanes, column = out / lanes % ow, row = out / lanes / ow % oh, plane = out / lanes / ow / oh;
    size_t y = row * s->stride + k / s->kernel, x = column * s->stride + k % s->kernel;
    return ((plane * s->height + y) * s->width + x) * lanes + lane;
}

static cudaError_t launch_maxpool_forward(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    return KERNEL(ls_kernel_maxpool_forward)(0, c->dtype, c->lanes, s->batch, s->channels, s->height, s->width,
                                             s->kernel, s->stride, at[0], at[1], at[2]);
}

static cudaError_t launch_maxpool_backward(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    return KERNEL(ls_kernel_maxpool_backward)(0, c->dtype, c->lanes, s->batch, s->channels, s->height, s->width,
                                              s->kernel, s->stride, at[0], at[1], at[2]);
}

static cudaError_t launch_avgpool_forward(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    return KERNEL(ls_kernel_avgpool_forward)(0, c->dtype, c->lanes, s->batch, s->channels, s->height, s->width,
                                             s->kernel, s->stride, at[0], at[1]);
}

static cudaError_t launch_avgpool_backward(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    return KERNEL(ls_kernel_avgpool_backward)(0, c->dtype, c->lanes, s->batch, s->channels, s->height, s->width,
                                              s->kernel, s->stride, at[0], at[1]);
}

/* Element i of a += value. */
static void accumulate(case_array *a, num *sums, size_t i, double value) {
    sums[i] = num_add(sums[i], num_exact(value));
    a->expected[i] = sums[i].v;
    a->bound[i] = num_bound(sums[i]);
}

static void check_maxpool(ls_dtype dtype, size_t lanes, const shape *s) {
    size_t in = in_count(s, lanes), out = out_count(s, lanes), window = s->kernel * s->kernel;
    fiber_case c = new_case("maxpool_forward", dtype, lanes, s, launch_maxpool_forward);
    case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, in);
    case_array *y = fiber_case_add(&c, "y", CASE_OUT, CASE_VALUE, out);
    case_array *index = fiber_case_add(&c, "index", CASE_OUT, CASE_BYTE, out);
    double *chosen = host_doubles(out);
    for (size_t i = 0; i < in; i++) {
        x->given[i] = (double)(i * 7919 % 13); /* with ties: the first wins */
    }
    for (size_t o = 0; o < out; o++) {
        size_t best = 0;
        for (size_t k = 1; k < window; k++) {
            best = x->given[window_place(s, lanes, o, k)] > x->given[window_place(s, lanes, o, best)] ? k : best;
        }
        chosen[o] = (double)best;
        index->expected[o] = (double)best;
        y->expected[o] = x->given[window_place(s, lanes, o, best)];
    }
    fiber_case_run(&c);

    c = new_case("maxpool_backward", dtype, lanes, s, launch_maxpool_backward);
    case_array *dy = fiber_case_add(&c, "dy", CASE_IN, CASE_VALUE, out);
    index = fiber_case_add(&c, "index", CASE_IN, CASE_BYTE, out);
    case_array *dx = fiber_case_add(&c, "dx", CASE_OUT, CASE_VALUE, in);
    num *sums = host_alloc(in, sizeof *sums);
    case_fill(dy, 41);
    for (size_t o = 0; o < out; o++) {
        index->given[o] = chosen[o];
        accumulate(dx, sums, window_place(s, lanes, o, (size_t)chosen[o]), dy->given[o]);
    }
    fiber_case_run(&c);
    free(sums);
    free(chosen);
}

static void check_avgpool(ls_dtype dtype, size_t lanes, const shape *s) {
    size_t in = in_count(s, lanes), out = out_count(s, lanes), window = s->kernel * s->kernel;
    fiber_case c = new_case("avgpool_forward", dtype, lanes, s, launch_avgpool_forward);
    case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, in);
    case_array *y = fiber_case_add(&c, "y", CASE_OUT, CASE_VALUE, out);
    case_fill(x, 42);
    for (size_t o = 0; o < out; o++) {
        num sum = num_exact(0);
        for (size_t k = 0; k < window; k++) {
            sum = num_add(sum, num_exact(x->given[window_place(s, lanes, o, k)]));
        }
        num mean = num_div(sum, num_exact((double)window));
        y->expected[o] = mean.v;
        y->bound[o] = num_bound(mean);
    }
    fiber_case_run(&c);

    c = new_case("avgpool_backward", dtype, lanes, s, launch_avgpool_backward);
    case_array *dy = fiber_case_add(&c, "dy", CASE_IN, CASE_VALUE, out);
    case_array *dx = fiber_case_add(&c, "dx", CASE_OUT, CASE_VALUE, in);
    num *sums = host_alloc(in, sizeof *sums);
    case_fill(dy, 43);
    for (size_t o = 0; o < out * window; o++) {
        accumulate(dx, sums, window_place(s, lanes, o / window, o % window), dy->given[o / window]);
    }
    for (size_t i = 0; i < in; i++) {
        num mean = num_div(sums[i], num_exact((double)window));
        dx->expected[i] = mean.v;
        dx->bound[i] = num_bound(mean);
    }
    fiber_case_run(&c);
    free(sums);
}

static void check_pools(ls_dtype dtype, size_t lanes) {
    for (size_t k = 0; k < POOLS; k++) {
        check_maxpool(dtype, lanes, &pools[k]);
        check_avgpool(dtype, lanes, &pools[k]);
    }
}

static void test_pools(void **state) {
    (void)state;
    for_dtypes_lanes(check_pools);
}

/* Philox4x32-10 as in the paper's listing (Salmon et al., SC 2011): word `which` of a counter under a key. */
static uint32_t philox_word(const uint32_t counter[4], uint64_t key, size_t which) {
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c[0], p1 = UINT64_C(0xCD9E8D57) * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k[0], (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c[3] ^ k[1],
                            (uint32_t)p0};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return c[which];
}

static const double drop = 0.25;

static cudaError_t launch_dropout_forward(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    ls_dropout_key key = s->key;
    if (c->arrays == 4) { /* the step is in device memory */
        key.live = at[3];
        key.step = ~key.step;
    }
    return KERNEL(ls_kernel_dropout_forward)(0, c->dtype, c->lanes, s->batch, s->features, drop, key, at[0], at[1],
                                             at[2]);
}

static void check_dropout_of(ls_dtype dtype, size_t lanes, bool live) {
    const shape s = {
        .batch = 21, .features = 30, .key = {.seed = UINT64_C(0x123456789ABCDEF0), .step = 5, .stream = 2}};
    size_t count = lane_count(lanes, s.batch, s.features), kept = 0;
    fiber_case c = new_case("dropout_forward", dtype, lanes, &s, launch_dropout_forward);
    case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, count);
    case_array *y = fiber_case_add(&c, "y", CASE_OUT, CASE_VALUE, count);
    case_array *keep = fiber_case_add(&c, "keep", CASE_OUT, CASE_BYTE, count);
    if (live) {
        ls_step_values step = {.mask_step = s.key.step};
        case_array *values = fiber_case_add(&c, "live", CASE_IN, CASE_DOUBLE, sizeof step / sizeof(double));
        memcpy(values->given, &step, sizeof step);
    }
    case_fill(x, 44);
    for (size_t n = 0; n < count / s.features; n++) { /* padded samples too */
        for (size_t f = 0; f < s.features; f++) {
            const uint32_t counter[4] = {(uint32_t)(f / 4), (uint32_t)n, s.key.step, s.key.stream};
            bool keeps = philox_word(counter, s.key.seed, f % 4) < 0xC0000000u; /* 1 - p = 3/4 */
            size_t i = lane_place(lanes, s.features, n, f);
            keep->expected[i] = keeps ? 1 : 0;
            y->expected[i] = keeps ? rounded(dtype, x->given[i] * rounded(dtype, 1 / (1 - drop))) : 0;
            kept += keeps ? 1 : 0;
        }
    }
    assert_in_range(kept, count * 2 / 3, count * 5 / 6);
    fiber_case_run(&c);
}

static void check_dropout(ls_dtype dtype, size_t lanes) {
    check_dropout_of(dtype, lanes, false);
    check_dropout_of(dtype, lanes, lanes == 1);
}

static void test_dropout_forward(void **state) {
    (void)state;
    for_dtypes_lanes(check_dropout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_input),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_dropout_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
