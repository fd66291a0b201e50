/* The data set `exact` and the network that goes with it: small whole numbers, always the same. */
#include "tests/reference/data_files.h"

#include "reference/model.h"

static void test_whole_numbers(void **state) {
    (void)state;
    ls_dataset d, again;
    assert_int_equal(ls_dataset_open("exact:300", LS_SPLIT_TRAIN, &d), LS_OK);
    assert_true(d.count == 300 && d.channels == 1 && d.height == 8 && d.width == 8 && d.classes == 0);
    assert_true(d.target_count == 8 && d.floats && d.pixels == NULL);
    size_t values[3] = {0}, targets[17] = {0};
    for (size_t i = 0; i < d.count * 64; i++) {
        assert_true(d.values[i] == -1 || d.values[i] == 0 || d.values[i] == 1);
        values[(size_t)(d.values[i] + 1)]++;
    }
    for (size_t i = 0; i < d.count * 8; i++) {
        int target = (int)d.targets[i];
        assert_true((float)target == d.targets[i] && target >= -8 && target <= 8);
        targets[target + 8]++;
    }
    for (size_t k = 0; k < 3; k++) { /* a third each: 6400 of 19200, with a deviation of 65 */
        assert_true(values[k] > 6000 && values[k] < 6800);
    }
    for (size_t k = 0; k < 17; k++) {
        assert_true(targets[k] > 0);
    }
    assert_int_equal(ls_dataset_open("exact:10", LS_SPLIT_TRAIN, &again), LS_OK);
    assert_memory_equal(again.values, d.values, (size_t)10 * 64 * sizeof *d.values);
    assert_memory_equal(again.targets, d.targets, (size_t)10 * 8 * sizeof *d.targets);
    assert_memory_not_equal(d.values, d.values + 64, 64 * sizeof *d.values);
    ls_dataset_close(&again);
    ls_dataset_close(&d);
    data_sizes_agree("exact", LS_SPLIT_TEST);
}

static void test_counts_are_checked(void **state) {
    (void)state;
    REFUSED("exact:0", LS_SPLIT_TRAIN, "--data exact: expected a number of samples", "found '0'");
    REFUSED("exact:1e3", LS_SPLIT_TRAIN, "--data exact: expected a number of samples", "found '1e3'");
    REFUSED("exact:1000001", LS_SPLIT_TRAIN, "from 1 to 1000000", "found '1000001'");
}

static void test_initial_values(void **state) {
    (void)state;
    ls_model model;
    char error[128];
    assert_int_equal(ls_model_resolve(ls_zoo_find("exact"), &model, error, sizeof error), 0);
    for (size_t i = 0; ls_zoo[i] != NULL; i++) {
        assert_string_not_equal(ls_zoo[i]->name, "exact"); /* no network to train */
    }
    float *one = calloc(model.param_count, sizeof *one), *other = calloc(model.param_count, sizeof *other);
    assert_true(one != NULL && other != NULL);
    ls_model_init(&model, 1, one);
    ls_model_init(&model, 2, other);
    assert_memory_equal(one, other, model.param_count * sizeof *one);
    for (size_t p = 0; p < model.param_tensors; p++) {
        const ls_param *param = &model.params[p];
        size_t zeros = 0, negative = 0;
        for (size_t i = param->offset; i < param->offset + param->count; i++) {
            assert_true(one[i] == 0 || one[i] == 1 || one[i] == -1);
            zeros += one[i] == 0 ? 1 : 0;
            negative += one[i] < 0 ? 1 : 0;
        }
        assert_true(param->dims == 1 ? zeros == 0 : zeros > param->count * 9 / 10 && zeros < param->count * 97 / 100);
        assert_true(negative > 0 && negative < param->count - zeros);
    }
    free(one);
    free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole_numbers), cmocka_unit_test(test_counts_are_checked),
                                       cmocka_unit_test(test_initial_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
