/* lockstep train: one training run. */
#include <stdio.h>
#include <string.h>

#include "bench/cmd.h"
#include "bench/results.h"
#include "bench/run_command.h"
#include "impls/launch.h"
#include "impls/rank.h"

static void fill(json_t *row, const ls_outcome *outcome) {
    json_t *first = json_array_get(outcome->ranks, 0);
    json_object_set_new(row, "counters", ls_result_counters(outcome->ranks));
    json_object_set(row, "log", json_object_get(first, "log"));
    json_object_set(row, "epochs", json_object_get(first, "epochs"));
    json_object_set(row, "rank_results", outcome->ranks);
}

/* Samples a second of a run, over its epochs. */
static double throughput(const ls_outcome *outcome) {
    json_t *first = json_array_get(outcome->ranks, 0);
    double samples = json_number_value(json_object_get(first, "samples"));
    double seconds = json_number_value(json_object_get(first, "train_seconds"));
    return seconds > 0 ? samples / seconds : 0;
}

/* A run as long as LEAST_STEPS is worth a comparison; its base has as many steps, the slow first ones included as in the run
 * itself, but no more than BASE_STEPS. */
enum { LEAST_STEPS = 100, BASE_STEPS = 500 };

/* A run on several devices ends with its speed-up. A short one says little about speed. */
static bool wants_base(const ls_run *run, const ls_outcome *outcome) {
    json_int_t steps = json_integer_value(json_object_get(json_array_get(outcome->ranks, 0), "steps"));
    return run->baseline || (!run->no_baseline && run->devices > 1 && run->log_every != 0 && steps >= LEAST_STEPS);
}

/* The first steps of the run on one device, with this run's samples a device. */
static ls_rc measure_base(const char *program, const ls_run *run, const ls_outcome *outcome, size_t *batch,
                          double *rate) {
    ls_run base = *run;
    size_t global = 0;
    LS_TRY(ls_run_batches(run, batch, &global));
    ls_run_make_single(&base);
    base.ranks = LS_RANKS_PROCESSES;
    base.batch = *batch;
    base.global_batch = 0;
    size_t steps = (size_t)json_integer_value(json_object_get(json_array_get(outcome->ranks, 0), "steps"));
    base.steps = steps < BASE_STEPS ? steps : BASE_STEPS;
    base.log_every = 0;
    base.evaluate = base.baseline = base.time_steps = false;
    base.save[0] = base.save_grads[0] = base.json[0] = base.checkpoint[0] = base.load[0] = base.resume[0] = '\0';
    ls_outcome measured = {0};
    LS_TRY(ls_run_check(&base));
    ls_rc rc = ls_launch(program, &base, &measured);
    *rate = rc == LS_OK ? throughput(&measured) : 0;
    ls_outcome_release(&measured);
    return rc;
}

/* What the run gained over one device, measured here and now. */
static ls_rc print_speed_up(const char *program, const ls_run *run, const ls_outcome *outcome) {
    if (!wants_base(run, outcome)) {
        return LS_OK;
    }
    size_t batch = 0;
    double base = 0;
    double rate = throughput(outcome);
    LS_TRY(measure_base(program, run, outcome, &batch, &base));
    printf(
        "Speed-up over one device: %.2f (%s, %zu device%s: %.0f samples/s; base: single, 1 device, %zu samples a step, "
        "the first %d steps at most: %.0f samples/s); of one run each: `lockstep sweep` gives it an interval\n",
        base > 0 ? rate / base : 0, run->impl, run->devices, run->devices == 1 ? "" : "s", rate, batch, (int)BASE_STEPS,
        base);
    size_t cores = ls_platform_shared_cores();
    if (cores > 0 && run->devices > cores) {
        printf("%zu devices share %zu cores: this is no measure of scaling\n", run->devices, cores);
    }
    return LS_OK;
}

ls_rc ls_command_train(int argc, char **argv) {
    ls_options options;
    bool help = false;
    LS_TRY(ls_options_parse(LS_COMMAND_TRAIN, argc, argv, &options, &help));
    if (help) {
        return LS_OK;
    }
    ls_run *run = &options.run;
    run->evaluate = true;
    if (run->baseline && run->no_baseline) {
        return ls_fail(LS_BAD_INPUT, "--baseline and --no-baseline contradict each other; give one of them");
    }
    if (run->baseline && run->steps == 0) {
        return ls_fail(LS_BAD_INPUT, "--baseline: a run of 0 steps has no speed to compare");
    }
    if (run->baseline && ls_rank_started_outside(run)) {
        return ls_fail(LS_BAD_INPUT, "--baseline needs a run that lockstep starts itself; measure one device apart");
    }
    static const ls_run_command command = {LS_COMMAND_TRAIN, "train", fill, print_speed_up};
    return ls_run_command_run(&command, run);
}
