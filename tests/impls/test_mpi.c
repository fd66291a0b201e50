/* mpi in a world of one process (no mpirun: a singleton), and what does not depend on the number of processes. Several
 * processes: tests/e2e. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Open MPI never frees some of what its plugins allocate, and unloads them, so that no suppression can name them: no leaks
 * are looked for in this program. Addresses still are. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0";
}

#include "impls/mpi_check.h"
#include "tests/impls/stderr_capture.h"
#include "tests/impls/training.h"

enum { STEPS = 4 };

static ls_model model;
static ls_dataset data;

static int open_all(void **state) {
    (void)state;
    ls_mpi_world world;
    training_resolve("seed-cnn", &model);
    if (ls_mpi_start(&world) != LS_OK || world.size != 1 || world.rank != 0 || world.local_rank != 0) {
        return -1;
    }
    return ls_dataset_open("synthetic:600", LS_SPLIT_TRAIN, &data) == LS_OK ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    ls_dataset_close(&data);
    ls_mpi_stop(0); /* finalised by the last test's close: nothing happens */
    return 0;
}

/* Counts above what an int holds are reduced in parts: no value is missed or taken twice, at any remainder. */
static void test_parts(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 6, 7, 8, 20, 21, 22};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        double values[24];
        for (size_t i = 0; i < 24; i++) {
            values[i] = (double)i;
        }
        assert_int_equal(ls_mpi_sum(values, counts[c], MPI_DOUBLE, 7), LS_OK);
        for (size_t i = 0; i < 24; i++) {
            assert_true(values[i] == (double)i);
        }
    }
}

static void test_error_is_reported(void **state) {
    (void)state;
    double values[2] = {0};
    stderr_capture capture;
    assert_int_equal(stderr_capture_begin(&capture), 0);
    ls_rc rc = ls_mpi_sum(values, 2, MPI_DATATYPE_NULL, 2);
    stderr_capture_end(&capture);
    assert_int_equal(rc, LS_DEVICE_FAILED);
    assert_int_equal(capture.lines, 1);
    assert_non_null(strstr(capture.text, "MPI_ERR_TYPE"));
}

/* One rank of mpi equals one rank of ddp bit for bit, whatever the buckets. Closing ends MPI: the last test. */
static void test_equals_ddp(void **state) {
    (void)state;
    training ddp, mpi;
    ls_run run;
    training_run(&run, "ddp", 1, LS_FLOAT32);
    assert_int_equal(training_alone(&ddp, &run, &model, &data, 32, STEPS), LS_OK);
    training_run(&run, "mpi", 1, LS_FLOAT32);
    run.bucket_bytes = 4096;
    assert_int_equal(training_alone(&mpi, &run, &model, &data, 32, STEPS), LS_OK);
    for (size_t s = 0; s < STEPS; s++) {
        assert_memory_equal(mpi.grads[s], ddp.grads[s], model.param_count * sizeof *mpi.grads[s]);
        assert_true(mpi.losses[s] == ddp.losses[s]);
    }
    assert_memory_equal(mpi.params, ddp.params, model.param_count * sizeof *mpi.params);
    assert_true(mpi.sum == 1.0);
    assert_int_equal(mpi.counters.buckets, 3);
    assert_int_equal(mpi.counters.allreduces, 3 * STEPS);
    assert_int_equal(mpi.counters.allreduce_bytes, STEPS * model.param_count * sizeof(float));
    training_free(&ddp, 1);
    training_free(&mpi, 1);
}

static void test_available(void **state) {
    (void)state;
    const ls_impl *impl = ls_impl_find("mpi");
    char why[256] = "";
    const char *path = getenv("PATH");
    char *saved = path == NULL ? NULL : strdup(path);
    assert_int_equal(setenv("PATH", "/nonexistent:/also/nonexistent", 1), 0);
    bool found = impl->available(why, sizeof why);
    assert_int_equal(saved == NULL ? unsetenv("PATH") : setenv("PATH", saved, 1), 0);
    free(saved);
    assert_false(found);
    assert_string_equal(why, "mpirun is not in PATH; it comes with Debian's package openmpi-bin");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_error_is_reported),
        cmocka_unit_test(test_available),
        cmocka_unit_test(test_equals_ddp),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
