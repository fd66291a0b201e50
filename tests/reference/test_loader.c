/* Loader threads give the same batches as the step itself; floats, targets and several channels reach the device. */
#include "tests/reference/replica_fixture.h"

#include "reference/batcher.h"
#include "reference/oracle/oracle.h"

enum { COUNT = 97, CHANNELS = 3, SIDE = 6, FEATURES = CHANNELS * SIDE * SIDE, TARGETS = 2 };

/* A data set whose every number tells where it belongs. */
static ls_dataset make(bool floats, bool targets) {
    ls_dataset d = {
        .count = COUNT, .channels = CHANNELS, .height = SIDE, .width = SIDE, .classes = 4, .floats = floats};
    d.labels = calloc(COUNT, sizeof *d.labels);
    d.pixels = floats ? NULL : calloc(COUNT, FEATURES);
    d.values = floats ? calloc(COUNT * FEATURES, sizeof *d.values) : NULL;
    d.targets = targets ? calloc(COUNT * TARGETS, sizeof *d.targets) : NULL;
    d.target_count = targets ? TARGETS : 0;
    for (size_t i = 0; i < COUNT * FEATURES; i++) {
        if (floats) {
            d.values[i] = (float)i / 7 - 300;
        } else {
            d.pixels[i] = (uint8_t)(i * 31 + i / 256);
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        d.labels[i] = (int32_t)(i % 4);
    }
    for (size_t i = 0; targets && i < COUNT * TARGETS; i++) {
        d.targets[i] = (float)i / 3;
    }
    return d;
}

static void check_batch(const ls_dataset *d, const ls_batch *batch, const size_t *order, size_t count) {
    assert_int_equal(batch->count, count);
    for (size_t i = 0; i < count; i++) {
        size_t index = order[i];
        assert_int_equal(batch->indices[i], index);
        assert_int_equal(batch->labels[i], d->labels[index]);
        if (d->floats) {
            assert_memory_equal(batch->values + i * FEATURES, d->values + index * FEATURES, FEATURES * sizeof(float));
        } else {
            assert_memory_equal(batch->pixels + i * FEATURES, d->pixels + index * FEATURES, FEATURES);
        }
        if (d->targets != NULL) {
            assert_memory_equal(batch->targets + i * TARGETS, d->targets + index * TARGETS, TARGETS * sizeof(float));
        }
    }
}

/* Epochs whole and broken off, and a step out of turn; the batch before stays as it was when the next one is given. */
static void check_threads(const ls_dataset *d, size_t threads) {
    enum { BATCH = 8, WORLD = 2, LENGTH = 49, STEPS = 7 };
    ls_sampler sampler = {.count = COUNT, .world = WORLD, .rank = 1, .shuffle = true, .seed = 3};
    size_t order[LENGTH];
    ls_batcher *batcher = NULL;
    OK(ls_batcher_open(d, &sampler, BATCH, &batcher));
    OK(ls_batcher_start(batcher, threads));
    for (size_t epoch = 0; epoch < 4; epoch++) {
        ls_batch batch = {0}, before = {0};
        OK(ls_batcher_set_epoch(batcher, epoch));
        assert_int_equal(ls_sampler_order(&sampler, epoch, order), 0);
        for (size_t step = 0; step < (epoch == 1 ? 2 : STEPS); step++) {
            OK(ls_batcher_get(batcher, step, &batch));
            check_batch(d, &batch, order + step * BATCH, step + 1 < STEPS ? BATCH : LENGTH - step * BATCH);
            if (step > 0) {
                check_batch(d, &before, order + (step - 1) * BATCH, BATCH);
            }
            before = batch;
        }
        OK(ls_batcher_get(batcher, 3, &batch));
        check_batch(d, &batch, order + 3 * BATCH, BATCH);
    }
    assert_true(ls_batcher_seconds(batcher) >= 0);
    ls_batcher_close(batcher);
}

static void test_same_batches(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        ls_dataset d = make((kind & 1) != 0, (kind & 2) != 0);
        check_threads(&d, 0);
        check_threads(&d, 1);
        check_threads(&d, 2);
        check_threads(&d, LS_BATCHER_MAX_THREADS);
        ls_dataset_close(&d);
    }
}

static void test_refused(void **state) {
    (void)state;
    ls_dataset d = make(false, false);
    ls_sampler sampler = {.count = COUNT, .world = COUNT + 1, .drop_last = true};
    ls_batcher *batcher = NULL;
    assert_int_equal(ls_batcher_open(&d, &sampler, 1, &batcher), LS_BAD_INPUT);
    sampler.world = 1;
    OK(ls_batcher_open(&d, &sampler, 1, &batcher));
    assert_int_equal(ls_batcher_start(batcher, LS_BATCHER_MAX_THREADS + 1), LS_BAD_INPUT);
    ls_batcher_close(batcher);
    ls_dataset_close(&d);
}

/* A network whose inputs are those of the sets above. */
static const ls_model_spec spec = {
    .name = "small",
    .channels = CHANNELS,
    .height = SIDE,
    .width = SIDE,
    .classes = 4,
    .layer_count = 3,
    .layers = {{.kind = LS_LAYER_CONV, .name = "conv", .out = 5, .kernel = 3},
               {.kind = LS_LAYER_FLATTEN, .name = "flatten"},
               {.kind = LS_LAYER_LINEAR, .name = "fc", .out = 4}},
    .normalize = {3, {0.4914, 0.4822, -0.4465}, {0.247, 2.435, 0.2616}},
};

/* The gradient of a batch equals the oracle's from its own reading of the inputs. Both are float64; the bound is that of
 * verification, 1e-12 of a parameter's norm, for sums of fewer terms than there. */
static void check_gradient(bool floats) {
    enum { BATCH = 20 };
    fixture f;
    fixture_open(&f, &spec, LS_FLOAT64, BATCH, false);
    ls_dataset d = make(floats, true);
    ls_batch batch = {.count = BATCH,
                      .pixels = d.pixels,
                      .values = d.values,
                      .labels = d.labels,
                      .targets = d.targets,
                      .target_count = TARGETS};
    run_passes(&f, &batch, 1.0, NULL);
    double *grads = read_grads(&f);
    double *expected = calloc(f.model.param_count, sizeof *expected),
           *params = calloc(f.model.param_count, sizeof *params);
    double *x = calloc(BATCH * FEATURES, sizeof *x), loss = 0;
    for (size_t i = 0; i < f.model.param_count; i++) {
        params[i] = f.initial[i];
    }
    for (size_t s = 0; s < BATCH; s++) {
        if (floats) {
            ls_oracle_values(d.values + s * FEATURES, f.model.input, &spec.normalize, x + s * FEATURES);
        } else {
            ls_oracle_pixels(d.pixels + s * FEATURES, f.model.input, &spec.normalize, x + s * FEATURES);
        }
    }
    ls_oracle *oracle = NULL;
    assert_int_equal(ls_oracle_open(&f.model, &oracle), 0);
    ls_oracle_input input = {.params = params, .count = BATCH, .x = x, .labels = d.labels, .denominator = 1};
    assert_int_equal(ls_oracle_gradient(oracle, &input, expected, &loss, NULL), 0);
    for (size_t p = 0; p < f.model.param_tensors; p++) {
        const ls_param *param = &f.model.params[p];
        assert_true(norm_of(param, expected) > 0);
        assert_true(distance_of(param, grads, expected) <= 1e-12 * norm_of(param, expected));
    }
    float targets[BATCH * TARGETS];
    CUDA_OK(cudaMemcpy(targets, f.replica->targets, sizeof targets, cudaMemcpyDeviceToHost));
    assert_memory_equal(targets, d.targets, sizeof targets);
    ls_oracle_close(oracle);
    free(grads);
    free(expected);
    free(params);
    free(x);
    ls_dataset_close(&d);
    fixture_close(&f);
}

static void test_channels_and_floats_on_the_device(void **state) {
    (void)state;
    check_gradient(false);
    check_gradient(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_batches),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_channels_and_floats_on_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
