/* The kernels over flat arrays at real block sizes: relu, sign, scale, add, dropout's gradient, the root of a loss, the sum. */
#include "tests/gpu/fiber/case.h"
#include "tests/gpu/fiber/running_error.h"

static const size_t counts[] = {1, 77, 2061};
enum { COUNTS = sizeof counts / sizeof *counts };

static fiber_case new_case(const char *name, ls_dtype dtype, size_t n,
                           cudaError_t (*launch)(const fiber_case *c, bool fiber, void *const *at)) {
    unit = unit_roundoff(dtype);
    return (fiber_case){.name = name, .dtype = dtype, .lanes = 1, .n = n, .launch = launch};
}

static void for_counts(void (*test)(ls_dtype dtype, size_t n)) {
    for (size_t i = 0; i < COUNTS; i++) {
        test(LS_FLOAT32, counts[i]);
        test(LS_FLOAT64, counts[i]);
    }
}

static cudaError_t launch_relu_forward(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_relu_forward)(0, c->dtype, c->n, at[0], at[1]);
}

static cudaError_t launch_relu_backward(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_relu_backward)(0, c->dtype, c->n, at[0], at[1], at[2]);
}

static cudaError_t launch_positive(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_positive)(0, c->dtype, c->n, at[0], at[1]);
}

static void check_relu(ls_dtype dtype, size_t n) {
    fiber_case c = new_case("relu_forward", dtype, n, launch_relu_forward);
    case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, n);
    case_array *y = fiber_case_add(&c, "y", CASE_OUT, CASE_VALUE, n);
    case_fill(x, 1);
    x->given[n / 2] = NAN;
    for (size_t i = 0; i < n; i++) {
        y->expected[i] = x->given[i] <= 0 ? 0 : x->given[i];
    }
    fiber_case_run(&c);

    c = new_case("relu_backward", dtype, n, launch_relu_backward);
    x = fiber_case_add(&c, "y", CASE_IN, CASE_VALUE, n);
    case_array *dy = fiber_case_add(&c, "dy", CASE_IN, CASE_VALUE, n);
    case_array *dx = fiber_case_add(&c, "dx", CASE_OUT, CASE_VALUE, n);
    case_fill(x, 2);
    case_fill(dy, 3);
    x->given[n / 2] = 0;
    for (size_t i = 0; i < n; i++) {
        dx->expected[i] = x->given[i] <= 0 ? 0 : dy->given[i];
    }
    fiber_case_run(&c);

    c = new_case("positive", dtype, n, launch_positive);
    x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, n);
    case_array *positive = fiber_case_add(&c, "positive", CASE_OUT, CASE_BYTE, n);
    case_fill(x, 4);
    x->given[n / 2] = 0;
    for (size_t i = 0; i < n; i++) {
        positive->expected[i] = x->given[i] > 0 ? 1 : 0;
    }
    fiber_case_run(&c);
}

static void test_relu(void **state) {
    (void)state;
    for_counts(check_relu);
}

static cudaError_t launch_scale(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_scale)(0, c->dtype, c->n, 0.1, at[0]);
}

static cudaError_t launch_add(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_add)(0, c->dtype, c->n, at[0], at[1]);
}

/* One rounding each, of a result that double holds well enough to round from: exact. */
static void check_scale_and_add(ls_dtype dtype, size_t n) {
    fiber_case c = new_case("scale", dtype, n, launch_scale);
    case_array *y = fiber_case_add(&c, "y", CASE_INOUT, CASE_VALUE, n);
    case_fill(y, 5);
    for (size_t i = 0; i < n; i++) {
        y->expected[i] = rounded(dtype, y->given[i] * rounded(dtype, 0.1));
    }
    fiber_case_run(&c);

    c = new_case("add", dtype, n, launch_add);
    case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, n);
    y = fiber_case_add(&c, "y", CASE_INOUT, CASE_VALUE, n);
    case_fill(x, 6);
    case_fill(y, 7);
    for (size_t i = 0; i < n; i++) {
        y->expected[i] = rounded(dtype, y->given[i] + x->given[i]);
    }
    fiber_case_run(&c);
}

static void test_scale_and_add(void **state) {
    (void)state;
    for_counts(check_scale_and_add);
}

static cudaError_t launch_dropout_backward(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_dropout_backward)(0, c->dtype, c->n, 0.3, at[0], at[1], at[2]);
}

static void check_dropout_backward(ls_dtype dtype, size_t n) {
    fiber_case c = new_case("dropout_backward", dtype, n, launch_dropout_backward);
    case_array *keep = fiber_case_add(&c, "keep", CASE_IN, CASE_BYTE, n);
    case_array *dy = fiber_case_add(&c, "dy", CASE_IN, CASE_VALUE, n);
    case_array *dx = fiber_case_add(&c, "dx", CASE_OUT, CASE_VALUE, n);
    case_fill(dy, 8);
    for (size_t i = 0; i < n; i++) {
        keep->given[i] = i % 3 != 0 ? 1 : 0;
        dx->expected[i] = i % 3 != 0 ? rounded(dtype, dy->given[i] * rounded(dtype, 1 / (1 - 0.3))) : 0;
    }
    fiber_case_run(&c);
}

static void test_dropout_backward(void **state) {
    (void)state;
    for_counts(check_dropout_backward);
}

static cudaError_t launch_rmse(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_rmse)(0, c->dtype, c->n, at[0], 7.0, at[1]);
}

/* The scale is computed in double and rounded; then one product. */
static void check_rmse(ls_dtype dtype, size_t n) {
    fiber_case c = new_case("rmse", dtype, n, launch_rmse);
    case_array *sum = fiber_case_add(&c, "sum", CASE_IN, CASE_DOUBLE, 1);
    case_array *dy = fiber_case_add(&c, "dy", CASE_INOUT, CASE_VALUE, n);
    sum->given[0] = 3.25;
    case_fill(dy, 9);
    for (size_t i = 0; i < n; i++) {
        unit = 0x1p-53;
        num root = num_sqrt(num_div(num_exact(3.25), num_exact(7)));
        num scale = num_div(num_exact(1), num_mul(num_exact(2), root));
        unit = unit_roundoff(dtype);
        num value = num_mul(num_exact(dy->given[i]), num_rounded(scale.v, scale.e));
        dy->expected[i] = value.v;
        dy->bound[i] = num_bound(value);
    }
    fiber_case_run(&c);
}

static void test_rmse(void **state) {
    (void)state;
    for_counts(check_rmse);
}

static cudaError_t launch_sum(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_sum)(0, c->dtype, c->n, at[0], at[1]);
}

static void check_sum(ls_dtype dtype, size_t n) {
    fiber_case c = new_case("sum", dtype, n, launch_sum);
    c.reduces = true;
    case_array *values = fiber_case_add(&c, "values", CASE_IN, CASE_VALUE, n);
    case_array *sum = fiber_case_add(&c, "sum", CASE_OUT, CASE_DOUBLE, 1);
    case_fill(values, 10);
    unit = 0x1p-53; /* whatever the dtype */
    num *terms = host_alloc(n, sizeof *terms);
    for (size_t i = 0; i < n; i++) {
        terms[i] = num_exact(values->given[i]);
    }
    num total = num_sum(terms, n);
    sum->expected[0] = total.v;
    sum->bound[0] = num_bound(total);
    free(terms);
    fiber_case_run(&c);
}

static void test_sum(void **state) {
    (void)state;
    for_counts(check_sum);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relu), cmocka_unit_test(test_scale_and_add), cmocka_unit_test(test_dropout_backward),
        cmocka_unit_test(test_rmse), cmocka_unit_test(test_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
