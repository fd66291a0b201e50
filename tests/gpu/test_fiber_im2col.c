/* The kernels of the im2col engine at real block sizes. */
#include "tests/gpu/fiber/case.h"
#include "tests/gpu/fiber/running_error.h"

typedef struct shape {
    size_t batch;
    ls_window w;
} shape;

/* Strides that leave inputs out, windows that lie in the padding, kernels that are not square. */
static const shape shapes[] = {
    {17, {2, 5, 4, 3, 2, 1, 1}},
    {3, {1, 7, 8, 2, 3, 2, 0}},
    {1, {3, 3, 3, 1, 1, 2, 1}},
    {16, {1, 4, 4, 2, 2, 3, 0}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static size_t out_size(size_t in, size_t kernel, const ls_window *w) {
    return (in + 2 * w->padding - kernel) / w->stride + 1;
}

static cudaError_t launch_im2col(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    return KERNEL(ls_kernel_im2col)(0, c->dtype, c->lanes, s->batch, &s->w, at[0], at[1]);
}

static cudaError_t launch_col2im(const fiber_case *c, bool fiber, void *const *at) {
    const shape *s = c->options;
    return KERNEL(ls_kernel_col2im)(0, c->dtype, c->lanes, s->batch, &s->w, at[0], at[1]);
}

/* The element of the image that element i of the columns is a copy of; SIZE_MAX in the padding. */
static size_t source_of(const shape *s, size_t lanes, size_t i) {
    const ls_window *w = &s->w;
    size_t oh = out_size(w->height, w->kernel_height, w), ow = out_size(w->width, w->kernel_width, w);
    size_t blocks = (s->batch + lanes - 1) / lanes;
    size_t lane = i % lanes, ox = i / lanes % ow, oy = i / lanes / ow % oh, block = i / lanes / ow / oh % blocks;
    size_t tap = i / lanes / ow / oh / blocks;
    size_t kx = tap % w->kernel_width, ky = tap / w->kernel_width % w->kernel_height;
    size_t channel = tap / w->kernel_width / w->kernel_height;
    size_t iy = oy * w->stride + ky, ix = ox * w->stride + kx;
    if (iy < w->padding || iy >= w->height + w->padding || ix < w->padding || ix >= w->width + w->padding) {
        return SIZE_MAX;
    }
    return (((block * w->channels + channel) * w->height + iy - w->padding) * w->width + ix - w->padding) * lanes +
           lane;
}

static void check_windows(ls_dtype dtype, size_t lanes) {
    unit = unit_roundoff(dtype);
    for (size_t k = 0; k < SHAPES; k++) {
        const shape *s = &shapes[k];
        const ls_window *w = &s->w;
        size_t pixels = out_size(w->height, w->kernel_height, w) * out_size(w->width, w->kernel_width, w);
        size_t image = lane_count(lanes, s->batch, w->channels * w->height * w->width);
        size_t values = lane_count(lanes, s->batch, w->channels * w->kernel_height * w->kernel_width * pixels);
        fiber_case c = {.name = "im2col", .dtype = dtype, .lanes = lanes, .options = s, .launch = launch_im2col};
        case_array *x = fiber_case_add(&c, "x", CASE_IN, CASE_VALUE, image);
        case_array *columns = fiber_case_add(&c, "columns", CASE_OUT, CASE_VALUE, values);
        case_fill(x, 71);
        for (size_t i = 0; i < values; i++) {
            size_t from = source_of(s, lanes, i);
            columns->expected[i] = from == SIZE_MAX ? 0 : x->given[from];
        }
        fiber_case_run(&c);

        c = (fiber_case){.name = "col2im", .dtype = dtype, .lanes = lanes, .options = s, .launch = launch_col2im};
        columns = fiber_case_add(&c, "columns", CASE_IN, CASE_VALUE, values);
        case_array *dx = fiber_case_add(&c, "dx", CASE_OUT, CASE_VALUE, image);
        num *sums = host_alloc(image, sizeof *sums);
        case_fill(columns, 72);
        for (size_t i = 0; i < values; i++) {
            size_t to = source_of(s, lanes, i);
            if (to != SIZE_MAX) {
                sums[to] = num_add(sums[to], num_exact(columns->given[i]));
                dx->expected[to] = sums[to].v;
                dx->bound[to] = num_bound(sums[to]);
            }
        }
        fiber_case_run(&c);
        free(sums);
    }
}

static void test_windows(void **state) {
    (void)state;
    for_dtypes_lanes(check_windows);
}

static cudaError_t launch_first(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_channels_first)(0, c->dtype, c->options, at[0], at[1]);
}

static cudaError_t launch_second(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_channels_second)(0, c->dtype, c->options, at[0], at[1], at[2]);
}

static cudaError_t launch_second_plain(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_channels_second)(0, c->dtype, c->options, at[0], NULL, at[1]);
}

static cudaError_t launch_bias(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_bias)(0, c->dtype, c->options, at[0], at[1]);
}

static cudaError_t launch_sums(const fiber_case *c, bool fiber, void *const *at) {
    return KERNEL(ls_kernel_channel_sums)(0, c->dtype, c->options, at[0], at[1]);
}

static const ls_channels channel_shapes[] = {{5, 3, 7}, {1, 4, 130}, {33, 2, 1}};

static fiber_case new_case(const char *name, ls_dtype dtype, const ls_channels *s,
                           cudaError_t (*launch)(const fiber_case *c, bool fiber, void *const *at)) {
    return (fiber_case){.name = name, .dtype = dtype, .lanes = 1, .options = s, .launch = launch};
}

/* Exact: copies, and one addition of two numbers of dtype rounded once. */
static void check_turns(ls_dtype dtype, const ls_channels *s) {
    size_t count = s->blocks * s->channels * s->plane;
    fiber_case c = new_case("channels_first", dtype, s, launch_first);
    case_array *from = fiber_case_add(&c, "from", CASE_IN, CASE_VALUE, count);
    case_array *to = fiber_case_add(&c, "to", CASE_OUT, CASE_VALUE, count);
    case_fill(from, 73);
    for (size_t i = 0; i < count; i++) {
        size_t channel = i / s->plane % s->channels, block = i / s->plane / s->channels;
        to->expected[(channel * s->blocks + block) * s->plane + i % s->plane] = from->given[i];
    }
    fiber_case_run(&c);

    for (size_t with_bias = 0; with_bias < 2; with_bias++) {
        c = new_case("channels_second", dtype, s, with_bias ? launch_second : launch_second_plain);
        from = fiber_case_add(&c, "from", CASE_IN, CASE_VALUE, count);
        case_array *bias = with_bias ? fiber_case_add(&c, "bias", CASE_IN, CASE_VALUE, s->channels) : NULL;
        to = fiber_case_add(&c, "to", CASE_OUT, CASE_VALUE, count);
        case_fill(from, 74);
        if (with_bias) {
            case_fill(bias, 75);
        }
        for (size_t i = 0; i < count; i++) {
            size_t channel = i / s->plane % s->channels, block = i / s->plane / s->channels;
            double value = from->given[(channel * s->blocks + block) * s->plane + i % s->plane];
            to->expected[i] = with_bias ? rounded(dtype, value + bias->given[channel]) : value;
        }
        fiber_case_run(&c);
    }

    c = new_case("bias", dtype, s, launch_bias);
    case_array *bias = fiber_case_add(&c, "bias", CASE_IN, CASE_VALUE, s->channels);
    case_array *y = fiber_case_add(&c, "y", CASE_INOUT, CASE_VALUE, count);
    case_fill(bias, 76);
    case_fill(y, 77);
    for (size_t i = 0; i < count; i++) {
        y->expected[i] = rounded(dtype, y->given[i] + bias->given[i / s->plane % s->channels]);
    }
    fiber_case_run(&c);
}

/* Sums in double in any order (unit 2^-53), rounded to dtype once. */
static void check_sums(ls_dtype dtype, const ls_channels *s) {
    size_t terms = s->blocks * s->plane;
    fiber_case c = new_case("channel_sums", dtype, s, launch_sums);
    c.reduces = true;
    case_array *values = fiber_case_add(&c, "values", CASE_IN, CASE_VALUE, terms * s->channels);
    case_array *sums = fiber_case_add(&c, "sums", CASE_OUT, CASE_VALUE, s->channels);
    case_fill(values, 78);
    num *term = host_alloc(terms, sizeof *term);
    unit = 0x1p-53;
    for (size_t channel = 0; channel < s->channels; channel++) {
        for (size_t i = 0; i < terms; i++) {
            size_t at = (i / s->plane * s->channels + channel) * s->plane + i % s->plane;
            term[i] = num_exact(values->given[at]);
        }
        num sum = num_sum(term, terms);
        sums->expected[channel] = sum.v;
        sums->bound[channel] =
            num_bound(sum) + (dtype == LS_FLOAT32 ? 0x1p-24 * (fabs(sum.v) + num_bound(sum)) + 0x1p-149 : 0);
    }
    fiber_case_run(&c);
    free(term);
}

static void test_channels(void **state) {
    (void)state;
    for (size_t d = 0; d < 2; d++) {
        for (size_t k = 0; k < sizeof channel_shapes / sizeof *channel_shapes; k++) {
            check_turns(value_dtypes[d], &channel_shapes[k]);
            check_sums(value_dtypes[d], &channel_shapes[k]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
