/* What is refused before any rank starts, and what a process is told to be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "impls/launch.h"
#include "impls/options.h"
#include "impls/rank.h"
#include "impls/rank_internal.h"
#include "reference/raw.h"
#include "tests/impls/stderr_capture.h"

static ls_run make(const char *impl, size_t devices) {
    ls_run run;
    ls_run_defaults(&run);
    snprintf(run.impl, sizeof run.impl, "%s", impl);
    snprintf(run.data, sizeof run.data, "synthetic:600");
    run.devices = devices;
    return run;
}

/* why: part of the one line; NULL: the run is well. */
static void check(const ls_run *run, const char *why) {
    stderr_capture errors;
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = ls_run_check(run);
    stderr_capture_end(&errors);
    assert_int_equal(rc, why == NULL ? LS_OK : LS_BAD_INPUT);
    assert_int_equal(errors.lines, why != NULL);
    if (why != NULL && strstr(errors.text, why) == NULL) {
        fail_msg("expected '%s' in: %s", why, errors.text);
    }
}

/* The least number of steps with which a checkpoint is written is that of an epoch, whatever its samples are dealt out to. */
static void checkpoints_need_a_whole_epoch(void **state) {
    (void)state;
    const struct {
        const char *impl;
        size_t devices, batch, global_batch, epoch;
        bool drop_last;
    } cases[] = {
        {"single", 1, 50, 0, 12, false}, {"single", 1, 64, 0, 10, false}, {"dp", 3, 50, 0, 4, false},
        {"dp", 3, 50, 70, 9, false},     {"ddp", 2, 50, 0, 6, false},     {"ddp", 7, 43, 0, 2, false},
        {"ddp", 7, 43, 0, 2, true},      {"ddp", 7, 85, 0, 2, false}, /* 600 / 7: 86 samples, the last repeated */
        {"ddp", 7, 85, 0, 1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_run run = make(cases[i].impl, cases[i].devices);
        run.batch = cases[i].batch;
        run.global_batch = cases[i].global_batch;
        run.drop_last = cases[i].drop_last;
        snprintf(run.checkpoint, sizeof run.checkpoint, "./c.safetensors");
        run.steps = cases[i].epoch;
        check(&run, NULL);
        run.steps--;
        check(&run, "--checkpoint: it is written after whole epochs, the first after step");
        run.checkpoint[0] = '\0';
        check(&run, NULL);
    }
}

static void impossible_runs_are_refused(void **state) {
    (void)state;
    ls_run run = make("ddp", 2);
    check(&run, NULL);
    run.global_batch = 129;
    check(&run, "cannot be split evenly over 2 ranks");
    run = make("dp", 2);
    run.global_batch = 129; /* torch.chunk takes it */
    check(&run, NULL);
    run = make("nothing", 1);
    check(&run, "unknown implementation 'nothing'");
    run = make("single", 2);
    check(&run, "single trains on one device");
    run = make("ddp", 0);
    check(&run, "--devices: expected at least 1");
    run = make("ddp", 1000);
    check(&run, "found 1000");
    run = make("mpi", 2);
    run.ranks = LS_RANKS_THREADS;
    check(&run, "no ranks as threads");
    static const char *const others[] = {"single", "dp", "mpi"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        run = make(others[i], i == 0 ? 1 : 2);
        run.nccl_register = true;
        check(&run, ": --nccl-register: NCCL does not reduce its gradients");
    }
    run = make("ddp", 2);
    run.nccl_register = true;
    check(&run, NULL);
    run = make("mpi", 2);
    run.graph = true;
    check(&run,
          "mpi: --graph: its steps cannot be captured in a CUDA graph; leave it out or use one of single, dp, ddp");
    run = make("ddp", 2);
    snprintf(run.model, sizeof run.model, "nonsense");
    check(&run, "unknown model 'nonsense'");
    run = make("ddp", 2);
    snprintf(run.data, sizeof run.data, "nonsense");
    check(&run, "nonsense");
    run = make("ddp", 2);
    run.normalize_given = true;
    run.normalize = (ls_normalize){3, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}};
    check(&run, "each of the 1 channels of the inputs of model seed-cnn, found 3");
}

/* By the headers of the files, before any rank starts. */
static void data_that_do_not_fit_are_refused(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-test-run-check-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    int32_t labels[2] = {0, 9};
    uint8_t pixels[2 * 28 * 29] = {0};
    float values[2 * 28 * 29] = {0};
    const ls_dataset none = {0};
    ls_dataset d = {.count = 2, .channels = 1, .height = 28, .width = 29, .classes = 10};
    d.labels = labels;
    d.pixels = pixels;
    assert_int_equal(ls_raw_write(path, &d, &none), LS_OK);
    ls_run run = make("ddp", 2);
    snprintf(run.data, sizeof run.data, "raw:%s", path);
    check(&run, "has samples of 1x28x29 in 10 classes, model seed-cnn takes 1x28x28 and tells 10 classes apart");
    d.width = 28;
    d.classes = 11;
    assert_int_equal(ls_raw_write(path, &d, &none), LS_OK);
    check(&run, "1x28x28 in 11 classes, model seed-cnn takes 1x28x28 and tells 10");
    d.classes = 0;
    d.target_count = 1;
    d.targets = values;
    assert_int_equal(ls_raw_write(path, &d, &none), LS_OK);
    check(&run, "has 1 float targets a sample, --loss cross-entropy needs labels");
    run.loss.kind = LS_LOSS_MSE;
    check(&run, "samples of 1x28x28 with 1 float targets each, model seed-cnn takes 1x28x28 and gives 10 outputs");
    d = (ls_dataset){.count = 2, .channels = 1, .height = 28, .width = 28, .classes = 10, .floats = true};
    d.labels = labels;
    d.values = values;
    assert_int_equal(ls_raw_write(path, &d, &none), LS_OK);
    check(&run, NULL);
    run.evaluate = true;
    check(&run, "at least 1 test sample, found 0");
    assert_int_equal(unlink(path), 0);
}

static void outputs_are_checked_first(void **state) {
    (void)state;
    ls_run run = make("ddp", 2);
    snprintf(run.json, sizeof run.json, "/nonexistent/x.json");
    check(&run, "/nonexistent");
    snprintf(run.json, sizeof run.json, "/tmp");
    check(&run, "found a folder");
    run = make("ddp", 2);
    snprintf(run.save, sizeof run.save, "/tmp/x.bin");
    check(&run, "--save: expected a file name that ends in .pth, .pt or .safetensors");
    run = make("ddp", 2);
    snprintf(run.save_grads, sizeof run.save_grads, "/tmp/x.bin");
    check(&run, "--save-grads: expected a file name that ends in .pth, .pt or .safetensors");
    snprintf(run.save_grads, sizeof run.save_grads, "/tmp/x.pth");
    run.steps = 0;
    check(&run, "--save-grads: a run of 0 steps");
    run = make("ddp", 2);
    snprintf(run.checkpoint, sizeof run.checkpoint, "/tmp/x.pth");
    check(&run, "--checkpoint: expected a file name that ends in .safetensors");
}

static void inputs_are_checked_first(void **state) {
    (void)state;
    ls_run run = make("ddp", 2);
    snprintf(run.load, sizeof run.load, "/nonexistent/x.pth");
    check(&run, "/nonexistent/x.pth: cannot be opened");
    snprintf(run.resume, sizeof run.resume, "x.safetensors");
    check(&run, "give one of them");
    run = make("ddp", 2);
    snprintf(run.resume, sizeof run.resume, "/tmp/x.pth");
    check(&run, "ends in .safetensors");
    run = make("single", 1);
    run.evaluate_only = true;
    check(&run, "option '--load' is missing");
}

static void missing_mpirun_names_the_package(void **state) {
    (void)state;
    ls_run run = make("mpi", 2);
    char *path = strdup(getenv("PATH"));
    assert_non_null(path);
    setenv("PATH", "/nonexistent", 1);
    check(&run, "openmpi-bin");
    setenv("PATH", path, 1);
    free(path);
    check(&run, NULL);
}

static void batches_follow_from_options(void **state) {
    (void)state;
    size_t local, global;
    ls_run run = make("ddp", 4);
    assert_int_equal(ls_run_batches(&run, &local, &global), LS_OK);
    assert_int_equal(local, 64);
    assert_int_equal(global, 256);
    run.global_batch = 64;
    assert_int_equal(ls_run_batches(&run, &local, &global), LS_OK);
    assert_int_equal(local, 16);
    assert_int_equal(global, 64);
    run = make("dp", 4);
    run.global_batch = 10; /* torch.chunk: 3, 3, 3, 1 */
    assert_int_equal(ls_run_batches(&run, &local, &global), LS_OK);
    assert_int_equal(local, 3);
    assert_int_equal(global, 10);
}

static const char *const launchers[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK",     "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
                                        "SLURM_JOB_ID",         "SLURM_STEP_ID", "WORLD_SIZE",   NULL};

static void clear_launchers(void) {
    for (const char *const *name = launchers; *name != NULL; name++) {
        unsetenv(*name);
    }
}

static ls_rc refuse(void) {
    stderr_capture errors;
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = ls_launch_refuse_nested("sweep");
    stderr_capture_end(&errors);
    assert_int_equal(errors.lines, rc != LS_OK);
    clear_launchers();
    return rc;
}

static void nested_launchers_are_refused(void **state) {
    (void)state;
    clear_launchers();
    assert_int_equal(refuse(), LS_OK);
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_int_equal(refuse(), LS_BAD_INPUT);
    setenv("PMIX_RANK", "0", 1);
    assert_int_equal(refuse(), LS_BAD_INPUT);
    setenv("SLURM_NTASKS", "2", 1);
    assert_int_equal(refuse(), LS_BAD_INPUT);
    setenv("SLURM_NTASKS", "1", 1);
    assert_int_equal(refuse(), LS_OK);
    setenv("SLURM_NTASKS", "8", 1); /* a batch script in an allocation of eight is one process */
    setenv("SLURM_JOB_ID", "77", 1);
    assert_int_equal(refuse(), LS_OK);
    setenv("WORLD_SIZE", "4", 1); /* each of four would start a run of its own */
    assert_int_equal(refuse(), LS_BAD_INPUT);
    setenv("WORLD_SIZE", "1", 1);
    assert_int_equal(refuse(), LS_OK);
}

static void place_comes_from_the_environment(void **state) {
    (void)state;
    ls_run run = make("ddp", 2);
    ls_rank place;
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_RANK", "1", 1);
    setenv("MASTER_ADDR", "10.0.0.1", 1);
    setenv("MASTER_PORT", "4711", 1);
    assert_true(ls_rank_started_outside(&run));
    assert_int_equal(ls_rank_place(&run, ls_impl_find("ddp"), &place), LS_OK);
    assert_int_equal(place.rank, 1);
    assert_int_equal(place.world, 2);
    assert_int_equal(place.device, 1);
    assert_int_equal(place.port, 4711);
    assert_string_equal(place.master, "10.0.0.1");
    const char *bad[][2] = {{"RANK", "2"}, {"RANK", "x"},      {"WORLD_SIZE", "3"}, {"MASTER_PORT", "70000"},
                            {"RANK", ""},  {"WORLD_SIZE", ""}, {"MASTER_PORT", "0"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *before = strdup(getenv(bad[i][0]));
        stderr_capture errors;
        setenv(bad[i][0], bad[i][1], 1);
        assert_int_equal(stderr_capture_begin(&errors), 0);
        bool outside = ls_rank_started_outside(&run);
        ls_rc rc = ls_rank_place(&run, ls_impl_find("ddp"), &place);
        stderr_capture_end(&errors);
        assert_true(outside); /* or it would start ranks of its own */
        assert_int_equal(rc, LS_BAD_INPUT);
        assert_int_equal(errors.lines, 1);
        assert_non_null(strstr(errors.text, bad[i][0]));
        setenv(bad[i][0], before, 1);
        free(before);
    }
    run.ranks = LS_RANKS_THREADS; /* threads take no place from the environment */
    assert_false(ls_rank_started_outside(&run));
    assert_int_equal(ls_rank_place(&run, ls_impl_find("ddp"), &place), LS_OK);
    assert_int_equal(place.rank, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_runs_are_refused),      cmocka_unit_test(data_that_do_not_fit_are_refused),
        cmocka_unit_test(outputs_are_checked_first),        cmocka_unit_test(missing_mpirun_names_the_package),
        cmocka_unit_test(inputs_are_checked_first),         cmocka_unit_test(batches_follow_from_options),
        cmocka_unit_test(checkpoints_need_a_whole_epoch),   cmocka_unit_test(nested_launchers_are_refused),
        cmocka_unit_test(place_comes_from_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
