/* Gradients in float64 against values that PyTorch 1.13 gave and against finite differences; float32 against float64. */
#include "replica_fixture.h"

/* Everything in double, other orders of summation: correct code measures below 1e-15 for a tensor, and n terms of u = 1.1e-16
 * bound it by n*u; 256 images of at most 576 terms a value give 1.6e-11 at worst and 5e-14 with the sqrt(n) law. */
static const double golden_bound = 1e-12;

enum { GOLDEN_BATCH = 256, FEATURES = 784 };

typedef struct golden_param {
    const char *name;
    double norm;
    double first; /* 0: not known */
} golden_param;

static const golden_param golden_params[] = {
    {"conv1.weight", 2.698988734793331e-02, 1.555782084678967e-03},  {"conv1.bias", 2.895298856908900e-03, 0},
    {"conv2.weight", 7.159251949967925e-02, -9.714525008432584e-04}, {"conv2.bias", 6.121936219391873e-03, 0},
    {"fc1.weight", 7.612194917328327e-02, 1.015171124247311e-04},    {"fc1.bias", 9.499289138428253e-03, 0},
    {"fc2.weight", 3.227662428047991e-02, -3.214639896452376e-04},   {"fc2.bias", 2.863981382287957e-02, 0},
};

/* The golden inputs are normalised in double; the replica normalises in float32 as training does. So give it its labels
 * through a batch and put the inputs in their place. */
static void give_golden_inputs(fixture *f) {
    uint8_t *pixels = calloc(GOLDEN_BATCH, FEATURES);
    int32_t *labels = calloc(GOLDEN_BATCH, sizeof *labels);
    double *x = calloc(GOLDEN_BATCH * FEATURES, sizeof *x);
    assert_true(pixels != NULL && labels != NULL && x != NULL);
    for (size_t i = 0; i < GOLDEN_BATCH; i++) {
        labels[i] = (int32_t)(i % 10);
        for (size_t at = 0; at < FEATURES; at++) {
            size_t r = at / 28;
            size_t c = at % 28;
            pixels[i * FEATURES + at] = (uint8_t)((7 * i + 13 * r + 29 * c + 11 * ((r * c) % 17)) % 256);
            x[i * FEATURES + at] = (pixels[i * FEATURES + at] / 255.0 - 0.1307) / 0.3081;
        }
    }
    ls_batch batch = {.count = GOLDEN_BATCH, .pixels = pixels, .labels = labels};
    OK(ls_replica_input(f->replica, &batch));
    cudaStream_t stream = ls_replica_stream(f->replica);
    void *device = NULL;
    size_t bytes = GOLDEN_BATCH * FEATURES * sizeof *x;
    CUDA_OK(cudaMalloc(&device, bytes));
    CUDA_OK(cudaMemcpyAsync(device, x, bytes, cudaMemcpyHostToDevice, stream));
    CUDA_OK(ls_kernel_to_lanes(stream, sizeof *x, ls_lanes(), GOLDEN_BATCH, FEATURES, device, f->replica->slots[0]));
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaFree(device));
    free(pixels);
    free(labels);
    free(x);
}

static void test_gradient_equals_torch(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, ls_zoo_find("seed-cnn"), LS_FLOAT64, GOLDEN_BATCH, false);
    give_golden_inputs(&f);
    OK(ls_replica_forward(f.replica, NULL));
    OK(ls_replica_loss(f.replica, GOLDEN_BATCH));
    OK(ls_replica_backward(f.replica, NULL));
    double sum = 0.0;
    OK(ls_replica_read_loss_sum(f.replica, &sum));
    assert_near(sum / GOLDEN_BATCH, 2.306746695548234, golden_bound);
    double *grads = read_grads(&f);
    for (size_t p = 0; p < f.model.param_tensors; p++) {
        const ls_param *param = &f.model.params[p];
        assert_string_equal(param->name, golden_params[p].name);
        double norm = norm_of(param, grads);
        assert_near(norm / golden_params[p].norm, 1.0, golden_bound);
        if (golden_params[p].first != 0) {
            assert_near(grads[param->offset], golden_params[p].first, golden_bound * norm);
        }
    }
    /* rows of a softmax sum to 1, so these gradients sum to 0 over the classes */
    const ls_param *bias = &f.model.params[7];
    double total = 0.0;
    for (size_t i = 0; i < bias->count; i++) {
        total += grads[bias->offset + i];
    }
    assert_near(total, 0.0, golden_bound);
    free(grads);
    fixture_close(&f);
}

static void test_three_steps_equal_torch(void **state) {
    (void)state;
    const double losses[] = {2.306746695548234, 2.306609866695431, 2.306400886156046};
    const double norms[] = {5.495754189750806, 5.495709596206702, 5.495659990534741};
    fixture f;
    fixture_open(&f, ls_zoo_find("seed-cnn"), LS_FLOAT64, GOLDEN_BATCH, false);
    give_golden_inputs(&f);
    double *params = calloc(f.model.param_count, sizeof *params);
    assert_non_null(params);
    ls_param all = {.count = f.model.param_count};
    for (int step = 0; step < 3; step++) {
        double sum = 0.0;
        OK(ls_replica_forward(f.replica, NULL));
        OK(ls_replica_loss(f.replica, GOLDEN_BATCH));
        OK(ls_replica_backward(f.replica, NULL));
        OK(ls_replica_update(f.replica));
        OK(ls_replica_read_loss_sum(f.replica, &sum));
        OK(ls_replica_read_params(f.replica, params));
        assert_near(sum / GOLDEN_BATCH, losses[step], golden_bound);
        assert_near(norm_of(&all, params), norms[step], 10 * golden_bound);
    }
    free(params);
    fixture_close(&f);
}

static void set_param(fixture *f, size_t offset, double value) {
    cudaStream_t stream = ls_replica_stream(f->replica);
    double *params = ls_replica_params(f->replica);
    CUDA_OK(cudaMemcpyAsync(params + offset, &value, sizeof value, cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
}

/* The mean loss and the decisions taken. */
static double loss_of(fixture *f, const ls_batch *batch, uint8_t *decisions) {
    double sum = 0.0;
    OK(ls_replica_input(f->replica, batch));
    OK(ls_replica_forward(f->replica, NULL));
    OK(ls_replica_loss(f->replica, (double)batch->count));
    OK(ls_replica_read_loss_sum(f->replica, &sum));
    OK(ls_replica_read_decisions(f->replica, decisions));
    return sum / (double)batch->count;
}

/* Central differences with h = 2^-17. Rounding: the loss (2.3) has at most 1e3 terms on a path, so its error is below
 * 1e3*1.1e-16*2.3 = 2.6e-13, and divided by h 3.4e-8. Truncation: with the decisions of ReLU and max-pool fixed the logits are
 * affine in one parameter, so the third derivative of the loss is a third cumulant of their slopes under a softmax, at most
 * 0.1*(range of slopes)^3; slopes are sums over at most 144 pooled places of 0.026*2.8, so it is below 1e3, and h^2/6 of that is
 * below 1e-8. Where decisions differ between the two ends there is no derivative to compare. */
static void check_differences(const ls_model_spec *spec, const ls_dataset *data, size_t each) {
    const double h = 0x1p-17;
    const double bound = 1e-7;
    enum { BATCH = 3 };
    fixture f;
    fixture_open(&f, spec, LS_FLOAT64, BATCH, true);
    ls_batch batch = batch_of(data, 0, BATCH);
    run_passes(&f, &batch, BATCH, NULL);
    double *grads = read_grads(&f);
    size_t size = BATCH * f.model.decisions_per_sample;
    uint8_t *low = calloc(size, 1);
    uint8_t *high = calloc(size, 1);
    assert_true(low != NULL && high != NULL);
    for (size_t p = 0; p < f.model.param_tensors; p++) {
        const ls_param *param = &f.model.params[p];
        size_t compared = 0;
        size_t probes = each < param->count ? each : param->count;
        for (size_t k = 0; k < probes; k++) {
            size_t at = param->offset + k * param->count / probes;
            double value = f.initial[at];
            set_param(&f, at, value - h);
            double before = loss_of(&f, &batch, low);
            set_param(&f, at, value + h);
            double after = loss_of(&f, &batch, high);
            set_param(&f, at, value);
            if (memcmp(low, high, size) != 0) {
                continue;
            }
            compared++;
            if (fabs((after - before) / (2 * h) - grads[at]) > bound) {
                fail_msg("%s[%zu]: difference quotient %.9g, gradient %.9g", param->name, at - param->offset,
                         (after - before) / (2 * h), grads[at]);
            }
        }
        assert_true(2 * compared > probes);
        assert_true(norm_of(param, grads) > 100 * bound); /* or the comparison would say nothing */
    }
    free(low);
    free(high);
    free(grads);
    fixture_close(&f);
}

static void test_finite_differences(void **state) {
    (void)state;
    ls_dataset data;
    OK(ls_dataset_open("synthetic:3", LS_SPLIT_TRAIN, &data));
    check_differences(ls_zoo_find("seed-cnn"), &data, 6);
    check_differences(ls_zoo_find("seed-conv"), &data, 8);
    ls_dataset_close(&data);
}

/* What the zoo does not have: a layer without weights in front, two ReLUs in a row, a ReLU over a linear layer's output and
 * after flatten, overlapping windows, stride and padding. */
static void test_unusual_model(void **state) {
    (void)state;
    const ls_model_spec spec = {.name = "unusual",
                                .channels = 1,
                                .height = 28,
                                .width = 28,
                                .classes = 10,
                                .layer_count = 12,
                                .layers = {{.kind = LS_LAYER_RELU},
                                           {.kind = LS_LAYER_MAXPOOL, .kernel = 2},
                                           {.kind = LS_LAYER_CONV, .name = "a", .out = 3, .kernel = 3, .padding = 1},
                                           {.kind = LS_LAYER_MAXPOOL, .kernel = 3, .stride = 2},
                                           {.kind = LS_LAYER_RELU},
                                           {.kind = LS_LAYER_RELU},
                                           {.kind = LS_LAYER_CONV, .name = "b", .out = 4, .kernel = 3, .stride = 2},
                                           {.kind = LS_LAYER_FLATTEN},
                                           {.kind = LS_LAYER_RELU},
                                           {.kind = LS_LAYER_LINEAR, .name = "c", .out = 7},
                                           {.kind = LS_LAYER_RELU},
                                           {.kind = LS_LAYER_LINEAR, .name = "d", .out = 10}}};
    ls_dataset data;
    OK(ls_dataset_open("synthetic:3", LS_SPLIT_TRAIN, &data));
    check_differences(&spec, &data, 6);
    ls_dataset_close(&data);
}

/* The loss is continuous in its rounding errors: at most 655 terms on a path, each 6e-8 of values of the size of 1, are below
 * 1e-4. A gradient may turn where a ReLU or max-pool lies within rounding of a tie: correct float32 gradients of this network
 * were up to 3.7e-3 apart, relative to their norm. Faults of layout, scale or order are far above 1e-2. */
static void test_float32_is_near_float64(void **state) {
    (void)state;
    enum { BATCH = 24 };
    ls_dataset data;
    OK(ls_dataset_open("synthetic:24", LS_SPLIT_TRAIN, &data));
    ls_batch batch = batch_of(&data, 0, BATCH);
    for (size_t z = 0; ls_zoo[z] != NULL; z++) {
        fixture narrow;
        fixture wide;
        fixture_open(&narrow, ls_zoo[z], LS_FLOAT32, BATCH, false);
        fixture_open(&wide, ls_zoo[z], LS_FLOAT64, BATCH, false);
        run_passes(&narrow, &batch, BATCH, NULL);
        run_passes(&wide, &batch, BATCH, NULL);
        double narrow_sum = 0.0;
        double wide_sum = 0.0;
        OK(ls_replica_read_loss_sum(narrow.replica, &narrow_sum));
        OK(ls_replica_read_loss_sum(wide.replica, &wide_sum));
        assert_near(narrow_sum / BATCH, wide_sum / BATCH, 1e-4);
        double *a = read_grads(&narrow);
        double *b = read_grads(&wide);
        for (size_t p = 0; p < wide.model.param_tensors; p++) {
            const ls_param *param = &wide.model.params[p];
            assert_true(distance_of(param, a, b) <= 1e-2 * norm_of(param, b));
        }
        free(a);
        free(b);
        fixture_close(&narrow);
        fixture_close(&wide);
    }
    ls_dataset_close(&data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_equals_torch),   cmocka_unit_test(test_three_steps_equal_torch),
        cmocka_unit_test(test_finite_differences),      cmocka_unit_test(test_unusual_model),
        cmocka_unit_test(test_float32_is_near_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
