/* What the ranks of a run write to stderr, on its way through the launcher: whole lines, each once. Lockstep's own lines are
 * held for a moment, so that when a rank dies only the line that names the cause is shown, not those of its victims. */
#ifndef LS_IMPLS_ERROR_LINES_H
#define LS_IMPLS_ERROR_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "gpu/base/error.h"

typedef struct ls_error_lines ls_error_lines;

/* mpirun: leave out mpirun's own blocks between dashed lines; the first sentence of the first is kept as a hint. */
ls_rc ls_error_lines_open(bool mpirun, ls_error_lines **out);
void ls_error_lines_close(ls_error_lines *lines);

/* The end of the pipe that ranks write to, and the one that the launcher polls (non-blocking). */
int ls_error_lines_writer(const ls_error_lines *lines);
int ls_error_lines_reader(const ls_error_lines *lines);
/* Closes the writing end, once every rank has been started. */
void ls_error_lines_started(ls_error_lines *lines);

/* Reads what is there. */
void ls_error_lines_read(ls_error_lines *lines);

/* Shows the lines that were held already at the last call. */
void ls_error_lines_tick(ls_error_lines *lines);
/* Shows all held lines. */
void ls_error_lines_show(ls_error_lines *lines);

/* The run has failed: shows the held lines of rank (-1: of any), with unnamed also those without a rank, and drops the
 * others. The first shown goes to text without its "lockstep: " and rank; returns false when there was none. */
bool ls_error_lines_settle(ls_error_lines *lines, int rank, bool unnamed, char *text, size_t size);

/* What mpirun said on its own; "" when nothing. */
const char *ls_error_lines_hint(const ls_error_lines *lines);

#endif
