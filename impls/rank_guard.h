/* The hidden command `rank-guard`: what must outlive the launcher, or end with it. */
#ifndef LS_IMPLS_RANK_GUARD_H
#define LS_IMPLS_RANK_GUARD_H

#include <sys/types.h>

#include "gpu/base/error.h"

/* Arguments after the command's name:
 *   clean FOLDER     waits until standard input ends (the launcher is gone or done), ends what is left of the run and
 *                    removes its private folder
 *   exec PROGRAM...  becomes PROGRAM, which is ended when the launcher (LOCKSTEP_LAUNCHER, its pid) is gone */
ls_rc ls_rank_guard_main(int argc, char **argv);

/* The calling process gets the signal when its parent ends; ends at once when that has happened already. parent: pid that
 * the parent must have; 0: any. */
void ls_rank_guard_follow_parent(int signal_number, pid_t parent);

/* The launcher's pid from LOCKSTEP_LAUNCHER; 0: none. */
pid_t ls_rank_guard_launcher(void);

#endif
