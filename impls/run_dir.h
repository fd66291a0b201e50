/* The private folder of a run: made by the launcher, removed with everything in it when the run is over, by a guard
 * process when the launcher itself was killed. */
#ifndef LS_IMPLS_RUN_DIR_H
#define LS_IMPLS_RUN_DIR_H

#include "impls/launch.h"

/* Makes lockstep-XXXXXX in TMPDIR (default /tmp) and starts `program rank-guard clean <folder>`, which removes it when this
 * process is gone. Fills outcome->run_dir, guard_pid and guard_fd. */
ls_rc ls_run_dir_make(const char *program, ls_outcome *outcome);

/* Removes the folder and ends its guard. */
void ls_run_dir_remove(ls_outcome *outcome);

/* Removes a folder and everything below, without following links. Only folders named lockstep-*. */
void ls_run_dir_remove_tree(const char *path);

#endif
