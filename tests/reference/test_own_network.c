/* A replica of a network with the layers that the zoo does not have: gradients against finite differences, masks and buffers
 * from step to step, evaluation. */
#include "replica_fixture.h"

#include "reference/replica_buffers.h"
#include "reference/spec.h"

static ls_model_spec spec_of(const char *text) {
    char error[256];
    ls_model_spec spec;
    if (ls_spec_parse(text, &spec, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
    spec.channels = 1;
    spec.height = spec.width = 28;
    spec.classes = 10;
    return spec;
}

static const char *const with_all = "conv 3 k5 s3 nobias; batchnorm; relu; avgpool 2; dropout 0.3; flatten; linear 7; "
                                    "batchnorm; relu; linear 10 nobias";

/* The mean loss of the same step, so with the same masks. */
static double loss_at(fixture *f, const ls_batch *batch, size_t at, double value, uint8_t *decisions) {
    cudaStream_t stream = ls_replica_stream(f->replica);
    double *params = ls_replica_params(f->replica);
    double sum = 0.0;
    CUDA_OK(cudaMemcpyAsync(params + at, &value, sizeof value, cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    ls_replica_set_step(f->replica, 0);
    OK(ls_replica_input(f->replica, batch));
    OK(ls_replica_forward(f->replica, NULL));
    OK(ls_replica_loss(f->replica, (double)batch->count));
    OK(ls_replica_read_loss_sum(f->replica, &sum));
    OK(ls_replica_read_decisions(f->replica, decisions));
    return sum / (double)batch->count;
}

/* Differences as in test_oracle_layers: D(h) - D(h/2) bounds what Richardson's value leaves; rounding: a loss of 2.3 through
 * some 1000 roundings of 2^-53, divided by h/2. Where relu decides otherwise at an end there is nothing to compare. */
static void test_gradient_by_differences(void **state) {
    (void)state;
    enum { BATCH = 5, EACH = 7 };
    const double h = 0x1p-12;
    const double rounding = 1000 * 0x1p-53 * 2.3 / h * 4;
    ls_dataset data;
    OK(ls_dataset_open("synthetic:20", LS_SPLIT_TRAIN, &data));
    ls_batch batch = batch_of(&data, 0, BATCH);
    ls_model_spec spec = spec_of(with_all);
    fixture f;
    fixture_open(&f, &spec, LS_FLOAT64, BATCH, true);
    size_t size = BATCH * f.model.decisions_per_sample;
    uint8_t *taken = calloc(size, 1);
    uint8_t *own = calloc(size, 1);
    assert_true(taken != NULL && own != NULL);
    run_passes(&f, &batch, BATCH, NULL);
    OK(ls_replica_read_decisions(f.replica, own));
    double *grads = read_grads(&f);
    for (size_t p = 0; p < f.model.param_tensors; p++) {
        const ls_param *param = &f.model.params[p];
        size_t probes = EACH < param->count ? EACH : param->count;
        size_t compared = 0;
        for (size_t k = 0; k < probes; k++) {
            size_t at = param->offset + k * param->count / probes;
            double value = (double)f.initial[at];
            double losses[4];
            bool smooth = true;
            for (size_t side = 0; side < 4; side++) {
                double step = (side < 2 ? h : h / 2) * (side % 2 == 0 ? 1 : -1);
                losses[side] = loss_at(&f, &batch, at, value + step, taken);
                smooth = smooth && memcmp(taken, own, size) == 0;
            }
            loss_at(&f, &batch, at, value, taken);
            if (!smooth) {
                continue;
            }
            compared++;
            double coarse = (losses[0] - losses[1]) / (2 * h);
            double fine = (losses[2] - losses[3]) / h;
            double found = (4 * fine - coarse) / 3;
            if (!(fabs(found - grads[at]) <= fabs(coarse - fine) + rounding)) {
                fail_msg("%s[%zu]: difference %.12g, gradient %.12g", param->name, at - param->offset, found,
                         grads[at]);
            }
        }
        assert_true(compared > 0);
        bool in_vain = strcmp(param->name, "6.bias") == 0; /* in front of a batchnorm: nothing but rounding */
        assert_true(in_vain || norm_of(param, grads) > 1e4 * rounding);
    }
    free(taken);
    free(own);
    free(grads);
    fixture_close(&f);
    ls_dataset_close(&data);
}

/* Steps differ in their masks; the same step again has the same bits; another rank has others. */
static void test_steps_name_masks(void **state) {
    (void)state;
    enum { BATCH = 5, RUNS = 4 };
    ls_dataset data;
    OK(ls_dataset_open("synthetic:20", LS_SPLIT_TRAIN, &data));
    ls_batch batch = batch_of(&data, 0, BATCH);
    ls_model_spec spec = spec_of("flatten; dropout 0.5; linear 10");
    fixture f;
    fixture_open(&f, &spec, LS_FLOAT32, BATCH, true);
    size_t size = BATCH * f.model.decisions_per_sample;
    uint8_t *masks[RUNS];
    for (size_t i = 0; i < RUNS; i++) {
        masks[i] = calloc(size, 1);
        assert_non_null(masks[i]);
        if (i == 2) {
            ls_replica_set_step(f.replica, 0); /* as run 0 */
        } else if (i == 3) {
            ls_replica_set_step(f.replica, 0);
            ls_replica_set_masks(f.replica, 0, 1);
        }
        run_passes(&f, &batch, BATCH, NULL);
        OK(ls_replica_read_decisions(f.replica, masks[i]));
    }
    assert_int_equal(ls_replica_step(f.replica), 1);
    assert_memory_not_equal(masks[0], masks[1], size);
    assert_memory_equal(masks[0], masks[2], size);
    assert_memory_not_equal(masks[0], masks[3], size);
    for (size_t i = 0; i < RUNS; i++) {
        free(masks[i]);
    }
    fixture_close(&f);
    ls_dataset_close(&data);
}

/* Evaluation uses the running statistics, changes nothing, and does not count as a step; buffers go out and back in. */
static void test_evaluation_leaves_buffers(void **state) {
    (void)state;
    enum { BATCH = 17 };
    ls_dataset data;
    OK(ls_dataset_open("synthetic:40", LS_SPLIT_TRAIN, &data));
    ls_batch batch = batch_of(&data, 0, BATCH);
    ls_batch all = batch_of(&data, 0, 40);
    ls_model_spec spec = spec_of(with_all);
    fixture f;
    fixture_open(&f, &spec, LS_FLOAT32, BATCH, false);
    float before[20];
    float after[20];
    int64_t tracked[2];
    assert_int_equal(f.model.buffer_count, 20);
    OK(ls_replica_read_buffers(f.replica, before, tracked));
    for (size_t i = 0; i < 20; i++) {
        assert_true(before[i] == (i / 3 == 1 || i >= 13 ? 1.0F : 0.0F)); /* mean 3, var 3, mean 7, var 7 */
    }
    run_passes(&f, &batch, BATCH, NULL);
    run_passes(&f, &batch, BATCH, NULL);
    OK(ls_replica_read_buffers(f.replica, after, tracked));
    assert_memory_not_equal(before, after, sizeof after);
    assert_true(tracked[0] == 2 && tracked[1] == 2);
    double loss[3] = {0, 0, 0};
    double correct = 0;
    OK(ls_replica_evaluate(f.replica, &all, &loss[0], &correct)); /* in batches of 17, 17 and 6 */
    OK(ls_replica_evaluate(f.replica, &all, &loss[1], &correct));
    assert_true(loss[0] == loss[1]);
    OK(ls_replica_read_buffers(f.replica, before, tracked));
    assert_memory_equal(before, after, sizeof after);
    assert_true(tracked[0] == 2 && ls_replica_step(f.replica) == 2);
    after[0] += 1;
    tracked[1] = 77;
    OK(ls_replica_write_buffers(f.replica, after, tracked));
    OK(ls_replica_read_buffers(f.replica, before, tracked));
    assert_memory_equal(before, after, sizeof after);
    assert_int_equal(tracked[1], 77);
    OK(ls_replica_evaluate(f.replica, &all, &loss[2], &correct));
    assert_true(loss[2] != loss[1]);
    fixture_close(&f);
    ls_dataset_close(&data);
}

/* As PyTorch: one value a channel has no variance. */
static void test_one_value_is_refused(void **state) {
    (void)state;
    ls_dataset data;
    OK(ls_dataset_open("synthetic:20", LS_SPLIT_TRAIN, &data));
    ls_batch batch = batch_of(&data, 0, 1);
    ls_model_spec spec = spec_of("flatten; linear 4; batchnorm; linear 10");
    fixture f;
    fixture_open(&f, &spec, LS_FLOAT32, 2, false);
    OK(ls_replica_input(f.replica, &batch));
    assert_int_equal(ls_replica_forward(f.replica, NULL), LS_BAD_INPUT);
    double loss = 0;
    double correct = 0;
    OK(ls_replica_evaluate(f.replica, &batch, &loss, &correct));
    fixture_close(&f);
    ls_dataset_close(&data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_by_differences),
        cmocka_unit_test(test_steps_name_masks),
        cmocka_unit_test(test_evaluation_leaves_buffers),
        cmocka_unit_test(test_one_value_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
