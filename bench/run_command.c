#include "bench/run_command.h"

#include "bench/results.h"
#include "impls/rank.h"

static ls_rc append_row(const ls_run_command *command, const ls_run *run, const ls_outcome *outcome) {
    char line[4096];
    ls_options_line("lockstep", command->command, run, line, sizeof line);
    json_t *row = ls_result_row(command->name, run, line);
    if (row == NULL) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the results of the run");
    }
    json_object_set_new(row, "status", json_string("DONE"));
    json_object_set(row, "param_hash", json_object_get(json_array_get(outcome->ranks, 0), "param_hash"));
    ls_result_set_math(row, outcome->ranks);
    command->fill(row, outcome);
    ls_rc rc = ls_results_append(run->json, row);
    json_decref(row);
    return rc;
}

ls_rc ls_run_command_run(const ls_run_command *command, ls_run *run) {
    bool wants_row = run->json[0] != '\0';
    ls_math_set_mode(run->math);
    if (ls_rank_started_outside(run)) {
        return wants_row ? ls_fail(LS_BAD_INPUT, "--json needs a run that lockstep starts itself; leave it out")
                         : ls_rank_main(run);
    }
    LS_TRY(ls_launch_refuse_nested(command->name));
    LS_TRY(ls_run_check(run));
    if (wants_row) {
        LS_TRY(ls_results_check(run->json));
    }
    char program[LS_PATH_SIZE];
    LS_TRY(ls_launch_self(program, sizeof program));
    ls_outcome outcome = {0};
    ls_rc rc = ls_launch(program, run, &outcome);
    if (rc == LS_OK && wants_row) {
        rc = append_row(command, run, &outcome);
    }
    if (rc == LS_OK && command->after != NULL) {
        rc = command->after(program, run, &outcome);
    }
    ls_outcome_release(&outcome);
    return rc;
}
