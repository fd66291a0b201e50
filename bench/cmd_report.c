/* lockstep report: result file -> index.html with plots. */
#include <stdio.h>

#include "bench/cmd.h"
#include "impls/options.h"
#include "reports/report.h"

ls_rc ls_command_report(int argc, char **argv) {
    ls_options options;
    bool help = false;
    LS_TRY(ls_options_parse(LS_COMMAND_REPORT, argc, argv, &options, &help));
    if (help) {
        return LS_OK;
    }
    if (options.input[0] == '\0') {
        return ls_fail(LS_BAD_INPUT, "report needs a result file: lockstep report results.jsonl -o FOLDER");
    }
    char index[LS_PATH_SIZE];
    LS_TRY(ls_report_generate(options.input, options.output, index, sizeof index));
    printf("%s\n", index);
    return LS_OK;
}
