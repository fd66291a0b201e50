/* Every kernel and all layer math declare exactly what they use: each is run in isolation (LOCKSTEP_VGPU_SCHED=isolate), where
 * all that is not declared is closed or holds other values in a second run. Sizes are odd, so that ranges end inside a block of
 * lanes and inside a page. tests/e2e/races.sh holds the list of calls here against gpu/kernels/kernels.h. */
#include "gpu/vgpu/internal.h"
#include "tests/gpu/device_values.h"

enum {
    BATCH = 19,
    CHANNELS = 3,
    HEIGHT = 7,
    WIDTH = 6,
    PLANE = HEIGHT * WIDTH,
    FEATURES = CHANNELS * PLANE,
    CLASSES = 5
};
enum { COUNT = 1003, SLOTS = 6, SLOT_BYTES = 64 * 1024 };

static cudaStream_t stream;
static void *slots[SLOTS]; /* random floats or doubles below 1, and room around them */
static size_t lanes;

/* Buffers of the dtype with values; kernels get a few bytes beyond their start, so that ranges share pages with other data. */
static void *values(size_t slot, ls_dtype dtype) {
    double random[SLOT_BYTES / sizeof(double)];
    float narrow[SLOT_BYTES / sizeof(double)];
    size_t count = SLOT_BYTES / sizeof(double);
    fill_random(random, count, slot + 1);
    for (size_t i = 0; i < count; i++) {
        narrow[i] = (float)random[i];
    }
    bool wide = dtype == LS_FLOAT64;
    const void *from = wide ? (const void *)random : (const void *)narrow;
    CUDA_OK(cudaMemcpy(slots[slot], from, wide ? sizeof random : sizeof narrow, cudaMemcpyHostToDevice));
    CUDA_OK(cudaStreamSynchronize(0));
    return (char *)slots[slot] + 64;
}

/* Small whole numbers. */
static void *integers(size_t slot, size_t element) {
    static unsigned char bytes[SLOT_BYTES];
    for (size_t i = 0; i < SLOT_BYTES; i++) {
        bytes[i] = i % element == 0 ? (unsigned char)(i / element % CLASSES) : 0;
    }
    CUDA_OK(cudaMemcpy(slots[slot], bytes, SLOT_BYTES, cudaMemcpyHostToDevice));
    CUDA_OK(cudaStreamSynchronize(0));
    return (char *)slots[slot] + 64;
}

/* A finding is the device's error, and its line is on stderr. */
#define RUN(launch)                             \
    do {                                        \
        CUDA_OK(launch);                        \
        CUDA_OK(cudaStreamSynchronize(stream)); \
    } while (0)

static void elementwise(void **state) {
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        ls_dtype d = value_dtypes[t];
        RUN(ls_kernel_relu_forward(stream, d, COUNT, values(0, d), values(1, d)));
        RUN(ls_kernel_relu_forward(stream, d, COUNT, values(0, d), (char *)slots[0] + 64)); /* in place */
        RUN(ls_kernel_relu_backward(stream, d, COUNT, values(0, d), values(1, d), values(2, d)));
        RUN(ls_kernel_scale(stream, d, COUNT, 0.5, values(0, d)));
        RUN(ls_kernel_add(stream, d, COUNT, values(0, d), values(1, d)));
        RUN(ls_kernel_positive(stream, d, COUNT, values(0, d), values(1, d)));
        RUN(ls_kernel_sum(stream, d, COUNT, values(0, d), values(1, d)));
    }
}

static void input_and_layout(void **state) {
    (void)state;
    ls_input_scale scale = {.channels = CHANNELS, .plane = PLANE, .mean = {.1f, .2f, .3f}, .std = {1, 2, 3}};
    for (size_t t = 0; t < 2; t++) {
        ls_dtype d = value_dtypes[t];
        RUN(ls_kernel_input(stream, d, lanes, BATCH, FEATURES, integers(0, 1), &scale, values(1, d)));
        RUN(ls_kernel_input_values(stream, d, lanes, BATCH, FEATURES, values(0, LS_FLOAT32), &scale, values(1, d)));
    }
    for (size_t element = 1; element <= 8; element *= element == 1 ? 4 : 2) {
        RUN(ls_kernel_from_lanes(stream, element, lanes, BATCH, FEATURES, integers(0, element), integers(1, element)));
        RUN(ls_kernel_to_lanes(stream, element, lanes, BATCH, FEATURES, integers(0, element), integers(1, element)));
    }
}

static void pooling(void **state) {
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        for (size_t kernel = 2; kernel < 5;
             kernel++) { /* strides below, at and above the kernel; some inputs in no window */
            for (size_t step = 1; step < 4; step++) {
                ls_dtype d = value_dtypes[t];
                RUN(ls_kernel_maxpool_forward(stream, d, lanes, BATCH, CHANNELS, HEIGHT, WIDTH, kernel, step,
                                              values(0, d), values(1, d), values(2, d)));
                RUN(ls_kernel_maxpool_backward(stream, d, lanes, BATCH, CHANNELS, HEIGHT, WIDTH, kernel, step,
                                               values(1, d), (uint8_t *)slots[2] + 64, values(0, d)));
                RUN(ls_kernel_avgpool_forward(stream, d, lanes, BATCH, CHANNELS, HEIGHT, WIDTH, kernel, step,
                                              values(0, d), values(1, d)));
                RUN(ls_kernel_avgpool_backward(stream, d, lanes, BATCH, CHANNELS, HEIGHT, WIDTH, kernel, step,
                                               values(1, d), values(0, d)));
            }
        }
    }
}

static void dropout_and_softmax(void **state) {
    (void)state;
    ls_dropout_key key = {.seed = 7, .step = 2, .stream = 1};
    for (size_t t = 0; t < 2; t++) {
        ls_dtype d = value_dtypes[t];
        RUN(ls_kernel_dropout_forward(stream, d, lanes, BATCH, FEATURES, 0.4, key, values(0, d), values(1, d),
                                      values(2, d)));
        ls_dropout_key live = {.seed = 7, .stream = 1, .live = values(3, LS_FLOAT64)};
        RUN(ls_kernel_dropout_forward(stream, d, lanes, BATCH, FEATURES, 0.4, live, values(0, d), values(1, d),
                                      values(2, d)));
        RUN(ls_kernel_dropout_backward(stream, d, COUNT, 0.4, (uint8_t *)slots[2] + 64, values(0, d), values(1, d)));
        RUN(ls_kernel_log_softmax_forward(stream, d, lanes, BATCH, CLASSES, values(0, d), values(1, d)));
        RUN(ls_kernel_log_softmax_backward(stream, d, lanes, BATCH, CLASSES, values(0, d), values(1, d), values(2, d)));
    }
}

static void normalization(void **state) {
    (void)state;
    ls_batchnorm_shape shape = {lanes, BATCH, CHANNELS, PLANE};
    for (size_t t = 0; t < 2; t++) {
        ls_dtype d = value_dtypes[t];
        double *mean = values(0, LS_FLOAT64);
        double *invstd = (double *)values(1, LS_FLOAT64) + 40;
        char *running = values(2, d); /* mean, far from it variance, and between them the counter */
        RUN(ls_kernel_batchnorm_statistics(stream, d, &shape, 1e-5, 0.1, values(3, d), mean, invstd, running,
                                           running + 512, (int64_t *)(void *)(running + 256)));
        RUN(ls_kernel_batchnorm_statistics(stream, d, &shape, 1e-5, 0.1, values(3, d), mean, invstd, NULL, NULL, NULL));
        RUN(ls_kernel_batchnorm_running(stream, d, CHANNELS, 2.0, running, running + 512, mean, invstd));
        RUN(ls_kernel_batchnorm_forward(stream, d, &shape, mean, invstd, running, running + 512, values(3, d),
                                        values(4, d)));
        RUN(ls_kernel_batchnorm_backward_params(stream, d, &shape, mean, invstd, values(3, d), values(4, d), mean + 64,
                                                running, running + 512));
        RUN(ls_kernel_batchnorm_backward_input(stream, d, &shape, mean, invstd, mean + 64, running, values(3, d),
                                               values(4, d), values(5, d)));
    }
}

static void losses(void **state) {
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        ls_dtype d = value_dtypes[t];
        int32_t *labels = integers(3, sizeof *labels);
        for (int gradient = 0; gradient < 2; gradient++) {
            RUN(ls_kernel_cross_entropy(stream, d, lanes, BATCH, CLASSES, values(0, d), labels, 0.1, BATCH,
                                        values(1, d), gradient ? values(2, d) : NULL));
            RUN(ls_kernel_mse(stream, d, lanes, BATCH, CLASSES, values(0, d), labels, NULL, BATCH, values(1, d),
                              gradient ? values(2, d) : NULL));
            RUN(ls_kernel_mse(stream, d, lanes, BATCH, CLASSES, values(0, d), NULL, values(4, LS_FLOAT32), BATCH,
                              values(1, d), gradient ? values(2, d) : NULL));
        }
        double *sum = values(5, LS_FLOAT64);
        double positive = 3.0;
        CUDA_OK(cudaMemcpy(sum, &positive, sizeof positive, cudaMemcpyHostToDevice));
        CUDA_OK(cudaStreamSynchronize(0));
        RUN(ls_kernel_rmse(stream, d, COUNT, sum, BATCH, values(0, d)));
        RUN(ls_kernel_accuracy(stream, d, lanes, BATCH, CLASSES, values(0, d), labels, values(1, d)));
    }
}

static void step_values(void **state) {
    (void)state;
    ls_step_values step = {.scalar = {0.1, 0.2, 0.3}, .mask_step = 4};
    RUN(ls_kernel_step_values(stream, &step, values(0, LS_FLOAT64)));
}

static void optimizers_of(const ls_step_values *live) {
    for (size_t t = 0; t < 2; t++) {
        ls_dtype d = value_dtypes[t];
        for (int i = 0; i < 8; i++) {
            ls_sgd sgd = {
                .lr = 0.1, .momentum = i & 1 ? 0.5 : 0, .nesterov = i >> 1 & 1, .first = i >> 2 & 1, .live = live};
            RUN(ls_kernel_sgd(stream, d, COUNT, values(0, d), values(1, d), i & 1 ? values(2, d) : NULL, &sgd));
            ls_rmsprop rmsprop = {
                .lr = 0.1, .alpha = 0.9, .eps = 2, .momentum = i & 1 ? 0.5 : 0, .centered = i >> 1 & 1, .live = live};
            RUN(ls_kernel_rmsprop(stream, d, COUNT, values(0, d), values(1, d), values(2, d),
                                  i & 2 ? values(3, d) : NULL, i & 1 ? values(4, d) : NULL, &rmsprop));
        }
        for (int amsgrad = 0; amsgrad < 2; amsgrad++) {
            ls_adam adam = {
                .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .amsgrad = amsgrad, .step = 3, .live = live};
            RUN(ls_kernel_adam(stream, d, COUNT, values(0, d), values(1, d), values(2, d), values(3, d),
                               amsgrad ? values(4, d) : NULL, &adam));
        }
    }
}

static void optimizers(void **state) {
    (void)state;
    optimizers_of(NULL);
    optimizers_of(values(5, LS_FLOAT64));
}

/* One channel, so that the columns of a window fit into a slot. */
static void columns_and_channels(void **state) {
    (void)state;
    ls_window window = {1, HEIGHT, WIDTH, 2, 3, 2, 1};
    ls_channels shape = {2, CHANNELS, 37};
    for (size_t t = 0; t < 2; t++) {
        ls_dtype d = value_dtypes[t];
        RUN(ls_kernel_im2col(stream, d, lanes, BATCH, &window, values(0, d), values(1, d)));
        RUN(ls_kernel_col2im(stream, d, lanes, BATCH, &window, values(0, d), values(1, d)));
        RUN(ls_kernel_channels_first(stream, d, &shape, values(0, d), values(1, d)));
        RUN(ls_kernel_channels_second(stream, d, &shape, values(0, d), values(2, d), values(1, d)));
        RUN(ls_kernel_channels_second(stream, d, &shape, values(0, d), NULL, values(1, d)));
        RUN(ls_kernel_bias(stream, d, &shape, values(0, d), values(1, d)));
        RUN(ls_kernel_channel_sums(stream, d, &shape, values(0, d), values(1, d)));
    }
}

static void layer_math(void **state) {
    (void)state;
    ls_conv_shape shape = {CHANNELS, HEIGHT, WIDTH, 4, 3, 3, 2, 1};
    ls_math *math = NULL;
    assert_int_equal(ls_math_open(stream, &math), LS_OK);
    for (size_t t = 0; t < 2; t++) {
        ls_dtype d = value_dtypes[t];
        for (size_t padding = 0; padding < 2; padding++) {
            ls_conv *conv = NULL;
            shape.padding = padding;
            assert_int_equal(ls_conv_open(math, &shape, d, BATCH, &conv), LS_OK);
            for (int bias = 0; bias < 2; bias++) {
                char *small = values(2, d); /* weights, and far from them the bias */
                RUN((cudaError_t)ls_conv_forward(conv, BATCH, values(0, d), small, bias ? small + 4096 : NULL,
                                                 values(1, d)));
                RUN((cudaError_t)ls_conv_backward_params(conv, BATCH, values(0, d), values(1, d), small,
                                                         bias ? small + 4096 : NULL));
            }
            RUN((cudaError_t)ls_conv_backward_input(conv, BATCH, values(1, d), values(2, d), values(0, d)));
            ls_conv_close(conv);
        }
        for (int relu = 0; relu < 2; relu++) {
            const ls_conv_pool pool = {.kernel = 2, .relu = relu, .index = values(4, d), .y = values(1, d)};
            ls_conv *conv = NULL;
            shape.padding = 1;
            assert_int_equal(ls_conv_open(math, &shape, d, BATCH, &conv), LS_OK);
            assert_int_equal(ls_conv_attach(conv, &pool), LS_OK);
            RUN((cudaError_t)ls_conv_forward(conv, BATCH, values(0, d), values(2, d), NULL, values(1, d)));
            RUN((cudaError_t)ls_conv_backward_params(conv, BATCH, values(0, d), values(3, d), values(2, d), NULL));
            RUN((cudaError_t)ls_conv_backward_input(conv, BATCH, values(3, d), values(2, d), values(0, d)));
            ls_conv_close(conv);
        }
        ls_linear *linear = NULL;
        assert_int_equal(ls_linear_open(math, FEATURES, CLASSES, d, BATCH, &linear), LS_OK);
        RUN((cudaError_t)ls_linear_forward(linear, BATCH, values(0, d), values(2, d), values(3, d), values(1, d)));
        RUN((cudaError_t)ls_linear_backward_params(linear, BATCH, values(0, d), values(1, d), values(2, d),
                                                   values(3, d)));
        RUN((cudaError_t)ls_linear_backward_input(linear, BATCH, values(1, d), values(2, d), values(0, d)));
        ls_linear_close(linear);
    }
    ls_math_close(math);
}

int main(void) {
    if (setenv("LOCKSTEP_VGPU_SCHED", "isolate", 1) != 0 || setenv("LOCKSTEP_VGPU_MEMORY", "16777216", 1) != 0 ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
        return 1;
    }
    lanes = ls_lanes();
    for (size_t i = 0; i < SLOTS; i++) {
        if (cudaMalloc(&slots[i], SLOT_BYTES) != cudaSuccess) {
            return 1;
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise),          cmocka_unit_test(input_and_layout), cmocka_unit_test(pooling),
        cmocka_unit_test(dropout_and_softmax),  cmocka_unit_test(normalization),    cmocka_unit_test(losses),
        cmocka_unit_test(columns_and_channels), cmocka_unit_test(step_values),      cmocka_unit_test(optimizers),
        cmocka_unit_test(layer_math),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
