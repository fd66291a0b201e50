/* lockstep eval: accuracy and loss of saved parameters. */
#include <string.h>

#include "bench/cmd.h"
#include "bench/results.h"
#include "impls/launch.h"
#include "impls/options.h"
#include "impls/rank.h"

static ls_rc write_json(const ls_run *run, const ls_outcome *outcome) {
    char command[4096];
    ls_options_line("lockstep", LS_COMMAND_EVAL, run, command, sizeof command);
    json_t *row = ls_result_row("eval", run, command);
    if (row == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the results of the evaluation");
    }
    json_t *first = json_array_get(outcome->ranks, 0);
    json_t *result = json_array_get(json_object_get(first, "epochs"), 0);
    json_object_set_new(row, "status", json_string("DONE"));
    json_object_set(row, "param_hash", json_object_get(first, "param_hash"));
    json_object_update(row, result); /* test_loss, test_accuracy, correct, samples */
    ls_rc rc = ls_results_append(run->json, row);
    json_decref(row);
    return rc;
}

ls_rc ls_command_eval(int argc, char **argv) {
    ls_options options;
    bool help = false;
    LS_TRY(ls_options_parse(LS_COMMAND_EVAL, argc, argv, &options, &help));
    if (help) {
        return LS_OK;
    }
    ls_run *run = &options.run;
    run->evaluate = true;
    run->evaluate_only = true;
    if (run->json[0] != '\0' && ls_rank_started_outside(run)) {
        return ls_fail(LS_BAD_INPUT, "--json needs an evaluation that lockstep starts itself; leave it out");
    }
    if (ls_rank_started_outside(run)) {
        return ls_rank_main(run);
    }
    LS_TRY(ls_launch_refuse_nested("eval"));
    LS_TRY(ls_run_check(run));
    if (run->json[0] != '\0') {
        LS_TRY(ls_results_check(run->json));
    }
    char program[LS_PATH_SIZE];
    LS_TRY(ls_launch_self(program, sizeof program));
    ls_outcome outcome = {0};
    ls_rc rc = ls_launch(program, run, &outcome);
    if (rc == LS_OK && run->json[0] != '\0') {
        rc = write_json(run, &outcome);
    }
    ls_outcome_release(&outcome);
    return rc;
}
