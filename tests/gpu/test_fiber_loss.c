/* Log-softmax, the losses and the accuracy at real block sizes, with 1 and 16 lanes, against their definitions in double with
 * bounds by running error analysis. */
#include "tests/gpu/fiber/case.h"
#include "tests/gpu/fiber/running_error.h"

enum { BATCH = 37, CLASSES = 7 };

static const size_t batches[] = {1, BATCH};

typedef struct loss {
    size_t batch;
    double smoothing, denominator;
    bool gradient, targets;
} loss;

static fiber_case new_case(const char *name, ls_dtype dtype, size_t lanes, const loss *o,
                           cudaError_t (*launch)(const fiber_case *c, bool fiber, void *const *at)) {
    unit = unit_roundoff(dtype);
    return (fiber_case){.name = name, .dtype = dtype, .lanes = lanes, .options = o, .launch = launch};
}

static void expect(case_array *a, size_t i, num value) {
    a->expected[i] = value.v;
    a->bound[i] = num_bound(value);
}

/* Logits between -8 and 8. */
static void fill_logits(case_array *a, uint64_t seed) {
    case_fill(a, seed);
    for (size_t i = 0; i < a->count; i++) {
        a->given[i] *= 8;
    }
}

/* What softmax is made of: the differences to the largest value, their exponentials' sum and its logarithm. */
typedef struct softmax {
    num below[CLASSES];
    num sum, log_sum;
} softmax;

static softmax softmax_of(const case_array *z, size_t lanes, size_t n) {
    softmax s;
    num terms[CLASSES];
    double top = -INFINITY;
    for (size_t c = 0; c < CLASSES; c++) {
        top = fmax(top, z->given[lane_place(lanes, CLASSES, n, c)]);
    }
    for (size_t c = 0; c < CLASSES; c++) {
        s.below[c] = num_sub(num_exact(z->given[lane_place(lanes, CLASSES, n, c)]), num_exact(top));
        terms[c] = num_exp(s.below[c]);
    }
    s.sum = num_sum(terms, CLASSES);
    s.log_sum = num_log(s.sum);
    return s;
}

static cudaError_t launch_log_softmax_forward(const fiber_case *c, bool fiber, void *const *at) {
    const loss *o = c->options;
    return KERNEL(ls_kernel_log_softmax_forward)(0, c->dtype, c->lanes, o->batch, CLASSES, at[0], at[1]);
}

static cudaError_t launch_log_softmax_backward(const fiber_case *c, bool fiber, void *const *at) {
    const loss *o = c->options;
    return KERNEL(ls_kernel_log_softmax_backward)(0, c->dtype, c->lanes, o->batch, CLASSES, at[0], at[1], at[2]);
}

static void check_log_softmax(ls_dtype dtype, size_t lanes) {
    for (size_t b = 0; b < 2; b++) {
        const loss o = {.batch = batches[b]};
        size_t count = lane_count(lanes, o.batch, CLASSES);
        fiber_case c = new_case("log_softmax_forward", dtype, lanes, &o, launch_log_softmax_forward);
        case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, count);
        case_array *y = fiber_case_add(&c, "y", CASE_OUT, CASE_VALUE, count);
        fill_logits(x, 51);
        for (size_t n = 0; n < count / CLASSES; n++) {
            softmax s = softmax_of(x, lanes, n);
            for (size_t f = 0; f < CLASSES; f++) {
                expect(y, lane_place(lanes, CLASSES, n, f), num_sub(s.below[f], s.log_sum));
            }
        }
        fiber_case_run(&c);

        c = new_case("log_softmax_backward", dtype, lanes, &o, launch_log_softmax_backward);
        y = fiber_case_add(&c, "y", CASE_IN, CASE_VALUE, count);
        case_array *dy = fiber_case_add(&c, "dy", CASE_IN, CASE_VALUE, count);
        case_array *dx = fiber_case_add(&c, "dx", CASE_OUT, CASE_VALUE, count);
        fill_logits(y, 52);
        case_fill(dy, 53);
        for (size_t n = 0; n < count / CLASSES; n++) {
            num sum = num_exact(0);
            for (size_t f = 0; f < CLASSES; f++) {
                sum = num_add(sum, num_exact(dy->given[lane_place(lanes, CLASSES, n, f)]));
            }
            for (size_t f = 0; f < CLASSES; f++) {
                size_t i = lane_place(lanes, CLASSES, n, f);
                num taken = num_mul(num_exp(num_exact(y->given[i])), sum);
                expect(dx, i, num_sub(num_exact(dy->given[i]), taken));
            }
        }
        fiber_case_run(&c);
    }
}

static void test_log_softmax(void **state) {
    (void)state;
    for_dtypes_lanes(check_log_softmax);
}

static void fill_labels(case_array *labels) {
    for (size_t n = 0; n < labels->count; n++) {
        labels->given[n] = (double)(n * 5 % CLASSES);
    }
}

static cudaError_t launch_cross_entropy(const fiber_case *c, bool fiber, void *const *at) {
    const loss *o = c->options;
    return KERNEL(ls_kernel_cross_entropy)(0, c->dtype, c->lanes, o->batch, CLASSES, at[0], at[1], o->smoothing,
                                           o->denominator, at[2], o->gradient ? at[3] : NULL);
}

static num hyper(double v) {
    return num_rounded(v, 0);
}

static void expect_cross_entropy(const loss *o, size_t lanes, fiber_case *c) {
    const case_array *z = &c->array[0], *labels = &c->array[1];
    num keep = hyper(1 - o->smoothing), share = hyper(o->smoothing / CLASSES);
    for (size_t n = 0; n < o->batch; n++) {
        softmax s = softmax_of(z, lanes, n);
        size_t label = (size_t)labels->given[n];
        num value = num_sub(s.log_sum, s.below[label]);
        if (o->smoothing > 0) {
            num all = num_exact(0);
            for (size_t f = 0; f < CLASSES; f++) {
                all = num_add(all, num_sub(s.log_sum, s.below[f]));
            }
            value = num_add(num_mul(keep, value), num_mul(share, all));
        }
        expect(&c->array[2], n, value);
        for (size_t f = 0; f < CLASSES && o->gradient; f++) {
            num target = num_add(num_mul(keep, num_exact(f == label ? 1 : 0)), share);
            num probability = num_div(num_exp(s.below[f]), s.sum);
            expect(&c->array[3], lane_place(lanes, CLASSES, n, f),
                   num_div(num_sub(probability, target), hyper(o->denominator)));
        }
    }
}

static void check_cross_entropy(ls_dtype dtype, size_t lanes) {
    const loss options[] = {
        {.batch = 1, .denominator = 1, .gradient = true},
        {.batch = BATCH, .denominator = 41, .gradient = true},
        {.batch = BATCH, .denominator = 41, .gradient = true, .smoothing = 0.1},
        {.batch = BATCH, .denominator = 41, .smoothing = 0.1},
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        const loss *o = &options[k];
        size_t count = lane_count(lanes, o->batch, CLASSES);
        fiber_case c = new_case("cross_entropy", dtype, lanes, o, launch_cross_entropy);
        case_array *logits = fiber_case_add(&c, "logits", CASE_IN, CASE_VALUE, count);
        case_array *labels = fiber_case_add(&c, "labels", CASE_IN, CASE_INT32, o->batch);
        (void)fiber_case_add(&c, "losses", CASE_OUT, CASE_VALUE, o->batch);
        if (o->gradient) {
            (void)fiber_case_add(&c, "dlogits", CASE_OUT, CASE_VALUE, count);
        }
        fill_logits(logits, 54);
        fill_labels(labels);
        expect_cross_entropy(o, lanes, &c);
        fiber_case_run(&c);
    }
}

static void test_cross_entropy(void **state) {
    (void)state;
    for_dtypes_lanes(check_cross_entropy);
}

static cudaError_t launch_mse(const fiber_case *c, bool fiber, void *const *at) {
    const loss *o = c->options;
    return KERNEL(ls_kernel_mse)(0, c->dtype, c->lanes, o->batch, CLASSES, at[0], o->targets ? NULL : at[1],
                                 o->targets ? at[1] : NULL, o->denominator, at[2], o->gradient ? at[3] : NULL);
}

static void check_mse(ls_dtype dtype, size_t lanes) {
    const loss options[] = {
        {.batch = 1, .denominator = 7, .gradient = true},
        {.batch = BATCH, .denominator = 259, .gradient = true},
        {.batch = BATCH, .denominator = 259, .gradient = true, .targets = true},
        {.batch = BATCH, .denominator = 259, .targets = true},
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        const loss *o = &options[k];
        size_t count = lane_count(lanes, o->batch, CLASSES);
        fiber_case c = new_case("mse", dtype, lanes, o, launch_mse);
        case_array *y = fiber_case_add(&c, "y", CASE_IN, CASE_VALUE, count);
        case_array *goal = o->targets ? fiber_case_add(&c, "targets", CASE_IN, CASE_FLOAT, o->batch * CLASSES)
                                      : fiber_case_add(&c, "labels", CASE_IN, CASE_INT32, o->batch);
        case_array *losses = fiber_case_add(&c, "losses", CASE_OUT, CASE_VALUE, o->batch);
        case_array *dy = o->gradient ? fiber_case_add(&c, "dy", CASE_OUT, CASE_VALUE, count) : NULL;
        case_fill(y, 55);
        if (o->targets) {
            case_fill(goal, 56);
        } else {
            fill_labels(goal);
        }
        for (size_t n = 0; n < o->batch; n++) {
            num sum = num_exact(0);
            for (size_t f = 0; f < CLASSES; f++) {
                size_t i = lane_place(lanes, CLASSES, n, f);
                double target = o->targets ? goal->given[n * CLASSES + f] : (double)((size_t)goal->given[n] == f);
                num difference = num_sub(num_exact(y->given[i]), num_exact(target));
                sum = num_add(sum, num_mul(difference, difference));
                if (dy != NULL) {
                    expect(dy, i, num_mul(hyper(2 / o->denominator), difference));
                }
            }
            expect(losses, n, sum);
        }
        fiber_case_run(&c);
    }
}

static void test_mse(void **state) {
    (void)state;
    for_dtypes_lanes(check_mse);
}

static cudaError_t launch_accuracy(const fiber_case *c, bool fiber, void *const *at) {
    const loss *o = c->options;
    return KERNEL(ls_kernel_accuracy)(0, c->dtype, c->lanes, o->batch, CLASSES, at[0], at[1], at[2]);
}

static void check_accuracy(ls_dtype dtype, size_t lanes) {
    for (size_t b = 0; b < 2; b++) {
        const loss o = {.batch = batches[b]};
        fiber_case c = new_case("accuracy", dtype, lanes, &o, launch_accuracy);
        case_array *logits = fiber_case_add(&c, "logits", CASE_IN, CASE_VALUE, lane_count(lanes, o.batch, CLASSES));
        case_array *labels = fiber_case_add(&c, "labels", CASE_IN, CASE_INT32, o.batch);
        case_array *correct = fiber_case_add(&c, "correct", CASE_OUT, CASE_BYTE, o.batch);
        for (size_t i = 0; i < logits->count; i++) {
            logits->given[i] = (double)(i * 7919 % 5); /* with ties: the first wins */
        }
        for (size_t n = 0; n < o.batch; n++) {
            size_t best = 0;
            for (size_t f = 1; f < CLASSES; f++) {
                double value = logits->given[lane_place(lanes, CLASSES, n, f)];
                best = value > logits->given[lane_place(lanes, CLASSES, n, best)] ? f : best;
            }
            labels->given[n] = (double)(n % 2 == 0 ? best : (best + 1) % CLASSES);
            correct->expected[n] = n % 2 == 0 ? 1 : 0;
        }
        fiber_case_run(&c);
    }
}

static void test_accuracy(void **state) {
    (void)state;
    for_dtypes_lanes(check_accuracy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_softmax),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_mse),
        cmocka_unit_test(test_accuracy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
