/* SIGINT, SIGTERM, SIGHUP and SIGPIPE while ranks run: the run is put away first, then the signal takes its course. */
#ifndef LS_IMPLS_INTERRUPT_H
#define LS_IMPLS_INTERRUPT_H

#include "gpu/base/error.h"

/* From here on a signal makes ls_interrupt_fd readable instead of ending the process. Not nested, one thread at a time. */
ls_rc ls_interrupt_begin(void);
int ls_interrupt_fd(void);
/* The first signal that came; 0: none. */
int ls_interrupt_signal(void);
/* As if this signal had come, unless one has. */
void ls_interrupt_take(int number);
/* Restores what was before; a signal that has come takes its course now, as if it had never been caught. One line names it,
 * but for SIGPIPE, by which programs end in silence. */
void ls_interrupt_end(void);

#endif
