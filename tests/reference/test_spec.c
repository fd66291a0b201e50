/* Networks as text: the grammar, names and initial values as nn.Sequential's, every error with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reference/spec.h"

static ls_model_spec spec;
static ls_model model;
static char error[512];

static void parse(const char *text) {
    if (ls_spec_parse(text, &spec, error, sizeof error) != 0) {
        fail_msg("'%s' was refused: %s", text, error);
    }
}

/* Shapes for images of MNIST. */
static void resolve(const char *text) {
    parse(text);
    if (spec.channels == 0) {
        spec.channels = 1;
        spec.height = spec.width = 28;
    }
    spec.classes = 10;
    if (ls_model_resolve(&spec, &model, error, sizeof error) != 0) {
        fail_msg("'%s' was refused: %s", text, error);
    }
}

static void test_every_kind(void **state) {
    (void)state;
    parse("input 3x32x16\nfirst: conv 10 k5 s2 p1 nobias; batchnorm eps 1e-3 momentum 0.5\n\n# a comment; relu\n"
          "maxpool 3 s2;relu ; avgpool 2 # end\n\tdropout 0.25; flatten;;  last.1: linear 10 nobias; log-softmax\n");
    assert_int_equal(spec.channels, 3);
    assert_int_equal(spec.height, 32);
    assert_int_equal(spec.width, 16);
    const ls_layer_kind kinds[] = {LS_LAYER_CONV,    LS_LAYER_BATCHNORM, LS_LAYER_MAXPOOL,
                                   LS_LAYER_RELU,    LS_LAYER_AVGPOOL,   LS_LAYER_DROPOUT,
                                   LS_LAYER_FLATTEN, LS_LAYER_LINEAR,    LS_LAYER_LOG_SOFTMAX};
    assert_int_equal(spec.layer_count, 9);
    for (size_t i = 0; i < spec.layer_count; i++) {
        assert_int_equal(spec.layers[i].kind, kinds[i]);
    }
    const ls_layer_spec *l = spec.layers;
    assert_string_equal(l[0].name, "first");
    assert_true(l[0].out == 10 && l[0].kernel == 5 && l[0].stride == 2 && l[0].padding == 1 && l[0].no_bias);
    assert_string_equal(l[1].name, "1");
    assert_true(l[1].eps == 1e-3 && l[1].momentum == 0.5);
    assert_true(l[2].kernel == 3 && l[2].stride == 2 && l[4].kernel == 2 && l[4].stride == 0);
    assert_true(l[5].p == 0.25);
    assert_string_equal(l[7].name, "last.1");
    assert_true(l[7].out == 10 && l[7].no_bias);
    assert_true(l[0].line == 2 && l[0].column == 1 && l[1].line == 2 && l[1].column == 33);
    assert_true(l[5].line == 6 && l[5].column == 2 && l[6].column == 16);
}

/* What is written is read back as the same network. */
static void test_round_trip(void **state) {
    (void)state;
    const char *canonical =
        "input 3x32x16; first: conv 10 k5 s2 p1 nobias; batchnorm eps 0.001 momentum 0.5; maxpool 3 s2; "
        "relu; avgpool 2; dropout 0.1; flatten; last: linear 10 nobias; log-softmax";
    char text[LS_SPEC_TEXT_SIZE];
    parse(canonical);
    assert_int_equal(ls_spec_format(&spec, text, sizeof text), 0);
    assert_string_equal(text, canonical);
    assert_int_equal(ls_spec_format(&spec, text, strlen(canonical)), -1);
    assert_int_equal(ls_spec_format(&spec, text, strlen(canonical) + 1), 0);
    parse("conv 10 k5\nmaxpool 2\n0b: relu # not its number\nflatten\nlinear 10");
    assert_int_equal(ls_spec_format(&spec, text, sizeof text), 0);
    assert_string_equal(text, "conv 10 k5; maxpool 2; 0b: relu; flatten; linear 10");
}

typedef struct refused {
    const char *text, *says;
} refused;

static void test_every_error_names_its_place(void **state) {
    (void)state;
    static const refused cases[] = {
        {"", "line 1, column 1: expected at least one layer"},
        {" # nothing\n ; \n", "line 3, column 1: expected at least one layer"},
        {"relu; conf 3", "line 1, column 7: expected conv, maxpool, relu"},
        {"relu\n  a: ", "line 2, column 6: expected conv, maxpool, relu"},
        {"conv", "line 1, column 5: expected out channels after conv"},
        {"conv k5 10", "line 1, column 6: expected out channels after conv, a number of at least 1, found 'k5'"},
        {"conv 0 k5", "column 6: expected out channels"},
        {"conv 10", "column 8: expected a kernel (k5) after the out channels, found the end of the layer"},
        {"conv 10 5", "column 9: expected a kernel (k5) after the out channels, found '5'"},
        {"conv 10 k0", "column 9: expected a kernel, k1 or more, found 'k0'"},
        {"conv 10 k5 s0", "column 12: expected a stride, s1 or more, found 's0'"},
        {"conv 10 k5 px", "column 12: expected a padding, p0 or more, found 'px'"},
        {"conv 10 k5 s2 bias", "column 15: expected sN, pN or nobias, found 'bias'"},
        {"conv 10 k1234567890", "column 9: expected a kernel, k1 or more"},
        {"maxpool", "column 8: expected the side of the window"},
        {"avgpool 0", "column 9: expected the side of the window"},
        {"avgpool 2 s0", "column 11: expected a stride"},
        {"maxpool 2 p1", "column 11: expected sN, found 'p1'"},
        {"linear -3", "column 8: expected out features after linear"},
        {"linear 10 bias", "column 11: expected nobias, found 'bias'"},
        {"relu 3", "column 6: expected the end of the layer, found '3'"},
        {"flatten x", "column 9: expected the end of the layer"},
        {"log-softmax 1", "column 13: expected the end of the layer"},
        {"dropout", "column 8: expected the share that is dropped, at least 0 and below 1, found the end"},
        {"dropout 1", "column 9: expected the share"},
        {"dropout -0.1", "column 9: expected the share"},
        {"dropout nan", "column 9: expected the share"},
        {"dropout 0.5 0.5", "column 13: expected the end of the layer"},
        {"batchnorm 3", "column 11: expected eps E or momentum M, found '3'"},
        {"batchnorm eps", "column 14: expected an eps above 0"},
        {"batchnorm eps 0", "column 15: expected an eps above 0"},
        {"batchnorm momentum 1.5", "column 20: expected a momentum above 0 and at most 1, found '1.5'"},
        {"relu; input 1x2x3", "column 7: expected conv, maxpool"},
        {"input 1x28", "column 7: expected channels x height x width, as in 1x28x28, found '1x28'"},
        {"input 1x28x0; relu", "column 7: expected channels x height"},
        {"input 1x28x28x; relu", "column 7: expected channels x height"},
        {"input 1x28x28x3; relu", "column 7: expected channels x height"},
        {"input 1x2x3 relu", "column 13: expected ; or a new line after the input"},
        {"a b: relu", "column 1: expected conv, maxpool"},
        {": relu", "column 1: expected conv, maxpool"},
        {"a-b: relu", "column 1: expected a name of letters, digits"},
        {"a..b: relu", "column 1: expected a name"},
        {".a: relu", "column 1: expected a name"},
        {"a.: relu", "column 1: expected a name"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: relu", "column 1: expected a name"},
        {"a: relu; a: relu", "column 10: expected another name: a layer before is called 'a'"},
        {"1: relu; relu", "column 10: expected another name: a layer before is called '1'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ls_spec_parse(cases[i].text, &spec, error, sizeof error), -1);
        if (strstr(error, cases[i].says) == NULL || strchr(error, '\n') != NULL) {
            fail_msg("'%s': expected '%s' in: %s", cases[i].text, cases[i].says, error);
        }
    }
}

static void test_most_layers(void **state) {
    (void)state;
    char text[1024] = "relu";
    for (size_t i = 1; i < LS_MODEL_MAX_LAYERS; i++) {
        memcpy(text + 4 + (i - 1) * 5, ";relu", 6);
    }
    parse(text);
    assert_int_equal(spec.layer_count, LS_MODEL_MAX_LAYERS);
    memcpy(text + strlen(text), ";relu", 6);
    assert_int_equal(ls_spec_parse(text, &spec, error, sizeof error), -1);
    assert_non_null(strstr(error, "column 321: expected at most 64 layers"));
}

/* Shapes that cannot be are refused with the layer, its place, and the sizes that meet there. */
static void test_impossible_shapes_name_their_place(void **state) {
    (void)state;
    static const refused cases[] = {
        {"conv 3 k5\nconv 4 k25; flatten; linear 10",
         "line 2, column 1: layer 1 (conv 1): kernel does not fit into the input, found 25 (input 3x24x24)"},
        {"a: conv 3 k5; linear 10", "line 1, column 15: layer 1 (linear 1): linear needs a flat input"},
        {"avgpool 29; flatten; linear 10", "column 1: layer 0 (avgpool 0): kernel does not fit"},
        {"flatten; linear 9",
         "column 10: layer 1 (linear 1): the last layer must give one value for each of 10 classes, "
         "found 9"},
        {"conv 10 k3 p3; flatten; linear 10", "column 1: layer 0 (conv 0): padding must be less than the kernel"},
        {"log-softmax; flatten; linear 10", "column 1: layer 0 (log-softmax 0): log-softmax needs a flat input"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        parse(cases[i].text);
        spec.channels = 1;
        spec.height = spec.width = 28;
        spec.classes = 10;
        assert_int_equal(ls_model_resolve(&spec, &model, error, sizeof error), -1);
        if (strstr(error, cases[i].says) == NULL) {
            fail_msg("'%s': expected '%s' in: %s", cases[i].text, cases[i].says, error);
        }
    }
}

/* The state_dict of the same torch.nn.Sequential (PyTorch 1.13), and the order in which its autograd finishes gradients:
 * hooks on the gradient accumulators fire for 7.weight 6.weight 6.bias 5.bias 5.weight 1.weight 1.bias 0.weight. */
static void test_names_and_ready_order_equal_torch(void **state) {
    (void)state;
    resolve("conv 3 k3 nobias; batchnorm; relu; avgpool 2; flatten; linear 6; batchnorm; linear 10 nobias");
    static const char *const params[] = {"0.weight", "1.weight", "1.bias", "5.weight",
                                         "5.bias",   "6.weight", "6.bias", "7.weight"};
    static const char *const ready[] = {"7.weight", "6.weight", "6.bias", "5.bias",
                                        "5.weight", "1.weight", "1.bias", "0.weight"};
    static const char *const buffers[] = {"1.running_mean", "1.running_var", "1.num_batches_tracked",
                                          "6.running_mean", "6.running_var", "6.num_batches_tracked"};
    assert_int_equal(model.param_tensors, 8);
    for (size_t i = 0; i < 8; i++) {
        assert_string_equal(model.params[i].name, params[i]);
        assert_string_equal(model.params[model.ready[i]].name, ready[i]);
    }
    assert_int_equal(model.buffer_tensors, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_string_equal(model.buffers[i].name, buffers[i]);
        assert_int_equal(model.buffers[i].is_count, i % 3 == 2);
    }
    assert_int_equal(model.buffer_count, 2 * 3 + 2 * 6);
    assert_int_equal(model.tracked_count, 2);
}

/* torch.manual_seed(1), the network above, PyTorch 1.13: batchnorm draws nothing, a layer without bias draws its weight. */
static void test_initial_values_equal_torch(void **state) {
    (void)state;
    resolve("conv 3 k3 nobias; batchnorm; relu; avgpool 2; flatten; linear 6; batchnorm; linear 10 nobias");
    float *flat = calloc(model.param_count, sizeof *flat);
    assert_non_null(flat);
    ls_model_init(&model, 1, flat);
    static const float first[8] = {0.1717544049024582F,    1.0F, 0.0F, 0.02413931116461754F,
                                   -0.008367069996893406F, 1.0F, 0.0F, 0.11295948922634125F};
    for (size_t p = 0; p < 8; p++) {
        assert_true(flat[model.params[p].offset] == first[p]);
    }
    assert_true(flat[model.params[7].offset + model.params[7].count - 1] == 0.35641586780548096F);
    free(flat);
}

/* The same network in C, as docs/models.md shows it, is the same as its text. */
static const ls_model_spec small_net = {
    .name = "small-net",
    .channels = 1,
    .height = 28,
    .width = 28,
    .classes = 10,
    .layer_count = 7,
    .layers =
        {
            {.kind = LS_LAYER_CONV, .name = "conv1", .out = 8, .kernel = 3, .padding = 1, .no_bias = true},
            {.kind = LS_LAYER_BATCHNORM, .name = "norm1"},
            {.kind = LS_LAYER_RELU},
            {.kind = LS_LAYER_AVGPOOL, .kernel = 2},
            {.kind = LS_LAYER_FLATTEN},
            {.kind = LS_LAYER_DROPOUT, .p = 0.25},
            {.kind = LS_LAYER_LINEAR, .name = "fc", .out = 10},
        },
};

static void test_in_c(void **state) {
    (void)state;
    static ls_model in_c;
    assert_int_equal(ls_model_resolve(&small_net, &in_c, error, sizeof error), 0);
    resolve("conv1: conv 8 k3 p1 nobias; norm1: batchnorm; relu; avgpool 2; flatten; dropout 0.25; fc: linear 10");
    memcpy(in_c.name, model.name, sizeof in_c.name);
    assert_memory_equal(&in_c, &model, sizeof model);
}

static void test_what_is_text(void **state) {
    (void)state;
    assert_true(ls_spec_is_text("conv 10 k5"));
    assert_true(ls_spec_is_text("flatten"));
    assert_true(ls_spec_is_text("a:relu;flatten"));
    assert_false(ls_spec_is_text("seed-cnn"));
    assert_false(ls_spec_is_text("net.txt"));
}

static void test_files(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-test-spec-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, "relu\n\0", 6), 6);
    char *text = NULL;
    assert_int_equal(ls_spec_read_file(path, &text), LS_BAD_INPUT);
    assert_int_equal(ftruncate(file, 5), 0);
    assert_int_equal(ls_spec_read_file(path, &text), LS_OK);
    assert_string_equal(text, "relu\n");
    free(text);
    assert_int_equal(ftruncate(file, 1 << 20), 0);
    assert_int_equal(ls_spec_read_file(path, &text), LS_BAD_INPUT);
    close(file);
    unlink(path);
    assert_int_equal(ls_spec_read_file(path, &text), LS_BAD_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_every_error_names_its_place),
        cmocka_unit_test(test_most_layers),
        cmocka_unit_test(test_impossible_shapes_name_their_place),
        cmocka_unit_test(test_names_and_ready_order_equal_torch),
        cmocka_unit_test(test_initial_values_equal_torch),
        cmocka_unit_test(test_in_c),
        cmocka_unit_test(test_what_is_text),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
