/* lockstep eval: accuracy and loss of saved parameters. */
#include "bench/cmd.h"
#include "bench/run_command.h"

/* test_loss, test_accuracy, correct, samples */
static void fill(json_t *row, const ls_outcome *outcome) {
    json_t *first = json_array_get(outcome->ranks, 0);
    json_object_update(row, json_array_get(json_object_get(first, "epochs"), 0));
}

ls_rc ls_command_eval(int argc, char **argv) {
    ls_options options;
    bool help = false;
    LS_TRY(ls_options_parse(LS_COMMAND_EVAL, argc, argv, &options, &help));
    if (help) {
        return LS_OK;
    }
    options.run.evaluate = true;
    options.run.evaluate_only = true;
    static const ls_run_command command = {LS_COMMAND_EVAL, "eval", fill, NULL};
    return ls_run_command_run(&command, &options.run);
}
