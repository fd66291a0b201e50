/* The program `lockstep`: finds the command and runs it. */
#include <stdio.h>
#include <string.h>

#include "bench/commands.h"
#include "gpu/base/error.h"
#include "gpu/base/output.h"

static void print_usage(FILE *out) {
    fprintf(out, "usage: lockstep COMMAND [OPTIONS]\n\n");
    for (const ls_command *command = ls_commands; command->name != NULL; command++) {
        if (command->summary != NULL) {
            fprintf(out, "  %-8s %s\n", command->name, command->summary);
        }
    }
    fprintf(out, "\n`lockstep COMMAND --help` lists the options of a command.\n");
}

static ls_rc run_command(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return LS_BAD_INPUT;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return LS_OK;
    }
    for (const ls_command *command = ls_commands; command->name != NULL; command++) {
        if (strcmp(command->name, argv[1]) == 0) {
            return command->run(argc - 2, argv + 2);
        }
    }
    return ls_fail(LS_BAD_INPUT, "unknown command '%s'; `lockstep --help` lists the commands", argv[1]);
}

int main(int argc, char **argv) {
    return ls_output_end(run_command(argc, argv));
}
