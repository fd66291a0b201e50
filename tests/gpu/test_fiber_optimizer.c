/* The optimizers at real block sizes against their formulas in double (kernels.h), with bounds by running error analysis. */
#include "tests/gpu/fiber/case.h"
#include "tests/gpu/fiber/running_error.h"

static const size_t counts[] = {1, 77, 2061};
enum { COUNTS = sizeof counts / sizeof *counts };

static fiber_case new_case(const char *name, ls_dtype dtype, size_t n, const void *options,
                           cudaError_t (*launch)(const fiber_case *c, bool fiber, void *const *at)) {
    unit = unit_roundoff(dtype);
    return (fiber_case){.name = name, .dtype = dtype, .lanes = 1, .n = n, .options = options, .launch = launch};
}

static void expect(case_array *a, size_t i, num value) {
    a->expected[i] = value.v;
    a->bound[i] = num_bound(value);
}

/* A hyper-parameter: a double rounded to dtype. */
static num hyper(double v) {
    return num_rounded(v, 0);
}

static num given(const case_array *a, size_t i) {
    return num_exact(a->given[i]);
}

/* grad, negated to maximise, and the weight decay. */
static num decayed(const case_array *param, const case_array *grad, size_t i, int maximize, double weight_decay) {
    num g = num_exact(maximize ? -grad->given[i] : grad->given[i]);
    return num_add(g, num_mul(hyper(weight_decay), given(param, i)));
}

/* param, grad and up to `states` buffers of positive or random values. */
static void add_arrays(fiber_case *c, const char *const *states, size_t count, bool positive) {
    case_array *param = fiber_case_add(c, "param", CASE_INOUT, CASE_VALUE, c->n);
    case_array *grad = fiber_case_add(c, "grad", CASE_IN, CASE_VALUE, c->n);
    case_fill(param, 21);
    case_fill(grad, 22);
    for (size_t s = 0; s < count; s++) {
        case_array *state = fiber_case_add(c, states[s], CASE_INOUT, CASE_VALUE, c->n);
        case_fill(state, 23 + s);
        for (size_t i = 0; i < c->n && positive; i++) {
            state->given[i] = fabs(state->given[i]);
        }
    }
}

/* The scalars of a step as device memory; the launch that reads them is given none that are numbers. The rest of
 * ls_step_values follows them. */
static void add_live(fiber_case *c, double first, double second, double third) {
    enum { DOUBLES = sizeof(ls_step_values) / sizeof(double) };
    case_array *live = fiber_case_add(c, "live", CASE_IN, CASE_DOUBLE, DOUBLES);
    live->given[0] = first;
    live->given[1] = second;
    live->given[2] = third;
}

static const ls_step_values *live_of(const fiber_case *c, void *const *at) {
    size_t last = c->arrays - 1;
    return strcmp(c->array[last].name, "live") == 0 ? at[last] : NULL;
}

static cudaError_t launch_sgd(const fiber_case *c, bool fiber, void *const *at) {
    ls_sgd o = *(const ls_sgd *)c->options;
    o.live = live_of(c, at);
    o.lr = o.live != NULL ? NAN : o.lr;
    return KERNEL(ls_kernel_sgd)(0, c->dtype, c->n, at[0], at[1], at[2], &o);
}

static void check_sgd(ls_dtype dtype, size_t n, const ls_sgd *o, bool live) {
    static const char *const states[] = {"velocity"};
    fiber_case c = new_case("sgd", dtype, n, o, launch_sgd);
    add_arrays(&c, states, o->momentum != 0 ? 1 : 0, false);
    if (live) {
        add_live(&c, o->lr, 0, 0);
    }
    case_array *param = &c.array[0], *velocity = &c.array[2];
    for (size_t i = 0; i < n; i++) {
        num step = decayed(param, &c.array[1], i, o->maximize, o->weight_decay);
        if (o->momentum != 0) {
            num next = o->first ? step
                                : num_add(num_mul(hyper(o->momentum), given(velocity, i)),
                                          num_mul(hyper(1 - o->dampening), step));
            expect(velocity, i, next);
            step = o->nesterov ? num_add(step, num_mul(hyper(o->momentum), next)) : next;
        }
        expect(param, i, num_sub(given(param, i), num_mul(hyper(o->lr), step)));
    }
    fiber_case_run(&c);
}

static void test_sgd(void **state) {
    (void)state;
    const ls_sgd options[] = {
        {.lr = 0.1},
        {.lr = 0.1, .weight_decay = 0.01, .maximize = 1},
        {.lr = 0.1, .momentum = 0.9, .first = 1, .dampening = 0.3},
        {.lr = 0.1, .momentum = 0.9, .nesterov = 1, .weight_decay = 0.01, .first = 1},
        {.lr = 0.1, .momentum = 0.9, .dampening = 0.3},
        {.lr = 0.1, .momentum = 0.9, .nesterov = 1, .weight_decay = 0.01},
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        for (size_t i = 0; i < COUNTS; i++) {
            bool first = options[k].momentum != 0 && options[k].first; /* is never captured */
            check_sgd(LS_FLOAT32, counts[i], &options[k], false);
            check_sgd(LS_FLOAT64, counts[i], &options[k], false);
            check_sgd(LS_FLOAT32, counts[i], &options[k], !first && i == 1);
        }
    }
}

static cudaError_t launch_adam(const fiber_case *c, bool fiber, void *const *at) {
    ls_adam o = *(const ls_adam *)c->options;
    o.live = live_of(c, at);
    o.lr = o.live != NULL ? NAN : o.lr;
    return KERNEL(ls_kernel_adam)(0, c->dtype, c->n, at[0], at[1], at[2], at[3], o.amsgrad ? at[4] : NULL, &o);
}

static num larger(num a, num b) {
    return (num){fmax(a.v, b.v), fmax(a.e, b.e)}; /* no rounding of its own */
}

static void check_adam(ls_dtype dtype, size_t n, const ls_adam *o, bool live) {
    static const char *const states[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    fiber_case c = new_case("adam", dtype, n, o, launch_adam);
    add_arrays(&c, states, o->amsgrad ? 3 : 2, true);
    if (live) {
        double scalar[LS_STEP_SCALARS];
        ls_adam_live(o, scalar);
        add_live(&c, scalar[0], scalar[1], scalar[2]);
    }
    case_array *param = &c.array[0], *m = &c.array[2], *v = &c.array[3], *top = &c.array[4];
    double step = (double)o->step;
    for (size_t i = 0; i < n; i++) {
        num w = o->decoupled ? num_mul(given(param, i), hyper(1 - o->lr * o->weight_decay)) : given(param, i);
        num g = decayed(param, &c.array[1], i, o->maximize, o->decoupled ? 0 : o->weight_decay);
        num mean = num_add(num_mul(given(m, i), hyper(o->beta1)), num_mul(hyper(1 - o->beta1), g));
        num square = num_add(num_mul(given(v, i), hyper(o->beta2)), num_mul(num_mul(hyper(1 - o->beta2), g), g));
        expect(m, i, mean);
        expect(v, i, square);
        if (o->amsgrad) {
            square = larger(square, given(top, i));
            expect(top, i, square);
        }
        num root = num_div(num_sqrt(square), hyper(sqrt(1 - pow(o->beta2, step))));
        num size = hyper(-o->lr / (1 - pow(o->beta1, step)));
        expect(param, i, num_add(w, num_div(num_mul(size, mean), num_add(root, hyper(o->eps)))));
    }
    fiber_case_run(&c);
}

static void test_adam(void **state) {
    (void)state;
    const ls_adam options[] = {
        {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = 1},
        {.lr = 0.01,
         .beta1 = 0.9,
         .beta2 = 0.99,
         .eps = 1e-8,
         .weight_decay = 0.1,
         .amsgrad = 1,
         .maximize = 1,
         .step = 7},
        {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .decoupled = 1, .step = 3},
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        for (size_t i = 0; i < COUNTS; i++) {
            check_adam(LS_FLOAT32, counts[i], &options[k], false);
            check_adam(LS_FLOAT64, counts[i], &options[k], false);
            check_adam(LS_FLOAT32, counts[i], &options[k], i == 1);
        }
    }
}

static cudaError_t launch_rmsprop(const fiber_case *c, bool fiber, void *const *at) {
    ls_rmsprop o = *(const ls_rmsprop *)c->options;
    void *average = o.centered ? at[3] : NULL;
    void *velocity = o.momentum != 0 ? at[o.centered ? 4 : 3] : NULL;
    o.live = live_of(c, at);
    o.lr = o.live != NULL ? NAN : o.lr;
    return KERNEL(ls_kernel_rmsprop)(0, c->dtype, c->n, at[0], at[1], at[2], average, velocity, &o);
}

static void check_rmsprop(ls_dtype dtype, size_t n, const ls_rmsprop *o, bool live) {
    const char *const states[] = {"square_avg", o->centered ? "grad_avg" : "momentum_buffer", "momentum_buffer"};
    fiber_case c = new_case("rmsprop", dtype, n, o, launch_rmsprop);
    add_arrays(&c, states, 1 + (o->centered ? 1 : 0) + (o->momentum != 0 ? 1 : 0), true);
    if (live) {
        add_live(&c, o->lr, 0, 0);
    }
    case_array *param = &c.array[0], *v = &c.array[2];
    case_array *average = o->centered ? &c.array[3] : NULL;
    case_array *velocity = &c.array[o->centered ? 4 : 3];
    for (size_t i = 0; i < n; i++) {
        if (average != NULL) {
            average->given[i] = rounded(dtype, average->given[i] * 0.25); /* so that v - average^2 stays positive */
            v->given[i] = rounded(dtype, 0.5 + 0.5 * v->given[i]);
        }
        num g = decayed(param, &c.array[1], i, o->maximize, o->weight_decay);
        num square = num_add(num_mul(given(v, i), hyper(o->alpha)), num_mul(num_mul(hyper(1 - o->alpha), g), g));
        expect(v, i, square);
        if (average != NULL) {
            num mean = num_add(num_mul(given(average, i), hyper(o->alpha)), num_mul(hyper(1 - o->alpha), g));
            expect(average, i, mean);
            square = num_sub(square, num_mul(mean, mean));
        }
        num root = num_add(num_sqrt(square), hyper(o->eps));
        num step = num_div(num_mul(hyper(o->lr), g), root);
        if (o->momentum != 0) {
            num next = num_add(num_mul(given(velocity, i), hyper(o->momentum)), num_div(g, root));
            expect(velocity, i, next);
            step = num_mul(hyper(o->lr), next);
        }
        expect(param, i, num_sub(given(param, i), step));
    }
    fiber_case_run(&c);
}

static void test_rmsprop(void **state) {
    (void)state;
    const ls_rmsprop options[] = {
        {.lr = 0.01, .alpha = 0.99, .eps = 1e-8},
        {.lr = 0.01, .alpha = 0.9, .eps = 1e-8, .weight_decay = 0.1, .momentum = 0.9, .maximize = 1},
        {.lr = 0.01, .alpha = 0.99, .eps = 1e-8, .centered = 1},
        {.lr = 0.01, .alpha = 0.9, .eps = 1e-8, .momentum = 0.9, .centered = 1},
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        for (size_t i = 0; i < COUNTS; i++) {
            check_rmsprop(LS_FLOAT32, counts[i], &options[k], false);
            check_rmsprop(LS_FLOAT64, counts[i], &options[k], false);
            check_rmsprop(LS_FLOAT32, counts[i], &options[k], i == 1);
        }
    }
}

/* As four doubles: the counter holds the bits of one. */
static const double step_doubles[] = {0.1, -2.5, 3e-200, 0.75};

static cudaError_t launch_step_values(const fiber_case *c, bool fiber, void *const *at) {
    (void)c;
    ls_step_values values;
    _Static_assert(sizeof values == sizeof step_doubles, "scalars and a counter");
    memcpy(&values, step_doubles, sizeof values);
    return KERNEL(ls_kernel_step_values)(0, &values, at[0]);
}

static void test_step_values(void **state) {
    (void)state;
    fiber_case c = new_case("step_values", LS_FLOAT64, 1, NULL, launch_step_values);
    case_array *to = fiber_case_add(&c, "to", CASE_OUT, CASE_DOUBLE, 4);
    memcpy(to->expected, step_doubles, sizeof step_doubles);
    fiber_case_run(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_rmsprop),
        cmocka_unit_test(test_step_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
