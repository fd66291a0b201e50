/* Losses, optimizers and schedules through the checks: what is right passes, an update or a loss that is not as the run says
 * is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/verify/synthetic_case.h"

/* Trains with the replica's own optimizer at the given rates, which the run does not have to know. */
static void train(synthetic *s, const double rates[SYNTHETIC_STEPS]) {
    ls_case *c = &s->c;
    size_t bytes = synthetic_bytes(s);
    for (size_t step = 0; step < c->steps; step++) {
        for (size_t rank = 0; step > 0 && rank < c->ranks; rank++) {
            memcpy(ls_case_reduced(c, step, rank)->params_before, ls_case_reduced(c, step - 1, rank)->params_after,
                   bytes);
        }
        for (size_t device = 0; device < c->devices; device++) {
            synthetic_local(s, step, device, SIZE_MAX);
        }
        synthetic_reduce(s, step);
        const ls_capture_reduced *zero = ls_case_reduced(c, step, 0);
        assert_int_equal(cudaMemcpy(ls_replica_params(s->replica), zero->params_before, bytes, cudaMemcpyHostToDevice),
                         0);
        assert_int_equal(cudaMemcpy(ls_replica_grads(s->replica), zero->grads, bytes, cudaMemcpyHostToDevice), 0);
        ls_replica_set_lr(s->replica, rates[step]);
        assert_int_equal(ls_replica_update(s->replica), LS_OK);
        for (size_t rank = 0; rank < c->ranks; rank++) {
            ls_capture_reduced *record = ls_case_reduced(c, step, rank);
            assert_int_equal(ls_replica_read_params(s->replica, record->params_after), LS_OK);
            for (size_t k = 0; k < record->state_count; k++) {
                void *state = (char *)record->state + k * bytes;
                assert_int_equal(ls_replica_read_optimizer_state(s->replica, k, state), LS_OK);
            }
        }
    }
}

static ls_run run_of(const char *optimizer, ls_dtype dtype) {
    ls_run run = synthetic_settings("ddp", "seed-conv", 2, dtype);
    size_t kind = 0;
    assert_true(ls_optimizer_find(optimizer, &kind));
    run.optimizer = ls_optimizers[kind]->defaults;
    run.optimizer.kind = kind;
    return run;
}

static void open_trained(synthetic *s, const ls_run *run, const ls_optimizer_options *used, double lr) {
    const double rates[SYNTHETIC_STEPS] = {lr, lr, lr};
    synthetic_prepare(s, run, used);
    train(s, rates);
    synthetic_verify(s, NULL);
}

static void every_optimizer_passes(void **state) {
    (void)state;
    for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
        for (size_t k = 0; ls_optimizers[k] != NULL; k++) {
            ls_run run = run_of(ls_optimizers[k]->name, dtype);
            unsigned knows = ls_optimizers[k]->knows;
            run.optimizer.weight_decay = 0.01;
            run.optimizer.amsgrad = (knows & LS_KNOWS_AMSGRAD) != 0;
            run.optimizer.centered = (knows & LS_KNOWS_CENTERED) != 0;
            run.optimizer.nesterov = (knows & LS_KNOWS_NESTEROV) != 0;
            run.optimizer.momentum = (knows & LS_KNOWS_MOMENTUM) != 0 ? 0.9 : 0;
            synthetic s;
            open_trained(&s, &run, &run.optimizer, run.lr);
            expect_status(&s, LS_PASSED);
            bool followed = dtype == LS_FLOAT64 || k == 0;
            expect_finding(&s, "trajectory", followed ? LS_PASSED : LS_SKIPPED,
                           followed ? "" : "would hide a wrong scale", "");
            synthetic_close(&s);
        }
    }
}

typedef void (*change)(ls_optimizer_options *options, double *lr);

static void change_beta1(ls_optimizer_options *options, double *lr) {
    (void)lr;
    options->beta1 = 0.89;
}
static void change_beta2(ls_optimizer_options *options, double *lr) {
    (void)lr;
    options->beta2 = 0.998;
}
static void change_eps(ls_optimizer_options *options, double *lr) {
    (void)lr;
    options->eps = 1e-7;
}
static void change_decay(ls_optimizer_options *options, double *lr) {
    (void)lr;
    options->weight_decay *= 1.01;
}
static void change_alpha(ls_optimizer_options *options, double *lr) {
    (void)lr;
    options->alpha = 0.98;
}
static void change_rate(ls_optimizer_options *options, double *lr) {
    (void)options;
    *lr *= 1 + 1e-6;
}
static void change_sign(ls_optimizer_options *options, double *lr) {
    (void)lr;
    options->maximize = true;
}
static void change_kind(ls_optimizer_options *options, double *lr) {
    (void)lr;
    options->kind = 3 - options->kind; /* adam and adamw: L2 penalty or decoupled */
}

/* No gradient is wrong: the trajectory alone finds it, in float64. */
static void a_wrong_update_is_found(void **state) {
    (void)state;
    static const struct {
        const char *optimizer;
        change change;
        const char *when; /* the first step whose result differs */
    } faults[] = {{"adam", change_beta1, "after step 1"}, {"adam", change_beta2, "after step 1"},
                  {"adam", change_eps, "after step 0"},   {"adam", change_rate, "after step 0"},
                  {"adam", change_kind, "after step 0"},  {"adamw", change_decay, "after step 0"},
                  {"adamw", change_sign, "after step 0"}, {"rmsprop", change_alpha, "after step 0"},
                  {"rmsprop", change_eps, "after step 0"}};
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        synthetic s;
        ls_run run = run_of(faults[f].optimizer, LS_FLOAT64);
        run.optimizer.weight_decay = 0.01;
        ls_optimizer_options used = run.optimizer;
        double lr = run.lr;
        faults[f].change(&used, &lr);
        open_trained(&s, &run, &used, lr);
        expect_finding(&s, "float64", LS_PASSED, "", "");
        expect_finding(&s, "trajectory", LS_FAILED, faults[f].when, "the update");
        synthetic_close(&s);
    }
}

/* The rate of each step is the schedule's, and is checked. */
static void schedules_are_followed(void **state) {
    (void)state;
    synthetic s;
    ls_run run = run_of("sgd", LS_FLOAT64);
    run.schedule = (ls_schedule){.warmup_steps = 2};
    const double right[SYNTHETIC_STEPS] = {0, 0.5 * run.lr, run.lr};
    const double wrong[SYNTHETIC_STEPS] = {0, run.lr, run.lr};
    synthetic_prepare(&s, &run, &run.optimizer);
    train(&s, right);
    synthetic_verify(&s, NULL);
    expect_status(&s, LS_PASSED);
    synthetic_close(&s);
    synthetic_prepare(&s, &run, &run.optimizer);
    train(&s, wrong);
    synthetic_verify(&s, NULL);
    expect_finding(&s, "trajectory", LS_FAILED, "after step 1", "learning rate");
    synthetic_close(&s);
}

static void every_loss_passes(void **state) {
    (void)state;
    for (ls_loss_kind kind = LS_LOSS_CROSS_ENTROPY; kind < LS_LOSS_KIND_COUNT; kind++) {
        for (ls_loss_reduction reduction = LS_LOSS_MEAN; reduction < LS_LOSS_REDUCTION_COUNT; reduction++) {
            for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
                synthetic s;
                ls_run run = synthetic_settings("ddp", "seed-conv", 2, dtype);
                run.loss = (ls_loss_options){kind, reduction, kind == LS_LOSS_CROSS_ENTROPY ? 0.1 : 0};
                open_trained(&s, &run, &run.optimizer, run.lr);
                expect_status(&s, LS_PASSED);
                synthetic_close(&s);
            }
        }
    }
}

/* A mean where the run says sum, one loss for another, and smoothing forgotten: the gradient is wrong on every device. */
static void a_wrong_loss_is_found(void **state) {
    (void)state;
    static const struct {
        ls_loss_options told, used;
    } faults[] = {
        {{LS_LOSS_CROSS_ENTROPY, LS_LOSS_SUM, 0}, {LS_LOSS_CROSS_ENTROPY, LS_LOSS_MEAN, 0}},
        {{LS_LOSS_MSE, LS_LOSS_MEAN, 0}, {LS_LOSS_RMSE, LS_LOSS_MEAN, 0}},
        {{LS_LOSS_RMSE, LS_LOSS_SUM, 0}, {LS_LOSS_RMSE, LS_LOSS_MEAN, 0}},
        {{LS_LOSS_CROSS_ENTROPY, LS_LOSS_MEAN, 0.1}, {LS_LOSS_CROSS_ENTROPY, LS_LOSS_MEAN, 0}},
    };
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        synthetic s;
        ls_run run = synthetic_settings("ddp", "seed-conv", 2, LS_FLOAT32);
        run.loss = faults[f].used;
        synthetic_prepare(&s, &run, &run.optimizer);
        s.c.run.loss = faults[f].told;
        const double rates[SYNTHETIC_STEPS] = {run.lr, run.lr, run.lr};
        train(&s, rates);
        synthetic_verify(&s, NULL);
        expect_finding(&s, "float32", LS_FAILED, "gradient of", "the local gradients of all devices are off");
        synthetic_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_passes), cmocka_unit_test(a_wrong_update_is_found),
        cmocka_unit_test(schedules_are_followed), cmocka_unit_test(every_loss_passes),
        cmocka_unit_test(a_wrong_loss_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
