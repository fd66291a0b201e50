/* The batcher's order and memory, and the single-device trainer. */
#include "replica_fixture.h"

#include <sched.h>

#include "gpu/base/clock.h"
#include "reference/batcher.h"
#include "reference/trainer.h"

static ls_dataset data;

static int set_up(void **state) {
    (void)state;
    return ls_dataset_open("synthetic:900", LS_SPLIT_TRAIN, &data) == LS_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    ls_dataset_close(&data);
    return 0;
}

static void check_batch(const ls_batch *batch, const size_t *order, size_t count) {
    assert_int_equal(batch->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(batch->indices[i], order[i]);
        assert_int_equal(batch->labels[i], data.labels[order[i]]);
        assert_memory_equal(batch->pixels + i * 784, data.pixels + order[i] * 784, 784);
    }
}

/* Every rank's batches are its sampler's order cut in pieces, the last one shorter, in every epoch. */
static void test_order_and_last_batch(void **state) {
    (void)state;
    enum { WORLD = 3, BATCH = 64, LENGTH = 300, STEPS = 5 };
    size_t order[LENGTH];
    for (size_t rank = 0; rank < WORLD; rank++) {
        ls_sampler sampler = {.count = data.count, .world = WORLD, .rank = rank, .shuffle = true, .seed = 5};
        assert_int_equal(ls_sampler_length(&sampler), LENGTH);
        ls_batcher *batcher = NULL;
        OK(ls_batcher_open(&data, &sampler, BATCH, &batcher));
        assert_int_equal(ls_batcher_steps(batcher), STEPS);
        for (size_t epoch = 0; epoch < 2; epoch++) {
            assert_int_equal(ls_sampler_order(&sampler, epoch, order), 0);
            OK(ls_batcher_set_epoch(batcher, epoch));
            for (size_t step = 0; step < STEPS; step++) {
                ls_batch batch;
                OK(ls_batcher_get(batcher, step, &batch));
                check_batch(&batch, order + step * BATCH, step + 1 < STEPS ? BATCH : LENGTH - step * BATCH);
            }
        }
        ls_batch batch;
        assert_int_equal(ls_batcher_get(batcher, STEPS, &batch), LS_BAD_INPUT);
        ls_batcher_close(batcher);
    }
}

static void test_refused_batches(void **state) {
    (void)state;
    ls_sampler sampler = {.count = data.count, .world = 8, .rank = 0};
    ls_batcher *batcher = NULL;
    assert_int_equal(ls_batcher_open(&data, &sampler, 114, &batcher), LS_BAD_INPUT);
    assert_int_equal(ls_batcher_open(&data, &sampler, 0, &batcher), LS_BAD_INPUT);
    OK(ls_batcher_open(&data, &sampler, 113, &batcher));
    assert_int_equal(ls_batcher_steps(batcher), 1);
    ls_batcher_close(batcher);
}

/* Copies that are still waiting on the device read the batch's memory late, so the batcher must not overwrite it before. The
 * stream is held until the batcher has given the third batch, whose memory is that of the first. A right batcher does not give
 * it before the stream goes on, which the time limit then lets it do; the limit decides nothing else. */
typedef struct gate {
    _Atomic int given;
} gate;

static void hold(void *self) {
    gate *g = self;
    double end = ls_now_seconds() + 0.1;
    do {
        sched_yield();
    } while (g->given == 0 && ls_now_seconds() < end);
}

static void test_memory_is_kept_for_late_copies(void **state) {
    (void)state;
    enum { BATCH = 4, STEPS = 4 };
    ls_sampler sampler = {.count = data.count, .world = 1};
    ls_batcher *batcher = NULL;
    OK(ls_batcher_open(&data, &sampler, BATCH, &batcher));
    cudaStream_t stream = NULL;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    void *memory = NULL;
    CUDA_OK(cudaMalloc(&memory, STEPS * BATCH * 784));
    uint8_t *device = memory;
    gate g = {0};
    CUDA_OK(cudaLaunchHostFunc(stream, hold, &g));
    for (size_t step = 0; step < STEPS; step++) {
        ls_batch batch;
        OK(ls_batcher_get(batcher, step, &batch));
        g.given = step >= 2;
        CUDA_OK(
            cudaMemcpyAsync(device + step * BATCH * 784, batch.pixels, BATCH * 784, cudaMemcpyHostToDevice, stream));
        OK(ls_batcher_used(batcher, stream));
    }
    uint8_t *host = malloc(STEPS * BATCH * 784);
    assert_non_null(host);
    CUDA_OK(cudaMemcpyAsync(host, device, STEPS * BATCH * 784, cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    assert_memory_equal(host, data.pixels, STEPS * BATCH * 784);
    free(host);
    CUDA_OK(cudaFree(memory));
    ls_batcher_close(batcher);
    CUDA_OK(cudaStreamDestroy(stream));
}

/* Trains epochs of the synthetic bars and returns the share of right answers on its own test samples. */
static double train(ls_dtype dtype, size_t epochs, float *params) {
    ls_model model;
    char error[128];
    assert_int_equal(ls_model_resolve(ls_zoo_find("seed-conv"), &model, error, sizeof error), 0);
    ls_trainer_options options = {.replica = {.dtype = dtype,
                                              .max_batch = 16,
                                              .normalize = {1, {0.1307}, {0.3081}},
                                              .lr = 0.01,
                                              .optimizer = {.momentum = 0.5}},
                                  .seed = 42};
    ls_trainer *trainer = NULL;
    OK(ls_trainer_open(&model, &options, &trainer));
    ls_sampler sampler = {.count = data.count, .world = 1, .shuffle = true};
    ls_batcher *batcher = NULL;
    OK(ls_batcher_open(&data, &sampler, 16, &batcher));
    for (size_t epoch = 0; epoch < epochs; epoch++) {
        OK(ls_batcher_set_epoch(batcher, epoch));
        for (size_t step = 0; step < ls_batcher_steps(batcher); step++) {
            ls_batch batch;
            OK(ls_batcher_get(batcher, step, &batch));
            OK(ls_trainer_step(trainer, &batch));
            OK(ls_batcher_used(batcher, ls_replica_input_stream(ls_trainer_replica(trainer))));
        }
    }
    ls_dataset test;
    OK(ls_dataset_open("synthetic:900", LS_SPLIT_TEST, &test));
    ls_batch samples = batch_of(&test, 0, test.count);
    double loss = 0.0;
    double correct = 0.0;
    OK(ls_replica_evaluate(ls_trainer_replica(trainer), &samples, &loss, &correct));
    double accuracy = correct / (double)test.count;
    if (params != NULL) {
        OK(ls_replica_read_params(ls_trainer_replica(trainer), params));
    }
    ls_dataset_close(&test);
    ls_batcher_close(batcher);
    ls_trainer_close(trainer);
    return accuracy;
}

/* The synthetic classes can be learned (chance is 0.1), and two runs give the same bits: the batcher's memory and the device
 * do not race. */
static void test_training_learns_and_repeats(void **state) {
    (void)state;
    float first[14670];
    float second[14670];
    double accuracy = train(LS_FLOAT32, 3, first);
    assert_true(accuracy > 0.9);
    assert_true(train(LS_FLOAT32, 3, second) == accuracy);
    assert_memory_equal(first, second, sizeof first);
    assert_true(train(LS_FLOAT64, 1, NULL) > 0.5);
}

/* PyTorch's SGD with momentum by hand from the replica's own gradients: buf = g at first, then 0.5*buf + g; w -= lr*buf. In
 * float64 each update has 3 roundings of u = 1.1e-16. */
static void test_momentum(void **state) {
    (void)state;
    ls_model model;
    char error[128];
    assert_int_equal(ls_model_resolve(ls_zoo_find("seed-conv"), &model, error, sizeof error), 0);
    ls_trainer_options options = {
        .replica = {.dtype = LS_FLOAT64, .max_batch = 8, .lr = 0.1, .optimizer = {.momentum = 0.5}}, .seed = 42};
    ls_trainer *trainer = NULL;
    OK(ls_trainer_open(&model, &options, &trainer));
    size_t count = model.param_count;
    double *before = calloc(count, sizeof *before);
    double *after = calloc(count, sizeof *after);
    double *grads = calloc(count, sizeof *grads);
    double *velocity = calloc(count, sizeof *velocity);
    assert_true(before != NULL && after != NULL && grads != NULL && velocity != NULL);
    ls_replica *replica = ls_trainer_replica(trainer);
    OK(ls_replica_read_params(replica, before));
    for (size_t step = 0; step < 3; step++) {
        ls_batch batch = batch_of(&data, step * 8, 8);
        OK(ls_trainer_step(trainer, &batch));
        OK(ls_replica_read_grads(replica, grads));
        OK(ls_replica_read_params(replica, after));
        for (size_t i = 0; i < count; i++) {
            velocity[i] = step == 0 ? grads[i] : 0.5 * velocity[i] + grads[i];
            assert_near(after[i], before[i] - 0.1 * velocity[i], 4e-16 * (fabs(before[i]) + fabs(velocity[i])));
        }
        memcpy(before, after, count * sizeof *before);
    }
    free(before);
    free(after);
    free(grads);
    free(velocity);
    ls_trainer_close(trainer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_last_batch),
        cmocka_unit_test(test_refused_batches),
        cmocka_unit_test(test_memory_is_kept_for_late_copies),
        cmocka_unit_test(test_training_learns_and_repeats),
        cmocka_unit_test(test_momentum),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
