/* Drawn cases: a function of seed and index, every one a run that verify takes, of the kinds that are wanted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "bench/random_case.h"
#include "impls/impl.h"
#include "impls/launch.h"
#include "impls/options.h"
#include "impls/rank.h"
#include "impls/run_spec.h"
#include "reference/dataset.h"

enum { CASES = 1000, DEVICES = 16 };

static void line_of(uint64_t seed, uint64_t index, char *line, size_t size) {
    ls_run run;
    ls_random_case_draw(seed, index, DEVICES, &run);
    ls_options_line("lockstep", LS_COMMAND_VERIFY, &run, line, size);
}

static void same_seed_same_cases(void **state) {
    (void)state;
    char first[4096], second[4096], other_case[4096], other_seed[4096];
    for (uint64_t i = 0; i < 50; i++) {
        line_of(7, i, first, sizeof first);
        line_of(7, i + 1, other_case, sizeof other_case); /* drawing another case in between changes nothing */
        line_of(8, i, other_seed, sizeof other_seed);
        line_of(7, i, second, sizeof second);
        assert_string_equal(first, second);
        assert_string_not_equal(first, other_case);
        assert_string_not_equal(first, other_seed);
    }
}

/* The printed command line is the case: read back it gives the same run. */
static void check_line(const ls_run *run) {
    char **words = ls_options_argv("lockstep", LS_COMMAND_VERIFY, run);
    assert_non_null(words);
    int count = 0;
    while (words[count] != NULL) {
        count++;
    }
    ls_options options;
    bool help = false;
    assert_int_equal(ls_options_parse(LS_COMMAND_VERIFY, count - 2, words + 2, &options, &help), LS_OK);
    assert_true(options.impl_count == 1 && options.device_count == 1 && options.model_count == 1);
    assert_true(options.dtype_count == 1 && options.bucket_count == 1 && options.ranks_count == 1);
    char **again = ls_options_argv("lockstep", LS_COMMAND_VERIFY, &options.run);
    assert_non_null(again);
    for (int i = 0; i <= count; i++) {
        assert_true(words[i] == NULL ? again[i] == NULL : strcmp(words[i], again[i]) == 0);
    }
    free(words);
    free(again);
}

static void every_case_is_valid(void **state) {
    (void)state;
    for (uint64_t i = 0; i < CASES; i++) {
        ls_run run;
        ls_random_case_draw(11, i, DEVICES, &run);
        ls_model model;
        ls_normalize normalize;
        ls_dataset sizes;
        size_t local = 0, global = 0;
        assert_int_equal(ls_run_model(&run, &model, &normalize), LS_OK);
        assert_int_equal(ls_dataset_shape(run.data, LS_SPLIT_TRAIN, &sizes), LS_OK);
        assert_int_equal(ls_run_fits(&run, &model, &sizes), LS_OK);
        assert_int_equal(ls_run_batches(&run, &local, &global), LS_OK);
        assert_int_equal(ls_optimizer_check(&run.optimizer), LS_OK);
        assert_in_range(global, 1, sizes.count); /* `single` takes it in one batch */
        assert_in_range(model.layer_count, 1, 12);
        assert_true(model.param_count >= 16);
        check_line(&run);
    }
}

static void with_fewer_devices_there_are_fewer(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 200; i++) {
        ls_run run;
        ls_random_case_draw(3, i, 2, &run);
        assert_in_range(run.devices, 1, 2);
    }
}

/* In training a batchnorm over single values needs two samples: no step of the run's ranks or of its yardstick, `single` on
 * the global batch, leaves a device with one. */
static void batchnorm_has_two_samples(void **state) {
    (void)state;
    size_t judged = 0;
    for (uint64_t i = 0; i < 4 * CASES; i++) {
        ls_run run;
        ls_model model;
        ls_normalize normalize;
        ls_dataset sizes;
        size_t local = 0, global = 0;
        bool single_values = false;
        ls_random_case_draw(6, i, DEVICES, &run);
        assert_int_equal(ls_run_model(&run, &model, &normalize), LS_OK);
        for (size_t l = 0; l < model.layer_count; l++) {
            const ls_layer *layer = &model.layers[l];
            single_values |= layer->kind == LS_LAYER_BATCHNORM && layer->in.height * layer->in.width == 1;
        }
        if (!single_values) {
            continue;
        }
        judged++;
        assert_int_equal(ls_dataset_shape(run.data, LS_SPLIT_TRAIN, &sizes), LS_OK);
        assert_int_equal(ls_run_batches(&run, &local, &global), LS_OK);
        bool dp = strcmp(run.impl, "dp") == 0;
        size_t worlds[] = {dp ? 1 : run.devices, 1};
        for (size_t w = 0; w < 2; w++) {
            size_t world = worlds[w];
            size_t length = sizes.count / world + (!run.drop_last && sizes.count % world != 0 ? 1 : 0);
            for (size_t at = 0; at < length; at += global / world) {
                size_t left = length - at < global / world ? length - at : global / world;
                size_t chunk = dp && w == 0 ? (left + run.devices - 1) / run.devices : left;
                assert_true(chunk > 1 && left % chunk != 1);
            }
        }
    }
    assert_true(judged > 300);
}

/* Shares of what must not be missing, of 1000 cases: a kind that is wanted in 8 of a hundred comes more often than 4. */
static void every_kind_is_drawn(void **state) {
    (void)state;
    size_t mpi = 0, uneven = 0, last = 0, idle = 0, float64 = 0, threads = 0, targets = 0, worlds[9] = {0};
    size_t kinds[LS_LAYER_KIND_COUNT] = {0}, losses[LS_LOSS_KIND_COUNT] = {0}, optimizers[32] = {0}, buckets = 0;
    size_t impls[32] = {0};
    for (uint64_t i = 0; i < CASES; i++) {
        ls_run run;
        ls_model model;
        ls_normalize normalize;
        ls_dataset sizes;
        size_t local = 0, global = 0;
        ls_random_case_draw(1, i, DEVICES, &run);
        assert_int_equal(ls_run_model(&run, &model, &normalize), LS_OK);
        assert_int_equal(ls_dataset_shape(run.data, LS_SPLIT_TRAIN, &sizes), LS_OK);
        assert_int_equal(ls_run_batches(&run, &local, &global), LS_OK);
        size_t ranks = ls_impl_find(run.impl)->ranks(run.devices);
        for (size_t k = 0; ls_impls[k] != NULL; k++) {
            impls[k] += strcmp(run.impl, ls_impls[k]->name) == 0 ? 1 : 0;
        }
        mpi += strcmp(run.impl, "mpi") == 0 ? 1 : 0;
        uneven += sizes.count % ranks != 0 ? 1 : 0;
        last += sizes.count / ranks % (global / ranks) != 0 ? 1 : 0;
        idle += ranks == 1 && run.devices > 1 && global % run.devices != 0 ? 1 : 0;
        float64 += run.dtype == LS_FLOAT64 ? 1 : 0;
        threads += run.ranks == LS_RANKS_THREADS ? 1 : 0;
        targets += sizes.target_count > 0 ? 1 : 0;
        buckets += run.bucket_bytes < 4096 ? 1 : 0;
        worlds[run.devices]++;
        losses[run.loss.kind]++;
        optimizers[run.optimizer.kind]++;
        for (size_t l = 0; l < model.layer_count; l++) {
            kinds[model.layers[l].kind]++;
        }
    }
    assert_true(mpi >= CASES * 15 / 100);
    assert_true(uneven > 200 && last > 300 && idle > 50);
    assert_true(float64 > 400 && float64 < 600 && threads > 150 && targets > 100 && buckets > 150);
    for (size_t w = 1; w <= 8; w++) {
        assert_true(worlds[w] > 50);
    }
    for (size_t k = 0; k < LS_LAYER_KIND_COUNT; k++) {
        if (kinds[k] <= 100) {
            fail_msg("%zu layers of kind %s in %d networks: it needs its share in bench/random_network.c", kinds[k],
                     ls_layer_kind_name((ls_layer_kind)k), CASES);
        }
    }
    for (size_t k = 0; k < LS_LOSS_KIND_COUNT; k++) {
        assert_true(losses[k] > 100);
    }
    for (size_t k = 0; ls_impls[k] != NULL; k++) {
        assert_true(impls[k] > 50);
    }
    for (size_t k = 0; ls_optimizers[k] != NULL; k++) {
        assert_true(optimizers[k] > 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_same_cases),
        cmocka_unit_test(every_case_is_valid),
        cmocka_unit_test(with_fewer_devices_there_are_fewer),
        cmocka_unit_test(batchnorm_has_two_samples),
        cmocka_unit_test(every_kind_is_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
