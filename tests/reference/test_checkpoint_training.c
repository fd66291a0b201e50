/* Parameters of a model from files, and training checkpoints: what comes back, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "reference/checkpoint/model_state.h"
#include "reference/checkpoint/training.h"
#include "tests/reference/checkpoint_fixture.h"
#include "tests/reference/folder.h"

static ls_model model;

enum { COUNT = 23 }; /* conv1: 12 + 3, fc: 6 + 2 */

static int set_up(void **state) {
    return folder_make(state) != 0 || tiny_model(&model) != 0 || model.param_count != COUNT;
}

static void count_up(double *values, double from) {
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = from + (double)i / 3;
    }
}

/* The state of the model with `prefix`, as float64. */
static void make_state(const char *prefix, ls_state *state) {
    double values[COUNT];
    count_up(values, 1);
    assert_int_equal(
        ls_model_state_add(&model, LS_FLOAT64, LS_MODEL_ALL, &(ls_model_values){.params = values}, prefix, state),
        LS_OK);
}

static void write_and_free(const char *name, ls_state *state) {
    assert_int_equal(ls_state_write(folder_path(name), state), LS_OK);
    ls_state_free(state);
}

static void test_load(void **unused) {
    (void)unused;
    const char *const names[] = {"a.pth", "a.safetensors"};
    const char *const prefixes[] = {"", "module."};
    double expected[COUNT], wide[COUNT];
    float narrow[COUNT];
    count_up(expected, 1);
    for (size_t i = 0; i < 4; i++) {
        ls_state state = {0};
        make_state(prefixes[i / 2], &state);
        assert_string_equal(state.tensors[0].name + strlen(prefixes[i / 2]), "conv1.weight"); /* registration order */
        write_and_free(names[i % 2], &state);
        assert_int_equal(
            ls_model_load(folder_path(names[i % 2]), &model, LS_FLOAT64, &(ls_model_values){.params = wide}), LS_OK);
        assert_memory_equal(wide, expected, sizeof wide);
        assert_int_equal(
            ls_model_load(folder_path(names[i % 2]), &model, LS_FLOAT32, &(ls_model_values){.params = narrow}), LS_OK);
        for (size_t k = 0; k < COUNT; k++) {
            assert_true(narrow[k] == (float)expected[k]);
        }
        assert_int_equal(ls_model_load(folder_path(names[i % 2]), &model, LS_FLOAT32, NULL), LS_OK);
    }
}

static ls_rc load(void *path) {
    return ls_model_load(path, &model, LS_FLOAT32, NULL);
}

static void test_refused_states(void **unused) {
    (void)unused;
    ls_state state = {0};
    make_state("", &state);
    assert_int_equal(ls_state_add(&state, "fc2.weight", LS_ELEMENT_FLOAT32, 1, (size_t[]){2}, NULL), LS_OK);
    write_and_free("x.pth", &state);
    expect_line(load, folder_path("x.pth"), "tensor 'fc2.weight' is unknown to model tiny");

    make_state("", &state);
    state.tensors[1].name[0] = 'k';
    write_and_free("x.pth", &state);
    expect_line(load, folder_path("x.pth"),
                "tensor 'conv1.bias' of model tiny is missing; the file has 4 tensors, the first "
                "'conv1.weight'");

    make_state("module.", &state); /* a prefix that not all have is no wrapper's */
    assert_int_equal(ls_state_add(&state, "fc.bias", LS_ELEMENT_FLOAT32, 1, (size_t[]){2}, NULL), LS_OK);
    write_and_free("x.pth", &state);
    expect_line(load, folder_path("x.pth"), "tensor 'conv1.weight' of model tiny is missing");

    make_state("", &state);
    state.tensors[2].shape[0] = 3;
    state.tensors[2].shape[1] = 2;
    write_and_free("x.pth", &state);
    expect_line(load, folder_path("x.pth"), "tensor 'fc.weight': model tiny expects the shape [2, 3], found [3, 2]");

    make_state("", &state);
    state.tensors[3].element = LS_ELEMENT_INT64;
    write_and_free("x.pth", &state);
    expect_line(load, folder_path("x.pth"), "tensor 'fc.bias': expected floating-point values, found int64");

    write_and_free("x.pth", &state); /* nothing at all */
    expect_line(load, folder_path("x.pth"), "is missing; the file has 0 tensors");

    expect_line(load, folder_path("none.pth"), "none.pth: cannot be opened: No such file");
    expect_line(load, folder, "ends in .pth, .pt or .safetensors");
    FILE *empty = fopen(folder_path("empty.pth"), "w");
    assert_non_null(empty);
    fclose(empty);
    expect_line(load, folder_path("empty.pth"), "found an empty file");
    assert_int_equal(mkfifo(folder_path("pipe.pth"), 0600), 0);
    expect_line(load, folder_path("pipe.pth"), "found a device, pipe or socket");
}

/* A run of 2 ranks after 3 epochs; params and momentum are arrays of COUNT. */
static ls_training a_training(double *params, double *momentum) {
    return (ls_training){
        .ranks = 2,
        .devices = 2,
        .global_batch = 100,
        .samples = 1000,
        .data = 0x123,
        .seed = UINT64_MAX,
        .dtype = LS_FLOAT64,
        .optimizer = "sgd",
        .network = "conv1: conv 2 k3; relu; fc: linear 3",
        .shuffle = true,
        .epochs = 3,
        .steps = 30,
        .optimizer_step = 30,
        .values = {.params = params},
        .buffer_count = 1,
        .buffer_names = {"momentum_buffer"},
        .buffers = {momentum},
    };
}

static void test_training_round_trip(void **unused) {
    (void)unused;
    double params[COUNT], momentum[COUNT], params_read[COUNT], momentum_read[COUNT], loaded[COUNT];
    count_up(params, -2);
    count_up(momentum, 100);
    params[3] = -0.0;
    ls_training written = a_training(params, momentum), read = a_training(params_read, momentum_read);
    assert_int_equal(ls_training_write(folder_path("c.safetensors"), &model, &written), LS_OK);
    read.epochs = read.steps = read.optimizer_step = 0;
    assert_int_equal(ls_training_read(folder_path("c.safetensors"), &model, &read), LS_OK);
    assert_memory_equal(params, params_read, sizeof params);
    assert_memory_equal(momentum, momentum_read, sizeof momentum);
    assert_int_equal(read.epochs, 3);
    assert_int_equal(read.steps, 30);
    assert_int_equal(read.optimizer_step, 30);
    assert_int_equal(
        ls_model_load(folder_path("c.safetensors"), &model, LS_FLOAT64, &(ls_model_values){.params = loaded}),
        LS_OK); /* its parameters alone */
    assert_memory_equal(params, loaded, sizeof params);
    ls_state state = {0}; /* the names that others may read it by */
    assert_int_equal(ls_state_read(folder_path("c.safetensors"), &state), LS_OK);
    assert_int_equal(state.count, 8);
    assert_non_null(ls_state_find(&state, "model.conv1.weight"));
    assert_non_null(ls_state_find(&state, "optimizer.momentum_buffer.fc.bias"));
    assert_string_equal(ls_state_text_of(&state, "seed"), "18446744073709551615");
    ls_state_free(&state);
}

static ls_rc resume(void *training) {
    return ls_training_read(folder_path("c.safetensors"), &model, training);
}

static void test_other_runs_are_refused(void **unused) {
    (void)unused;
    double params[COUNT] = {0}, momentum[COUNT] = {0};
    ls_training written = a_training(params, momentum), other;
    assert_int_equal(ls_training_write(folder_path("c.safetensors"), &model, &written), LS_OK);
    assert_int_equal(resume(&written), LS_OK);
    other = written;
    other.dtype = LS_FLOAT32;
    other.values.params = NULL;
    expect_line(resume, &other, "the checkpoint was made with --dtype float64, this run has float32");
    other = written;
    other.ranks = 4;
    expect_line(resume, &other, "made with ranks 2, this run has 4");
    other = written;
    other.devices = 4;
    expect_line(resume, &other, "made with --devices 2, this run has 4");
    other = written;
    other.global_batch = 50;
    expect_line(resume, &other, "made with global batch 100, this run has 50");
    other = written;
    other.seed = 1;
    expect_line(resume, &other, "made with --seed 18446744073709551615, this run has 1");
    other = written;
    other.samples = 999;
    expect_line(resume, &other, "samples=1000, this run has");
    other = written;
    other.optimizer = "adam";
    expect_line(resume, &other, "made with optimizer sgd with momentum_buffer, this run has adam with momentum_buffer");
    other = written; /* the same parameters in another network */
    (void)snprintf(other.network, sizeof other.network, "conv1: conv 2 k3; fc: linear 3");
    expect_line(resume, &other,
                "made with --model conv1: conv 2 k3; relu; fc: linear 3, this run has conv1: conv 2 k3; fc: linear 3");
    other = written;
    other.buffer_count = 0; /* as without momentum */
    expect_line(resume, &other, "made with optimizer sgd with momentum_buffer, this run has sgd;");
    other = written;
    other.buffer_count = 2;
    other.buffer_names[1] = "exp_avg";
    other.buffers[1] = momentum;
    expect_line(resume, &other, "this run has sgd with momentum_buffer, exp_avg;");
    other = written;
    other.data = 0xabc;
    expect_line(resume, &other,
                "made with a training set of 1000 samples of hash 0000000000000123, this run has 1000 "
                "samples of hash 0000000000000abc");
    other.data = 0; /* not known */
    assert_int_equal(resume(&other), LS_OK);
    other = written;
    other.loss.kind = LS_LOSS_MSE;
    expect_line(resume, &other,
                "made with --loss cross-entropy --reduction mean --label-smoothing 0, this run has mse ");
    other = written;
    other.loss.label_smoothing = 0.5;
    expect_line(resume, &other, "--label-smoothing 0.5;");
    other = written;
    other.normalize = (ls_normalize){.channels = 2, .mean = {0.5, 0.25}, .std = {1, 2}};
    expect_line(resume, &other, "made with --normalize none, this run has 0.5/0.25,1/2");
}

static void test_damaged_checkpoints(void **unused) {
    (void)unused;
    double params[COUNT] = {0}, momentum[COUNT] = {0};
    ls_training training = a_training(params, momentum);
    ls_state more = {0}; /* than the model and the optimizer have */
    assert_int_equal(ls_training_write(folder_path("c.safetensors"), &model, &training), LS_OK);
    assert_int_equal(ls_state_read(folder_path("c.safetensors"), &more), LS_OK);
    assert_int_equal(ls_model_state_add(&model, LS_FLOAT64, LS_MODEL_PARAMS, &(ls_model_values){.params = params},
                                        "optimizer.more.", &more),
                     LS_OK);
    write_and_free("c.safetensors", &more);
    expect_line(resume, &training, "expected 8 tensors of the model and the optimizer, found 12");
    ls_training others = training; /* fewer */
    others.buffer_names[0] = "exp_avg";
    assert_int_equal(ls_training_write(folder_path("c.safetensors"), &model, &others), LS_OK);
    assert_int_equal(ls_state_read(folder_path("c.safetensors"), &more), LS_OK);
    assert_int_equal(ls_state_set_text(&more, "optimizer", "sgd with momentum_buffer"), LS_OK);
    write_and_free("c.safetensors", &more);
    expect_line(resume, &training, "tensor 'optimizer.momentum_buffer.conv1.weight' of model tiny is missing");
    const char *const bad[] = {"", "x", "-1", "3 ", "99999999999999999999", "18446744073709551615"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_state state = {0};
        assert_int_equal(ls_training_write(folder_path("c.safetensors"), &model, &training), LS_OK);
        assert_int_equal(ls_state_read(folder_path("c.safetensors"), &state), LS_OK);
        assert_int_equal(ls_state_set_text(&state, i % 2 == 0 ? "epoch" : "step", bad[i]), LS_OK);
        write_and_free("c.safetensors", &state);
        expect_line(resume, &training, "expected a whole number, found");
    }
    ls_state state = {0};
    make_state("", &state);
    write_and_free("c.safetensors", &state);
    expect_line(resume, &training, "found parameters alone; start from them with --load");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_refused_states),
        cmocka_unit_test(test_training_round_trip),
        cmocka_unit_test(test_other_runs_are_refused),
        cmocka_unit_test(test_damaged_checkpoints),
    };
    return cmocka_run_group_tests(tests, set_up, folder_remove);
}
