/* The table of commands. A new command is one file bench/cmd_<name>.c and one line in bench/commands.c. */
#ifndef LS_BENCH_COMMANDS_H
#define LS_BENCH_COMMANDS_H

#include "gpu/base/error.h"

typedef struct ls_command {
    const char *name;
    const char *summary;                 /* NULL: hidden (rank programs) */
    ls_rc (*run)(int argc, char **argv); /* arguments after the command's name; returns the exit code */
} ls_command;

/* Ended by a NULL name. */
extern const ls_command ls_commands[];

#endif
