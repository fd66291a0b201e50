/* A crew of threads: orders, times and checks; and what a step is said to compute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bench/micro/collective.h"
#include "bench/micro/micro.h"
#include "bench/micro/step.h"
#include "impls/rank.h"

static ls_micro_job job_of(const char *collective, size_t bytes, bool in_place, ls_micro_clock clock) {
    ls_micro_options options = {.devices = 3, .clock = clock, .root = 1};
    return ls_micro_collective_job(&options, LS_CREW_THREADS, ls_micro_collective_find(collective),
                                   ls_micro_type_find("float"), ls_micro_redop_find("sum"), bytes, in_place);
}

/* Every collective in turn on the same ranks, in and out of place, by both clocks. */
static void collectives_are_right_and_timed(void **state) {
    (void)state;
    ls_crew *crew = NULL;
    assert_int_equal(ls_crew_open(LS_CREW_THREADS, 3, &crew), LS_OK);
    for (size_t i = 0; ls_micro_collectives[i].name != NULL; i++) {
        for (int variant = 0; variant < 4; variant++) {
            double seconds[40] = {0};
            uint64_t wrong = 1;
            ls_micro_job job = job_of(ls_micro_collectives[i].name, 1200, variant % 2 == 1,
                                      variant < 2 ? LS_MICRO_CLOCK_STREAM : LS_MICRO_CLOCK_HOST);
            assert_int_equal(ls_crew_prepare(crew, 0, &job), LS_OK);
            assert_int_equal(ls_crew_check(crew, 0, &wrong), LS_OK);
            assert_int_equal(wrong, 0);
            assert_int_equal(ls_crew_measure(crew, 0, 40, seconds), LS_OK);
            for (size_t k = 0; k < 40; k++) {
                assert_true(seconds[k] >= 0 && seconds[k] < 60);
            }
            assert_true(ls_micro_median(seconds, 40) > 0);
            assert_int_equal(ls_crew_check(crew, 0, &wrong), LS_OK);
            assert_int_equal(wrong, 0);
            assert_int_equal(ls_crew_release(crew, 0), LS_OK);
        }
    }
    ls_crew_close(crew);
}

/* Two jobs open at the same time, as the sides of a ratio are. */
static void jobs_take_turns(void **state) {
    (void)state;
    ls_crew *crew = NULL;
    double seconds[3], line = 0;
    ls_micro_job allreduce = job_of("allreduce", 4096, true, LS_MICRO_CLOCK_STREAM);
    ls_micro_job memory = {.op = "memory", .bytes = 4096};
    assert_int_equal(ls_crew_open(LS_CREW_THREADS, 2, &crew), LS_OK);
    assert_int_equal(ls_crew_prepare(crew, 0, &allreduce), LS_OK);
    assert_int_equal(ls_crew_prepare(crew, 1, &memory), LS_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ls_crew_measure(crew, i % 2, 3, seconds), LS_OK);
    }
    assert_int_equal(ls_crew_line_seconds(crew, &line), LS_OK);
    assert_true(line > 0);
    ls_crew_close(crew); /* with both still open */
}

/* seed-cnn: 2*(24*24*250 + 8*8*5000 + 16000 + 500) = 961,000 forward. */
static void a_step_has_its_operations(void **state) {
    (void)state;
    ls_run run;
    ls_model model;
    ls_normalize normalize;
    ls_micro_step_run("seed-cnn", LS_FLOAT32, 64, &run);
    assert_int_equal(ls_run_model(&run, &model, &normalize), LS_OK);
    /* backward a quarter of conv1's 288,000 once and of conv2's 640,000 twice, and 33,000 of linear layers twice */
    assert_float_equal(ls_micro_step_flops(&model), 961000 + 72000 + 2 * 160000 + 2 * 33000, 0);
    for (const ls_micro_model *m = ls_micro_models; m->label != NULL; m++) {
        ls_micro_step_run(m->model, LS_FLOAT32, 64, &run);
        assert_int_equal(ls_run_model(&run, &model, &normalize), LS_OK);
        if (strcmp(m->label, "cnn-20-50-500") == 0) {
            assert_int_equal(model.param_count, 431080);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_are_right_and_timed),
        cmocka_unit_test(jobs_take_turns),
        cmocka_unit_test(a_step_has_its_operations),
    };
    return cmocka_run_group_tests_name("micro crew", tests, NULL, NULL);
}
