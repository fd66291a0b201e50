/* Result rows (docs/result-format.md): what every row says of its run and of the machine, and appending them whole. */
#ifndef LS_BENCH_RESULTS_H
#define LS_BENCH_RESULTS_H

#include <jansson.h>

#include "gpu/base/error.h"
#include "impls/run.h"

/* A new row of kind "sweep", "verify" or "train" with schema, the run's independent variables, platform, environment, time
 * and null for everything still unknown; command is the reproducing line. Owned by the caller; NULL when memory is short. */
json_t *ls_result_row(const char *kind, const ls_run *run, const char *command);

/* What computed, as rank 0 of the run says at its end: with every algorithm that it chose. The row has this process's word before.
 * ranks: the ranks' results. */
void ls_result_set_math(json_t *row, const json_t *ranks);

/* Checks that path can be appended to (its folder exists and is writable), before anything is measured. Does not make the file, so
 * that a run which is refused leaves none. A pipe or a device is taken too. */
ls_rc ls_results_check(const char *path);

/* Appends row as one line with one write and syncs it, so that a killed program loses at most the row under way. Behind a line
 * that was cut it starts a new one. What cannot be written is one line and LS_BAD_INPUT. */
ls_rc ls_results_append(const char *path, const json_t *row);

/* The counters of a run (docs/result-format.md): those of all ranks' results (array of rank objects, impls/rank.h) added, but of
 * the first rank what all share (steps, buckets) and the overlap's lead. Owned by the caller. */
json_t *ls_result_counters(const json_t *ranks);

/* The rows of a file that a command of this program has written: an array, owned by the caller; empty when there is no file.
 * Lines that are no JSON are left out: a process that was killed may leave half a row. NULL when memory is short. */
json_t *ls_results_read(const char *path);

#endif
