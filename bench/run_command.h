/* A command that is one run: `lockstep train` and `lockstep eval`. */
#ifndef LS_BENCH_RUN_COMMAND_H
#define LS_BENCH_RUN_COMMAND_H

#include <jansson.h>

#include "impls/launch.h"
#include "impls/options.h"

typedef struct ls_run_command {
    unsigned command;
    const char *name;                                     /* as the user types it; the kind of its result row */
    void (*fill)(json_t *row, const ls_outcome *outcome); /* adds what the run found to its row */
    /* After a run that came to its end; NULL: nothing. */
    ls_rc (*after)(const char *program, const ls_run *run, const ls_outcome *outcome);
} ls_run_command;

/* Runs it: as one rank where others start the ranks (mpirun, or RANK and WORLD_SIZE set), else it starts them itself, and
 * appends a row to run->json where that is given. Errors are printed; the run's own code is returned. */
ls_rc ls_run_command_run(const ls_run_command *command, ls_run *run);

#endif
