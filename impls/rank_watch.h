/* A rank's side of the launcher's watch: its place on the page, and its end on the launcher's word or with it. */
#ifndef LS_IMPLS_RANK_WATCH_H
#define LS_IMPLS_RANK_WATCH_H

#include <stdbool.h>

#include "impls/progress.h"

/* Enters ranks first..first+count of this process on the page of the run's private folder. From here on SIGTERM, SIGINT and SIGHUP
 * end the process and are recorded there; without mpirun it ends with the launcher too. *page is owned by the caller and must live as
 * long as the process. LS_BAD_INPUT with a line when the run has fewer ranks. Once a process. */
ls_rc ls_rank_watch_join(const char *folder, size_t first, size_t count, bool mpirun, ls_progress **page);

#endif
