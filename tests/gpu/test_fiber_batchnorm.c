/* Batchnorm's kernels at real block sizes, with 1 and 16 lanes: the statistics' sums go over a block each, by warps. */
#include "tests/gpu/fiber/case.h"
#include "tests/gpu/fiber/running_error.h"

static const ls_batchnorm_shape shapes[] = {
    {.batch = 1, .channels = 2, .plane = 3},
    {.batch = 21, .channels = 3, .plane = 7},
    {.batch = 16, .channels = 1, .plane = 130},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const double eps = 1e-5, momentum = 0.1;

static fiber_case new_case(const char *name, ls_dtype dtype, const ls_batchnorm_shape *s,
                           cudaError_t (*launch)(const fiber_case *c, bool fiber, void *const *at)) {
    unit = 0x1p-53; /* all is computed in double, and rounded to dtype at the end: narrowed */
    return (fiber_case){.name = name, .dtype = dtype, .lanes = s->lanes, .options = s, .launch = launch};
}

/* The value rounded to dtype once. */
static void expect_narrowed(const fiber_case *c, case_array *a, size_t i, num value) {
    double u = a->kind == CASE_VALUE ? unit_roundoff(c->dtype) : 0;
    a->expected[i] = value.v;
    a->bound[i] = num_bound(value) + u * (fabs(value.v) + value.e) + (u > 0 ? ldexp(1, u > 0x1p-50 ? -149 : -1074) : 0);
}

/* The element of channel ch at position p of sample n. */
static size_t at_of(const ls_batchnorm_shape *s, size_t n, size_t ch, size_t p) {
    return lane_place(s->lanes, s->channels * s->plane, n, ch * s->plane + p);
}

static size_t count_of(const ls_batchnorm_shape *s) {
    return lane_count(s->lanes, s->batch, s->channels * s->plane);
}

/* Values about an offset, so that the variance is smaller than the square of the mean; padded lanes hold other values. */
static void fill_x(case_array *x, ls_dtype dtype) {
    case_fill(x, 61);
    for (size_t i = 0; i < x->count; i++) {
        x->given[i] = rounded(dtype, 3 + x->given[i]);
    }
}

/* A gradient: zeros in padded lanes, as every layer leaves them. */
static void fill_gradient(case_array *dy, const ls_batchnorm_shape *s) {
    case_array random = *dy;
    random.given = host_doubles(dy->count);
    case_fill(&random, 62);
    for (size_t n = 0; n < s->batch; n++) {
        for (size_t f = 0; f < s->channels * s->plane; f++) {
            size_t i = lane_place(s->lanes, s->channels * s->plane, n, f);
            dy->given[i] = random.given[i];
        }
    }
    free(random.given);
}

static void fill_channels(case_array *a, uint64_t seed, double offset, ls_dtype dtype) {
    case_fill(a, seed);
    for (size_t i = 0; i < a->count; i++) {
        a->given[i] = a->kind == CASE_VALUE ? rounded(dtype, offset + a->given[i]) : offset + a->given[i];
    }
}

/* The sum of term(i) over a channel's samples and positions. */
static num channel_sum(const ls_batchnorm_shape *s, size_t ch, num (*term)(const void *data, size_t i, size_t ch),
                       const void *data) {
    size_t count = s->batch * s->plane;
    num *terms = host_alloc(count, sizeof *terms);
    for (size_t k = 0; k < count; k++) {
        terms[k] = term(data, at_of(s, k / s->plane, ch, k % s->plane), ch);
    }
    num sum = num_sum(terms, count);
    free(terms);
    return sum;
}

typedef struct sources {
    const case_array *x, *dy, *mean;
    num m;
} sources;

static num value_term(const void *data, size_t i, size_t ch) {
    (void)ch;
    return num_exact(((const sources *)data)->x->given[i]);
}

static num square_term(const void *data, size_t i, size_t ch) {
    (void)ch;
    const sources *s = data;
    num d = num_sub(num_exact(s->x->given[i]), s->m);
    return num_mul(d, d);
}

static num gradient_term(const void *data, size_t i, size_t ch) {
    (void)ch;
    return num_exact(((const sources *)data)->dy->given[i]);
}

static num product_term(const void *data, size_t i, size_t ch) {
    const sources *s = data;
    return num_mul(num_exact(s->dy->given[i]), num_sub(num_exact(s->x->given[i]), num_exact(s->mean->given[ch])));
}

static cudaError_t launch_statistics(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_batchnorm_statistics)(0, c->dtype, c->options, eps, momentum, at[0], at[1], at[2], at[3],
                                                  at[4], at[5]);
}

static num inverse_root(num variance) {
    return num_div(num_exact(1), num_sqrt(num_add(variance, num_exact(eps))));
}

static num blended(const case_array *old, size_t ch, num value) {
    num kept = num_mul(num_sub(num_exact(1), num_exact(momentum)), num_exact(old->given[ch]));
    return num_add(kept, num_mul(num_exact(momentum), value));
}

static void check_statistics(ls_dtype dtype, const ls_batchnorm_shape *s) {
    fiber_case c = new_case("batchnorm_statistics", dtype, s, launch_statistics);
    c.reduces = true;
    case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, count_of(s));
    case_array *mean = fiber_case_add(&c, "mean", CASE_OUT, CASE_DOUBLE, s->channels);
    case_array *invstd = fiber_case_add(&c, "invstd", CASE_OUT, CASE_DOUBLE, s->channels);
    case_array *running_mean = fiber_case_add(&c, "running_mean", CASE_INOUT, CASE_VALUE, s->channels);
    case_array *running_var = fiber_case_add(&c, "running_var", CASE_INOUT, CASE_VALUE, s->channels);
    case_array *tracked = fiber_case_add(&c, "tracked", CASE_INOUT, CASE_INT64, 1);
    fill_x(x, dtype);
    fill_channels(running_mean, 63, 1, dtype);
    fill_channels(running_var, 64, 2, dtype);
    tracked->given[0] = 11;
    tracked->expected[0] = 12;
    num count = num_exact((double)(s->batch * s->plane));
    for (size_t ch = 0; ch < s->channels; ch++) {
        sources from = {.x = x};
        from.m = num_div(channel_sum(s, ch, value_term, &from), count);
        num squares = channel_sum(s, ch, square_term, &from);
        expect_narrowed(&c, mean, ch, from.m);
        expect_narrowed(&c, invstd, ch, inverse_root(num_div(squares, count)));
        expect_narrowed(&c, running_mean, ch, blended(running_mean, ch, from.m));
        num unbiased = num_div(squares, num_sub(count, num_exact(1)));
        expect_narrowed(&c, running_var, ch, blended(running_var, ch, unbiased));
    }
    fiber_case_run(&c);
}

static cudaError_t launch_running(const fiber_case *c, bool fiber, void *const *at) {
    const ls_batchnorm_shape *s = c->options;
    return KERNEL(ls_kernel_batchnorm_running)(0, c->dtype, s->channels, eps, at[0], at[1], at[2], at[3]);
}

static void check_running(ls_dtype dtype, const ls_batchnorm_shape *s) {
    fiber_case c = new_case("batchnorm_running", dtype, s, launch_running);
    case_array *running_mean = fiber_case_add(&c, "running_mean", CASE_IN, CASE_VALUE, s->channels);
    case_array *running_var = fiber_case_add(&c, "running_var", CASE_IN, CASE_VALUE, s->channels);
    case_array *mean = fiber_case_add(&c, "mean", CASE_OUT, CASE_DOUBLE, s->channels);
    case_array *invstd = fiber_case_add(&c, "invstd", CASE_OUT, CASE_DOUBLE, s->channels);
    fill_channels(running_mean, 65, 0, dtype);
    fill_channels(running_var, 66, 2, dtype);
    for (size_t ch = 0; ch < s->channels; ch++) {
        mean->expected[ch] = running_mean->given[ch];
        expect_narrowed(&c, invstd, ch, inverse_root(num_exact(running_var->given[ch])));
    }
    fiber_case_run(&c);
}

static cudaError_t launch_forward(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_batchnorm_forward)(0, c->dtype, c->options, at[0], at[1], at[2], at[3], at[4], at[5]);
}

static void check_forward(ls_dtype dtype, const ls_batchnorm_shape *s) {
    fiber_case c = new_case("batchnorm_forward", dtype, s, launch_forward);
    case_array *mean = fiber_case_add(&c, "mean", CASE_IN, CASE_DOUBLE, s->channels);
    case_array *invstd = fiber_case_add(&c, "invstd", CASE_IN, CASE_DOUBLE, s->channels);
    case_array *weight = fiber_case_add(&c, "weight", CASE_IN, CASE_VALUE, s->channels);
    case_array *bias = fiber_case_add(&c, "bias", CASE_IN, CASE_VALUE, s->channels);
    case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, count_of(s));
    case_array *y = fiber_case_add(&c, "y", CASE_OUT, CASE_VALUE, count_of(s)); /* 0 in padded lanes */
    fill_channels(mean, 67, 3, dtype);
    fill_channels(invstd, 68, 2, dtype);
    fill_channels(weight, 69, 0, dtype);
    fill_channels(bias, 70, 0, dtype);
    fill_x(x, dtype);
    for (size_t k = 0; k < s->batch * s->channels * s->plane; k++) {
        size_t ch = k / s->plane % s->channels;
        size_t i = at_of(s, k / s->plane / s->channels, ch, k % s->plane);
        num factor = num_mul(num_exact(invstd->given[ch]), num_exact(weight->given[ch]));
        num centred = num_sub(num_exact(x->given[i]), num_exact(mean->given[ch]));
        expect_narrowed(&c, y, i, num_add(num_mul(centred, factor), num_exact(bias->given[ch])));
    }
    fiber_case_run(&c);
}

static cudaError_t launch_backward_params(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_batchnorm_backward_params)(0, c->dtype, c->options, at[0], at[1], at[2], at[3], at[4],
                                                       at[5], at[6]);
}

static void check_backward_params(ls_dtype dtype, const ls_batchnorm_shape *s) {
    fiber_case c = new_case("batchnorm_backward_params", dtype, s, launch_backward_params);
    c.reduces = true;
    case_array *mean = fiber_case_add(&c, "mean", CASE_IN, CASE_DOUBLE, s->channels);
    case_array *invstd = fiber_case_add(&c, "invstd", CASE_IN, CASE_DOUBLE, s->channels);
    case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, count_of(s));
    case_array *dy = fiber_case_add(&c, "dy", CASE_IN, CASE_VALUE, count_of(s));
    case_array *sums = fiber_case_add(&c, "sums", CASE_OUT, CASE_DOUBLE, 2 * s->channels);
    case_array *dweight = fiber_case_add(&c, "dweight", CASE_OUT, CASE_VALUE, s->channels);
    case_array *dbias = fiber_case_add(&c, "dbias", CASE_OUT, CASE_VALUE, s->channels);
    fill_channels(mean, 71, 3, dtype);
    fill_channels(invstd, 72, 2, dtype);
    fill_x(x, dtype);
    fill_gradient(dy, s);
    const sources from = {.x = x, .dy = dy, .mean = mean};
    for (size_t ch = 0; ch < s->channels; ch++) {
        num plain = channel_sum(s, ch, gradient_term, &from);
        num product = num_mul(channel_sum(s, ch, product_term, &from), num_exact(invstd->given[ch]));
        expect_narrowed(&c, sums, 2 * ch, plain);
        expect_narrowed(&c, sums, 2 * ch + 1, product);
        expect_narrowed(&c, dbias, ch, plain);
        expect_narrowed(&c, dweight, ch, product);
    }
    fiber_case_run(&c);
}

static cudaError_t launch_backward_input(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_batchnorm_backward_input)(0, c->dtype, c->options, at[0], at[1], at[2], at[3], at[4], at[5],
                                                      at[6]);
}

static void check_backward_input(ls_dtype dtype, const ls_batchnorm_shape *s) {
    fiber_case c = new_case("batchnorm_backward_input", dtype, s, launch_backward_input);
    case_array *mean = fiber_case_add(&c, "mean", CASE_IN, CASE_DOUBLE, s->channels);
    case_array *invstd = fiber_case_add(&c, "invstd", CASE_IN, CASE_DOUBLE, s->channels);
    case_array *sums = fiber_case_add(&c, "sums", CASE_IN, CASE_DOUBLE, 2 * s->channels);
    case_array *weight = fiber_case_add(&c, "weight", CASE_IN, CASE_VALUE, s->channels);
    case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, count_of(s));
    case_array *dy = fiber_case_add(&c, "dy", CASE_IN, CASE_VALUE, count_of(s));
    case_array *dx = fiber_case_add(&c, "dx", CASE_OUT, CASE_VALUE, count_of(s)); /* 0 in padded lanes */
    fill_channels(mean, 73, 3, dtype);
    fill_channels(invstd, 74, 2, dtype);
    fill_channels(sums, 75, 0, dtype);
    fill_channels(weight, 76, 0, dtype);
    fill_x(x, dtype);
    fill_gradient(dy, s);
    num count = num_exact((double)(s->batch * s->plane));
    for (size_t k = 0; k < s->batch * s->channels * s->plane; k++) {
        size_t ch = k / s->plane % s->channels;
        size_t i = at_of(s, k / s->plane / s->channels, ch, k % s->plane);
        num inverse = num_exact(invstd->given[ch]);
        num plain = num_div(num_exact(sums->given[2 * ch]), count);
        num slope = num_mul(num_div(num_exact(sums->given[2 * ch + 1]), count), inverse);
        num centred = num_sub(num_exact(x->given[i]), num_exact(mean->given[ch]));
        num inside = num_sub(num_sub(num_exact(dy->given[i]), plain), num_mul(centred, slope));
        expect_narrowed(&c, dx, i, num_mul(num_mul(inverse, num_exact(weight->given[ch])), inside));
    }
    fiber_case_run(&c);
}

static void for_shapes(void (*test)(ls_dtype dtype, const ls_batchnorm_shape *s)) {
    for (size_t k = 0; k < SHAPES * 4; k++) {
        ls_batchnorm_shape s = shapes[k / 4];
        s.lanes = k % 2 == 0 ? 1 : 16;
        test(value_dtypes[k / 2 % 2], &s);
    }
}

static void test_statistics(void **state) {
    (void)state;
    for_shapes(check_statistics);
    for_shapes(check_running);
}

static void test_forward(void **state) {
    (void)state;
    for_shapes(check_forward);
}

static void test_backward(void **state) {
    (void)state;
    for_shapes(check_backward_params);
    for_shapes(check_backward_input);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
