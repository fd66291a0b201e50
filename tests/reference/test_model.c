/* Models: shapes, parameters, orders, initial values, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reference/model.h"

static ls_model model;
static char error[256];

static void resolve(const char *name) {
    const ls_model_spec *spec = ls_zoo_find(name);
    assert_non_null(spec);
    assert_int_equal(ls_model_resolve(spec, &model, error, sizeof error), 0);
}

static void check_shape(size_t layer, size_t channels, size_t height, size_t width) {
    assert_int_equal(model.layers[layer].out.channels, channels);
    assert_int_equal(model.layers[layer].out.height, height);
    assert_int_equal(model.layers[layer].out.width, width);
}

static void check_param(size_t index, const char *name, size_t dims, const size_t *shape, size_t fan_in) {
    const ls_param *param = &model.params[index];
    assert_string_equal(param->name, name);
    assert_int_equal(param->dims, dims);
    size_t count = 1;
    for (size_t d = 0; d < dims; d++) {
        assert_int_equal(param->shape[d], shape[d]);
        count *= shape[d];
    }
    assert_int_equal(param->count, count);
    assert_int_equal(param->fan_in, fan_in);
}

/* Flat offsets follow the ready order without a gap. */
static void check_offsets(void) {
    size_t offset = 0;
    for (size_t k = 0; k < model.param_tensors; k++) {
        assert_int_equal(model.params[model.ready[k]].offset, offset);
        assert_int_equal(ls_model_ready_position(&model, model.ready[k]), k);
        offset += model.params[model.ready[k]].count;
    }
    assert_int_equal(offset, model.param_count);
    assert_int_equal(ls_model_ready_position(&model, model.param_tensors), SIZE_MAX);
}

static void test_seed_cnn(void **state) {
    (void)state;
    resolve("seed-cnn");
    assert_int_equal(model.layer_count, 11);
    check_shape(0, 10, 24, 24);
    check_shape(1, 10, 12, 12);
    check_shape(3, 20, 8, 8);
    check_shape(4, 20, 4, 4);
    check_shape(6, 320, 1, 1);
    check_shape(7, 50, 1, 1);
    check_shape(10, 10, 1, 1);
    assert_int_equal(model.param_tensors, 8);
    assert_int_equal(model.param_count, 21840);
    check_param(0, "conv1.weight", 4, (const size_t[]){10, 1, 5, 5}, 25);
    check_param(1, "conv1.bias", 1, (const size_t[]){10}, 25);
    check_param(2, "conv2.weight", 4, (const size_t[]){20, 10, 5, 5}, 250);
    check_param(3, "conv2.bias", 1, (const size_t[]){20}, 250);
    check_param(4, "fc1.weight", 2, (const size_t[]){50, 320}, 320);
    check_param(5, "fc1.bias", 1, (const size_t[]){50}, 320);
    check_param(6, "fc2.weight", 2, (const size_t[]){10, 50}, 50);
    check_param(7, "fc2.bias", 1, (const size_t[]){10}, 50);
    const size_t ready[] = {7, 6, 5, 4, 2, 3, 0, 1};
    assert_memory_equal(model.ready, ready, sizeof ready);
    check_offsets();
    /* pool1, relu1, pool2, relu2, relu3 */
    const size_t decisions[] = {0, 1440, 1440, 0, 320, 320, 0, 0, 50, 0, 0};
    size_t offset = 0;
    for (size_t i = 0; i < model.layer_count; i++) {
        assert_int_equal(model.layers[i].decisions, decisions[i]);
        assert_int_equal(model.layers[i].decision_offset, offset);
        offset += decisions[i];
    }
    assert_int_equal(model.decisions_per_sample, 3570);
}

static void test_seed_conv(void **state) {
    (void)state;
    resolve("seed-conv");
    check_shape(0, 10, 24, 24);
    check_shape(1, 10, 12, 12);
    check_shape(2, 1440, 1, 1);
    check_shape(3, 10, 1, 1);
    assert_int_equal(model.param_count, 14670);
    check_param(2, "fc.weight", 2, (const size_t[]){10, 1440}, 1440);
    const size_t ready[] = {3, 2, 0, 1};
    assert_memory_equal(model.ready, ready, sizeof ready);
    check_offsets();
    const ls_model_spec *spec = ls_zoo_find("seed-conv");
    assert_int_equal(spec->normalize.channels, 1);
    assert_true(spec->normalize.mean[0] == 0.1307 && spec->normalize.std[0] == 0.3081);
    assert_int_equal(spec->epochs, 2);
    assert_null(ls_zoo_find("seed"));
}

/* torch.manual_seed(42) and the seed CNN, PyTorch 1.13; the digest is of all parameters as little-endian float32 in
 * registration order. */
static void test_initial_values_equal_torch(void **state) {
    (void)state;
    resolve("seed-cnn");
    float *flat = calloc(model.param_count, sizeof *flat);
    assert_non_null(flat);
    ls_model_init(&model, 42, flat);
    const float conv1[] = {0.15290771424770355F, 0.1660015881061554F, -0.046854496002197266F, 0.18372225761413574F};
    assert_memory_equal(flat + model.params[0].offset, conv1, sizeof conv1);
    assert_true(flat[model.params[1].offset] == -0.0641617551445961F);
    assert_true(flat[model.params[1].offset + 1] == -0.14671345055103302F);
    assert_true(flat[model.params[2].offset] == 0.04518469050526619F);
    assert_true(flat[model.params[4].offset] == -0.02220788598060608F);
    assert_true(flat[model.params[6].offset] == 0.03735694661736488F);
    char path[] = "/tmp/lockstep-test-model-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    for (size_t p = 0; p < model.param_tensors; p++) {
        size_t bytes = model.params[p].count * sizeof *flat;
        assert_int_equal(write(file, flat + model.params[p].offset, bytes), bytes);
    }
    close(file);
    free(flat);
    char command[128];
    snprintf(command, sizeof command, "md5sum < %s", path);
    FILE *sum = popen(command, "r");
    assert_non_null(sum);
    char digest[33] = {0};
    size_t got = fread(digest, 1, 32, sum);
    pclose(sum);
    unlink(path);
    assert_int_equal(got, 32);
    assert_string_equal(digest, "5b82ab78a2187825ad57d81145ecf129");
}

static void assert_refused(const ls_model_spec *spec, const char *words) {
    assert_int_equal(ls_model_resolve(spec, &model, error, sizeof error), -1);
    if (strstr(error, words) == NULL || strchr(error, '\n') != NULL) {
        fail_msg("expected '%s' in: %s", words, error);
    }
}

#define SPEC(...)                                                                                    \
    (&(ls_model_spec){.name = "m",                                                                   \
                      .channels = 1,                                                                 \
                      .height = 8,                                                                   \
                      .width = 8,                                                                    \
                      .classes = 10,                                                                 \
                      .layer_count = sizeof((ls_layer_spec[]){__VA_ARGS__}) / sizeof(ls_layer_spec), \
                      .layers = {__VA_ARGS__}})
#define FLATTEN \
    { .kind = LS_LAYER_FLATTEN }
#define LINEAR(n) \
    { .kind = LS_LAYER_LINEAR, .name = "fc", .out = (n) }

static void test_impossible_models(void **state) {
    (void)state;
    assert_refused(SPEC({.kind = LS_LAYER_CONV, .name = "c", .out = 2, .kernel = 9}),
                   "layer 0 (conv c): kernel does not fit");
    assert_refused(SPEC({.kind = LS_LAYER_CONV, .name = "c", .out = 0, .kernel = 3}), "at least 1, found 0");
    assert_refused(SPEC({.kind = LS_LAYER_CONV, .name = "c", .out = 2, .kernel = 3, .padding = 3}), "padding");
    assert_refused(SPEC({.kind = LS_LAYER_MAXPOOL, .kernel = 16}), "kernel of 1 to 15, found 16");
    assert_refused(SPEC({.kind = LS_LAYER_MAXPOOL, .kernel = 2, .padding = 1}), "no padding");
    assert_refused(SPEC(LINEAR(10)), "flatten first");
    assert_refused(SPEC(FLATTEN, LINEAR(11)),
                   "layer 1 (linear fc): the last layer must give one value for each of 10 classes, found 11");
    assert_refused(SPEC(FLATTEN, LINEAR((size_t)1 << 27)), "parameter too large");
    assert_refused(SPEC({.kind = LS_LAYER_KIND_COUNT}), "unknown kind");
    assert_refused(&(ls_model_spec){.name = "m", .channels = 1, .height = 1, .width = 1, .classes = 10},
                   "1 to 64 layers");
    assert_refused(&(ls_model_spec){.name = "m",
                                    .channels = 10,
                                    .height = 1,
                                    .width = 1,
                                    .classes = 10,
                                    .layer_count = 1,
                                    .layers = {{.kind = LS_LAYER_RELU}}},
                   "at least one parameter");
}

/* Strides and padding by the formula of torch.nn.Conv2d and MaxPool2d: floor((in + 2p - k)/s) + 1. */
static void test_strides_and_padding(void **state) {
    (void)state;
    const ls_model_spec *spec =
        SPEC({.kind = LS_LAYER_CONV, .name = "c", .out = 3, .kernel = 3, .stride = 2, .padding = 1},
             {.kind = LS_LAYER_MAXPOOL, .kernel = 3, .stride = 1}, FLATTEN, LINEAR(10));
    assert_int_equal(ls_model_resolve(spec, &model, error, sizeof error), 0);
    check_shape(0, 3, 4, 4);
    check_shape(1, 3, 2, 2);
    check_shape(2, 12, 1, 1);
    assert_string_equal(model.layers[1].name, "1"); /* as nn.Sequential numbers them */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seed_cnn),
        cmocka_unit_test(test_seed_conv),
        cmocka_unit_test(test_initial_values_equal_torch),
        cmocka_unit_test(test_impossible_models),
        cmocka_unit_test(test_strides_and_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
