/* Process file descriptors, by their system calls: glibc has functions for them only from 2.36 on, and programs built here run
 * where it is older (scripts/bundle_gpu.sh). */
#ifndef LS_IMPLS_PIDFD_H
#define LS_IMPLS_PIDFD_H

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* A descriptor that becomes readable when the process ends; -1 with errno set on failure. The caller closes it. */
static inline int ls_pidfd_open(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0U);
}

/* Sends a signal to the process, if it is still there. 0, or -1 with errno set. */
static inline int ls_pidfd_send_signal(int fd, int number) {
    return (int)syscall(SYS_pidfd_send_signal, fd, number, NULL, 0U);
}

#endif
