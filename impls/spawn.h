/* Starting a process with its own environment. */
#ifndef LS_IMPLS_SPAWN_H
#define LS_IMPLS_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "gpu/base/error.h"

/* A copy of this process's environment that can be changed. Owned: ls_environment_free. */
typedef struct ls_environment {
    char **items; /* NULL-ended */
    size_t count;
} ls_environment;

ls_rc ls_environment_copy(ls_environment *out);
/* Sets a variable; one that is set already stays when keep is true. Out of memory: one line, LS_DEVICE_FAILED. */
ls_rc ls_environment_set(ls_environment *environment, const char *name, const char *value, bool keep);
void ls_environment_free(ls_environment *environment);

/* A process of this launcher. */
typedef struct ls_child {
    pid_t pid; /* 0: never started */
    int pidfd; /* readable once it has ended; -1: none */
    bool ended;
    int status; /* as of waitpid, once ended */
} ls_child;

/* Where a new process reads and writes. */
typedef struct ls_spawn_files {
    int in, out, error; /* file descriptors; -1: /dev/null for in and out, for error this process's own */
    bool detached;      /* own session, and signals stay blocked: what ends the launcher does not end it */
} ls_spawn_files;

/* posix_spawn of argv[0] (a path, or a name found in PATH). One line and LS_DEVICE_FAILED. */
ls_rc ls_spawn(char *const *argv, const ls_environment *environment, const ls_spawn_files *files, ls_child *child);

/* Looks whether the child has ended, without waiting; reaps it. */
bool ls_child_poll(ls_child *child);
/* Sends a signal unless it has ended. */
void ls_child_signal(const ls_child *child, int signal_number);
/* Waits for the end and closes the pidfd. Safe on a zeroed child. */
void ls_child_close(ls_child *child);

/* How many independent processes to run at a time: one for each core that this process may use, from 1 to most. */
size_t ls_children_at_once(size_t most);
enum { LS_MOST_CHILDREN = 64 };
/* Waits until one of the children (started, not ended; at most LS_MOST_CHILDREN) has ended, or extra is readable; -1: nothing
 * extra. */
void ls_children_wait(const ls_child *const *children, size_t count, int extra);

#endif
