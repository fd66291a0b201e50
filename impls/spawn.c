#include "impls/spawn.h"
#include "impls/pidfd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

ls_rc ls_environment_copy(ls_environment *out) {
    *out = (ls_environment){0};
    size_t count = 0;
    while (environ != NULL && environ[count] != NULL) {
        count++;
    }
    out->items = ls_calloc(count + 1, sizeof *out->items, "an environment");
    if (out->items == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (; out->count < count; out->count++) {
        out->items[out->count] = strdup(environ[out->count]);
        if (out->items[out->count] == NULL) {
            ls_environment_free(out);
            return ls_fail(LS_DEVICE_FAILED, "out of memory for an environment");
        }
    }
    return LS_OK;
}

ls_rc ls_environment_set(ls_environment *environment, const char *name, const char *value, bool keep) {
    size_t length = strlen(name), at = 0;
    while (at < environment->count &&
           (strncmp(environment->items[at], name, length) != 0 || environment->items[at][length] != '=')) {
        at++;
    }
    if (at < environment->count && keep) {
        return LS_OK;
    }
    size_t size = length + strlen(value) + 2;
    char *item = ls_calloc(1, size, "an environment variable");
    if (item == NULL) {
        return LS_DEVICE_FAILED;
    }
    snprintf(item, size, "%s=%s", name, value);
    if (at < environment->count) {
        free(environment->items[at]);
        environment->items[at] = item;
        return LS_OK;
    }
    char **items = realloc(environment->items, (environment->count + 2) * sizeof *items);
    if (items == NULL) {
        free(item);
        return ls_fail(LS_DEVICE_FAILED, "out of memory for an environment");
    }
    items[environment->count++] = item;
    items[environment->count] = NULL;
    environment->items = items;
    return LS_OK;
}

void ls_environment_free(ls_environment *environment) {
    for (size_t i = 0; i < environment->count; i++) {
        free(environment->items[i]);
    }
    free(environment->items);
    *environment = (ls_environment){0};
}

/* Every step returns an errno value, as posix_spawn does. */
static int prepare_files(posix_spawn_file_actions_t *actions, const ls_spawn_files *files) {
    int error = files->in >= 0 ? posix_spawn_file_actions_adddup2(actions, files->in, STDIN_FILENO)
                               : posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (error == 0) {
        /* dup2 onto itself clears close-on-exec */
        error = files->out >= 0 ? posix_spawn_file_actions_adddup2(actions, files->out, STDOUT_FILENO)
                                : posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    }
    if (error == 0 && files->error >= 0) {
        error = posix_spawn_file_actions_adddup2(actions, files->error, STDERR_FILENO);
    }
    return error;
}

static int prepare_attributes(posix_spawnattr_t *attributes, bool detached) {
    sigset_t mask;
    sigemptyset(&mask);
    short flags = POSIX_SPAWN_SETSIGMASK;
    if (detached) {
        sigfillset(&mask);
        flags |= POSIX_SPAWN_SETSID;
    }
    int error = posix_spawnattr_setsigmask(attributes, &mask);
    if (error == 0) {
        error = posix_spawnattr_setflags(attributes, flags);
    }
    return error;
}

ls_rc ls_spawn(char *const *argv, const ls_environment *environment, const ls_spawn_files *files, ls_child *child) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    *child = (ls_child){.pidfd = -1};
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0) {
        return ls_fail(LS_DEVICE_FAILED, "cannot start %s: %s", argv[0], strerror(error));
    }
    error = posix_spawnattr_init(&attributes);
    if (error == 0) {
        error = prepare_files(&actions, files);
        if (error == 0) {
            error = prepare_attributes(&attributes, files->detached);
        }
        if (error == 0) {
            error = posix_spawnp(&child->pid, argv[0], &actions, &attributes, argv, environment->items);
        }
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        child->pid = 0;
        return ls_fail(LS_DEVICE_FAILED, "cannot start %s: %s", argv[0], strerror(error));
    }
    child->pidfd = ls_pidfd_open(child->pid);
    if (child->pidfd < 0) {
        error = errno;
        kill(child->pid, SIGKILL);
        ls_child_close(child);
        return ls_fail(LS_DEVICE_FAILED, "pidfd_open: %s", strerror(error));
    }
    return LS_OK;
}

bool ls_child_poll(ls_child *child) {
    if (child->pid != 0 && !child->ended) {
        child->ended = waitpid(child->pid, &child->status, WNOHANG) == child->pid;
    }
    return child->ended;
}

void ls_child_signal(const ls_child *child, int signal_number) {
    if (child->pid != 0 && !child->ended) {
        kill(child->pid, signal_number); /* not yet reaped: the number is still this child's */
    }
}

void ls_child_close(ls_child *child) {
    if (child->pid != 0 && !child->ended) {
        while (waitpid(child->pid, &child->status, 0) < 0 && errno == EINTR) {
        }
        child->ended = true;
    }
    if (child->pid != 0 && child->pidfd >= 0) {
        close(child->pidfd);
        child->pidfd = -1;
    }
}

size_t ls_children_at_once(size_t most) {
    cpu_set_t cores;
    int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    return count < 1 ? 1 : (size_t)count > most ? most : (size_t)count;
}

void ls_children_wait(const ls_child *const *children, size_t count, int extra) {
    struct pollfd fds[LS_MOST_CHILDREN + 1] = {{.fd = extra, .events = POLLIN}};
    for (size_t i = 0; i < count && i < LS_MOST_CHILDREN; i++) {
        fds[i + 1] = (struct pollfd){.fd = children[i]->pidfd, .events = POLLIN};
    }
    (void)poll(fds, (nfds_t)(count < LS_MOST_CHILDREN ? count : LS_MOST_CHILDREN) + 1, -1);
}
