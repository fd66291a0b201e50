/* Samples made by a formula: the same for ever, of any shape, with labels or with float targets. */
#include <math.h>

#include "reference/hash.h"
#include "tests/reference/data_files.h"

static void default_samples_stay_as_they_are(void **state) {
    (void)state;
    ls_dataset set;
    assert_int_equal(ls_dataset_open("synthetic:5", LS_SPLIT_TRAIN, &set), LS_OK);
    assert_true(set.channels == 1 && set.height == 28 && set.width == 28 && set.classes == 10);
    uint64_t hash = ls_hash(LS_HASH_SEED, set.pixels, 5 * 784);
    hash = ls_hash(hash, set.labels, 5 * sizeof *set.labels);
    assert_int_equal(hash, UINT64_C(0xe7239d228a4c6cdc)); /* results of earlier versions were made with these bytes */
    ls_dataset_close(&set);
}

static void any_shape_and_number_of_classes(void **state) {
    (void)state;
    ls_dataset set, more;
    assert_int_equal(ls_dataset_open("synthetic:90:3x5x9:4", LS_SPLIT_TRAIN, &set), LS_OK);
    assert_true(set.count == 90 && set.channels == 3 && set.height == 5 && set.width == 9 && set.classes == 4);
    size_t of_class[4] = {0};
    for (size_t i = 0; i < 90; i++) {
        assert_in_range(set.labels[i], 0, 3);
        of_class[set.labels[i]]++;
    }
    for (size_t c = 0; c < 4; c++) {
        assert_true(of_class[c] > 8);
    }
    assert_memory_not_equal(set.pixels, set.pixels + 45, 45); /* channels have noise of their own */
    assert_int_equal(ls_dataset_open("synthetic:200:3x5x9:4", LS_SPLIT_TRAIN, &more), LS_OK);
    assert_memory_equal(set.pixels, more.pixels, 90 * 135); /* a function of the index alone */
    ls_dataset_close(&more);
    ls_dataset_close(&set);
    data_sizes_agree("synthetic:90:3x5x9:4", LS_SPLIT_TEST);
    data_sizes_agree("synthetic:9:1x1x1", LS_SPLIT_TRAIN);
}

static void float_targets(void **state) {
    (void)state;
    ls_dataset set;
    assert_int_equal(ls_dataset_open("synthetic:40:2x3x4:t5", LS_SPLIT_TRAIN, &set), LS_OK);
    assert_true(set.classes == 0 && set.target_count == 5 && set.floats && set.pixels == NULL);
    float low = 1, high = -1;
    for (size_t i = 0; i < 40 * 5; i++) {
        low = fminf(low, set.targets[i]);
        high = fmaxf(high, set.targets[i]);
        assert_true(set.targets[i] * 64 == truncf(set.targets[i] * 64)); /* exact in every dtype */
    }
    assert_true(low >= -1 && low < -0.8F && high < 1 && high > 0.8F);
    ls_dataset_close(&set);
    data_sizes_agree("synthetic:40:2x3x4:t5", LS_SPLIT_TEST);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    REFUSED("synthetic:0:1x4x4", LS_SPLIT_TRAIN, "from 1 to", "'0:1x4x4'");
    REFUSED("synthetic:9:", LS_SPLIT_TRAIN, "CxHxW", "found ''");
    REFUSED("synthetic:9:4x4", LS_SPLIT_TRAIN, "CxHxW", "found '4x4'");
    REFUSED("synthetic:9:0x4x4", LS_SPLIT_TRAIN, "CxHxW", "found '0x4x4'");
    REFUSED("synthetic:9:1x4x4x", LS_SPLIT_TRAIN, "found '1x4x4x'");
    REFUSED("synthetic:9:1x4x4:1", LS_SPLIT_TRAIN, "CLASSES of 2 to 10", "found '1x4x4:1'");
    REFUSED("synthetic:9:1x4x4:11", LS_SPLIT_TRAIN, "found '1x4x4:11'");
    REFUSED("synthetic:9:1x4x4:t0", LS_SPLIT_TRAIN, "tTARGETS of 1 to 64", "found '1x4x4:t0'");
    REFUSED("synthetic:9:1x4x4:3:3", LS_SPLIT_TRAIN, "found '1x4x4:3:3'");
    REFUSED("synthetic:1000000:16x1024x1024", LS_SPLIT_TRAIN, "pixels in all");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_samples_stay_as_they_are),
        cmocka_unit_test(any_shape_and_number_of_classes),
        cmocka_unit_test(float_targets),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
