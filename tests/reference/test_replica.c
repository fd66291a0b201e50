/* A replica's passes: batch sizes, hooks, capture, repeated runs, evaluation, and what is refused. */
#include "replica_fixture.h"

enum { SAMPLES = 34 }; /* more than two blocks of 16 lanes */

static ls_dataset data;

static int set_up(void **state) {
    (void)state;
    return ls_dataset_open("synthetic:34", LS_SPLIT_TRAIN, &data) == LS_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    ls_dataset_close(&data);
    return 0;
}

/* Gradient and loss of each sample, run as a batch of 1. */
typedef struct single_samples {
    double *grads; /* [SAMPLES][param_count] */
    double losses[SAMPLES];
} single_samples;

static void run_alone(fixture *f, single_samples *a) {
    size_t params = f->model.param_count;
    a->grads = calloc(SAMPLES * params, sizeof *a->grads);
    assert_non_null(a->grads);
    for (size_t n = 0; n < SAMPLES; n++) {
        ls_batch one = batch_of(&data, n, 1);
        run_passes(f, &one, 1.0, NULL);
        OK(ls_replica_read_loss_sum(f->replica, &a->losses[n]));
        OK(ls_replica_read_grads(f->replica, a->grads + n * params));
    }
}

/* The gradient of a batch is the mean of its samples' gradients. In float64 the two differ by the order of at most 34 sums of
 * 576 terms: 34*576*1.1e-16 = 2.2e-12 of the terms at worst, and 2e-14 with the square-root law. */
static void check_batch(fixture *f, const single_samples *a, size_t count) {
    size_t params = f->model.param_count;
    double *mean = calloc(params, sizeof *mean);
    assert_non_null(mean);
    double losses = 0.0;
    for (size_t n = 0; n < count; n++) {
        losses += a->losses[n];
        for (size_t i = 0; i < params; i++) {
            mean[i] += a->grads[n * params + i] / (double)count;
        }
    }
    ls_batch batch = batch_of(&data, 0, count);
    run_passes(f, &batch, (double)count, NULL);
    assert_int_equal(ls_replica_batch_count(f->replica), count);
    double loss = 0.0;
    OK(ls_replica_read_loss_sum(f->replica, &loss));
    assert_near(loss, losses, 1e-12 * (losses + 1.0));
    double *grads = read_grads(f);
    for (size_t p = 0; p < f->model.param_tensors; p++) {
        const ls_param *param = &f->model.params[p];
        assert_true(distance_of(param, grads, mean) <= 1e-12 * norm_of(param, mean));
        assert_true(count == 0 || norm_of(param, grads) > 0.0);
    }
    free(grads);
    free(mean);
}

/* Larger batches run before smaller ones, so that what they left behind would show. */
static void test_batch_sizes(void **state) {
    (void)state;
    const size_t counts[] = {SAMPLES, 33, 17, 16, 5, 1, 0, 17};
    for (size_t z = 0; ls_zoo[z] != NULL; z++) {
        fixture f;
        single_samples a;
        fixture_open(&f, ls_zoo[z], LS_FLOAT64, SAMPLES, false);
        run_alone(&f, &a);
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            check_batch(&f, &a, counts[i]);
        }
        free(a.grads);
        fixture_close(&f);
    }
}

static void test_too_large_a_batch(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, ls_zoo_find("seed-conv"), LS_FLOAT32, 4, false);
    ls_batch batch = batch_of(&data, 0, 5);
    assert_int_equal(ls_replica_input(f.replica, &batch), LS_BAD_INPUT);
    uint8_t decisions[1];
    assert_int_equal(ls_replica_read_decisions(f.replica, decisions), LS_BAD_INPUT); /* opened without capture */
    assert_int_equal(ls_replica_read_captured_grads(f.replica, decisions), LS_BAD_INPUT);
    fixture_close(&f);
    ls_replica_options none = {.dtype = LS_FLOAT32};
    ls_replica *replica = NULL;
    assert_int_equal(ls_replica_open(&f.model, &none, &replica), LS_BAD_INPUT);
    ls_replica_options absent = {.dtype = LS_FLOAT32, .device = 4096, .max_batch = 1};
    assert_int_equal(ls_replica_open(&f.model, &absent, &replica), LS_DEVICE_FAILED);
}

/* A stand-in for communication: doubles each gradient as soon as it is ready, in stream order. */
typedef struct doubler {
    ls_replica *replica;
    size_t forwards;
    size_t calls;
    size_t fail_at; /* this call fails */
    bool change;
} doubler;

static ls_rc on_forward(void *self) {
    doubler *d = self;
    d->forwards++;
    return LS_OK;
}

static ls_rc on_ready(void *self, size_t ready_position) {
    doubler *d = self;
    assert_int_equal(ready_position, d->calls);
    if (d->calls++ == d->fail_at) {
        return LS_DEVICE_FAILED;
    }
    const ls_model *model = ls_replica_model(d->replica);
    const ls_param *param = &model->params[model->ready[ready_position]];
    if (d->change) {
        double *grads = ls_replica_grads(d->replica);
        LS_CUDA(ls_kernel_scale(ls_replica_stream(d->replica), LS_FLOAT64, param->count, 2.0, grads + param->offset));
    }
    return LS_OK;
}

/* Hooks come in ready order, once each, when the gradient is complete and is not touched again; what is captured is the
 * gradient before the hook. */
static void test_hooks_and_capture(void **state) {
    (void)state;
    for (size_t z = 0; ls_zoo[z] != NULL; z++) {
        fixture f;
        fixture_open(&f, ls_zoo[z], LS_FLOAT64, 8, true);
        size_t bytes = f.model.param_count * sizeof(double);
        double *captured = calloc(1, bytes);
        assert_non_null(captured);
        const size_t counts[] = {8, 3, 0};
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            ls_batch batch = batch_of(&data, 0, counts[c]);
            run_passes(&f, &batch, 8.0, NULL);
            double *alone = read_grads(&f);
            OK(ls_replica_read_captured_grads(f.replica, captured));
            assert_memory_equal(captured, alone, bytes);
            doubler d = {.replica = f.replica, .fail_at = SIZE_MAX, .change = true};
            ls_hooks hooks = {.self = &d, .before_forward = on_forward, .grad_ready = on_ready};
            run_passes(&f, &batch, 8.0, &hooks);
            assert_int_equal(d.forwards, 1);
            assert_int_equal(d.calls, f.model.param_tensors);
            double *doubled = read_grads(&f);
            OK(ls_replica_read_captured_grads(f.replica, captured));
            assert_memory_equal(captured, alone, bytes);
            for (size_t i = 0; i < f.model.param_count; i++) {
                assert_true(doubled[i] == 2.0 * alone[i]);
            }
            free(doubled);
            free(alone);
        }
        free(captured);
        fixture_close(&f);
    }
}

static void test_failing_hook_ends_the_pass(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, ls_zoo_find("seed-cnn"), LS_FLOAT64, 8, false);
    ls_batch batch = batch_of(&data, 0, 8);
    doubler d = {.replica = f.replica, .fail_at = 3};
    ls_hooks hooks = {.self = &d, .grad_ready = on_ready};
    OK(ls_replica_input(f.replica, &batch));
    OK(ls_replica_forward(f.replica, &hooks));
    OK(ls_replica_loss(f.replica, 8.0));
    assert_int_equal(ls_replica_backward(f.replica, &hooks), LS_DEVICE_FAILED);
    assert_int_equal(d.calls, 4);
    fixture_close(&f);
}

/* seed-cnn takes its decisions from values that a plain computation on the host gives too: conv1, then the first largest of
 * each 2x2 window, then its sign. Both add 25 products in double in some order, so a choice between values closer than 1e-13
 * (25 terms of u = 1.1e-16 of sums below 10) may differ; apart from those all must agree. */
static void check_first_pool(const fixture *f, size_t n, const uint8_t *decisions, size_t *close_calls) {
    const float *weight = f->initial + f->model.params[0].offset;
    const float *bias = f->initial + f->model.params[1].offset;
    const uint8_t *pixels = data.pixels + n * 784;
    for (size_t at = 0; at < 1440; at++) {
        size_t channel = at / 144;
        double values[4];
        size_t best = 0;
        for (size_t w = 0; w < 4; w++) {
            size_t row = at % 144 / 12 * 2 + w / 2;
            size_t column = at % 12 * 2 + w % 2;
            values[w] = bias[channel];
            for (size_t k = 0; k < 25; k++) {
                values[w] += (double)weight[channel * 25 + k] *
                             (double)((float)pixels[(row + k / 5) * 28 + column + k % 5] / 255.0F);
            }
            best = values[w] > values[best] ? w : best;
        }
        size_t chosen = decisions[at];
        assert_true(chosen < 4);
        bool positive = decisions[1440 + at] != 0;
        if (values[best] - values[chosen] > 1e-13 || (positive != (values[best] > 0) && fabs(values[best]) > 1e-13)) {
            fail_msg("sample %zu value %zu: chose %zu (%g), host %zu (%g), positive %d", n, at, chosen, values[chosen],
                     best, values[best], positive);
        }
        *close_calls += chosen != best;
    }
}

static void test_decisions(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, ls_zoo_find("seed-cnn"), LS_FLOAT64, SAMPLES, true);
    size_t size = f.model.decisions_per_sample;
    uint8_t *decisions = malloc(SAMPLES * size + 1);
    assert_non_null(decisions);
    const size_t counts[] = {SAMPLES, 17, 1, 0};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        ls_batch batch = batch_of(&data, 0, counts[c]);
        run_passes(&f, &batch, 1.0, NULL);
        memset(decisions, 0xee, SAMPLES * size + 1);
        OK(ls_replica_read_decisions(f.replica, decisions));
        assert_int_equal(decisions[counts[c] * size], 0xee); /* nothing beyond the batch */
        size_t close_calls = 0;
        for (size_t n = 0; n < counts[c]; n++) {
            check_first_pool(&f, n, decisions + n * size, &close_calls);
        }
        assert_true(close_calls <= counts[c]); /* of 1440 choices each: noise makes exact ties rare */
    }
    free(decisions);
    fixture_close(&f);
}

static void test_same_bits_every_run(void **state) {
    (void)state;
    float *first = NULL;
    for (int run = 0; run < 2; run++) {
        fixture f;
        fixture_open(&f, ls_zoo_find("seed-cnn"), LS_FLOAT32, SAMPLES, false);
        size_t bytes = f.model.param_count * sizeof *first;
        for (size_t step = 0; step < 3; step++) {
            ls_batch batch = batch_of(&data, step, SAMPLES - 5);
            run_passes(&f, &batch, (double)batch.count, NULL);
            OK(ls_replica_update(f.replica));
        }
        float *params = malloc(bytes);
        assert_non_null(params);
        OK(ls_replica_read_params(f.replica, params));
        if (first == NULL) {
            first = params;
            assert_memory_not_equal(params, f.initial, bytes);
        } else {
            assert_memory_equal(params, first, bytes);
            free(params);
        }
        fixture_close(&f);
    }
    free(first);
}

/* Loss and right answers of the batch last run forward, from its output on the host: log-softmax scores. */
static void score_on_host(fixture *f, const ls_batch *batch, double *loss, double *correct) {
    size_t classes = f->model.classes;
    double *scores = calloc(batch->count * classes, sizeof *scores);
    assert_non_null(scores);
    void *device = NULL;
    cudaStream_t stream = ls_replica_stream(f->replica);
    size_t bytes = batch->count * classes * sizeof *scores;
    CUDA_OK(cudaMalloc(&device, bytes));
    CUDA_OK(ls_kernel_from_lanes(stream, sizeof *scores, ls_lanes(), batch->count, classes,
                                 ls_replica_output(f->replica), device));
    CUDA_OK(cudaMemcpyAsync(scores, device, bytes, cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaFree(device));
    for (size_t n = 0; n < batch->count; n++) {
        size_t best = 0;
        for (size_t c = 1; c < classes; c++) {
            best = scores[n * classes + c] > scores[n * classes + best] ? c : best;
        }
        *correct += best == (size_t)batch->labels[n];
        *loss -= scores[n * classes + (size_t)batch->labels[n]];
    }
    free(scores);
}

/* Every sample counts once, also in a last batch that is not full; the training step's results stay. */
static void test_evaluation(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, ls_zoo_find("seed-cnn"), LS_FLOAT64, 16, false);
    double loss = 0.0;
    double correct = 0.0;
    for (size_t n = 0; n < SAMPLES; n++) {
        ls_batch one = batch_of(&data, n, 1);
        OK(ls_replica_input(f.replica, &one));
        OK(ls_replica_forward(f.replica, NULL));
        score_on_host(&f, &one, &loss, &correct);
    }
    ls_batch step = batch_of(&data, 0, 7);
    run_passes(&f, &step, 7.0, NULL);
    double *grads = read_grads(&f);
    double step_loss = 0.0;
    OK(ls_replica_read_loss_sum(f.replica, &step_loss));
    ls_batch all = batch_of(&data, 0, SAMPLES);
    double found_loss = 100.0;
    double found_correct = 1000.0;
    OK(ls_replica_evaluate(f.replica, &all, &found_loss, &found_correct));
    assert_near(found_loss - 100.0, loss, 1e-12 * SAMPLES * 100.0); /* sums in double of values below 1e2 */
    assert_true(found_correct == 1000.0 + correct);
    assert_true(correct > 0.0 && correct < SAMPLES);
    double again = 0.0;
    OK(ls_replica_read_loss_sum(f.replica, &again));
    assert_true(again == step_loss);
    double *same = read_grads(&f);
    assert_memory_equal(same, grads, f.model.param_count * sizeof *grads);
    assert_int_equal(ls_replica_batch_count(f.replica), 7);
    ls_batch none = {0};
    OK(ls_replica_evaluate(f.replica, &none, &found_loss, &found_correct));
    assert_true(found_correct == 1000.0 + correct);
    free(same);
    free(grads);
    fixture_close(&f);
}

/* Memory of one's own for the gradients: asked for once and given back once. */
static size_t asked, given;

static ls_rc count_allocate(void **pointer, size_t bytes) {
    CUDA_OK(cudaMalloc(pointer, bytes));
    asked += bytes;
    return LS_OK;
}

static void count_release(void *pointer, ls_rc *rc) {
    assert_int_equal(*rc, LS_OK);
    assert_non_null(pointer);
    CUDA_OK(cudaFree(pointer));
    given++;
}

static ls_rc refuse_allocate(void **pointer, size_t bytes) {
    (void)pointer, (void)bytes;
    return LS_DEVICE_FAILED;
}

static void refuse_release(void *pointer, ls_rc *rc) {
    (void)rc;
    assert_null(pointer);
    given++;
}

static void test_memory_of_gradients(void **state) {
    (void)state;
    const ls_device_memory counted = {count_allocate, count_release}, refused = {refuse_allocate, refuse_release};
    char error[256];
    ls_model model;
    ls_replica *replica = NULL;
    assert_int_equal(ls_model_resolve(ls_zoo_find("seed-conv"), &model, error, sizeof error), 0);
    ls_replica_options options = {.dtype = LS_FLOAT64, .max_batch = 2, .grad_memory = &counted};
    OK(ls_replica_open(&model, &options, &replica));
    assert_int_equal(asked, model.param_count * sizeof(double));
    ls_replica_close(replica);
    assert_int_equal(given, 1);
    options.grad_memory = &refused;
    assert_int_equal(ls_replica_open(&model, &options, &replica), LS_DEVICE_FAILED);
    assert_int_equal(given, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_sizes),       cmocka_unit_test(test_too_large_a_batch),
        cmocka_unit_test(test_hooks_and_capture), cmocka_unit_test(test_failing_hook_ends_the_pass),
        cmocka_unit_test(test_decisions),         cmocka_unit_test(test_same_bits_every_run),
        cmocka_unit_test(test_evaluation),        cmocka_unit_test(test_memory_of_gradients),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
