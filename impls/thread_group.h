/* What ranks as threads of one process share: a barrier and a slot for bytes, both with a time limit. The launcher opens one
 * for the ranks of a run and hands it to each as ls_rank.shared. */
#ifndef LS_IMPLS_THREAD_GROUP_H
#define LS_IMPLS_THREAD_GROUP_H

#include <stddef.h>

#include "gpu/base/error.h"

typedef struct ls_thread_group ls_thread_group;

/* world: threads that take part, ranks 0 .. world-1. Owned by the caller, closed after every rank has ended. */
ls_rc ls_thread_group_open(size_t world, ls_thread_group **out);
void ls_thread_group_close(ls_thread_group *group);

/* Waits until every rank has called it. After `timeout` seconds the missing ranks are named in one line, and it fails on
 * every rank with LS_DEVICE_FAILED, as do all later calls. */
ls_rc ls_thread_group_barrier(ls_thread_group *group, size_t rank, double timeout);

/* Copies `size` bytes of rank 0 to every rank. Collective, with the barrier's time limit and errors. */
ls_rc ls_thread_group_share(ls_thread_group *group, size_t rank, void *bytes, size_t size, double timeout);

/* A rank that gives up says so: every waiting and later call fails at once, without a line of its own. */
void ls_thread_group_cancel(ls_thread_group *group);

#endif
