#include "impls/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "impls/spawn.h"

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status;
    (void)kind;
    (void)place;
    remove(path); /* what cannot be removed now is tried again by the guard */
    return 0;
}

void ls_run_dir_remove_tree(const char *path) {
    const char *name = strrchr(path, '/');
    if (name != NULL && strncmp(name, "/lockstep-", 10) == 0) {
        nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    }
}

/* The guard holds the reading end of a pipe whose writing end is this process's alone: it reads end of file when this
 * process is gone, however that happened. */
static ls_rc start_guard(const char *program, ls_outcome *outcome) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "pipe: %s", strerror(errno));
    }
    ls_environment environment;
    ls_child guard = {0};
    ls_rc rc = ls_environment_copy(&environment);
    if (rc == LS_OK) {
        char *argv[] = {(char *)program, "rank-guard", "clean", outcome->run_dir, NULL};
        rc = ls_spawn(argv, &environment, &(ls_spawn_files){.in = ends[0], .out = -1, .error = -1, .detached = true},
                      &guard);
        ls_environment_free(&environment);
    }
    close(ends[0]);
    if (rc != LS_OK) {
        close(ends[1]);
        return rc;
    }
    close(guard.pidfd);
    outcome->guard_pid = guard.pid;
    outcome->guard_fd = ends[1];
    return LS_OK;
}

ls_rc ls_run_dir_make(const char *program, ls_outcome *outcome) {
    const char *base = getenv("TMPDIR");
    if (base == NULL || base[0] == '\0') {
        base = "/tmp";
    }
    char real[PATH_MAX]; /* mpirun and the ranks may run in another folder: the name must be absolute */
    if (realpath(base, real) == NULL) {
        return ls_fail(LS_BAD_INPUT, "no private folder for the run: TMPDIR is '%s': %s", base, strerror(errno));
    }
    int length = snprintf(outcome->run_dir, sizeof outcome->run_dir, "%s/lockstep-XXXXXX", real);
    if (length < 0 || (size_t)length + 64 > sizeof outcome->run_dir) {
        outcome->run_dir[0] = '\0';
        return ls_fail(LS_BAD_INPUT, "no private folder for the run: TMPDIR is too long (%s)", base);
    }
    if (mkdtemp(outcome->run_dir) == NULL) {
        outcome->run_dir[0] = '\0';
        return ls_fail(LS_BAD_INPUT,
                       "no private folder for the run in %s: %s; set TMPDIR to a folder that can be written", real,
                       strerror(errno));
    }
    ls_rc rc = start_guard(program, outcome);
    if (rc != LS_OK) {
        ls_run_dir_remove(outcome);
    }
    return rc;
}

void ls_run_dir_remove(ls_outcome *outcome) {
    if (outcome->run_dir[0] != '\0') {
        ls_run_dir_remove_tree(outcome->run_dir);
        outcome->run_dir[0] = '\0';
    }
    if (outcome->guard_pid != 0) {
        close(outcome->guard_fd);
        while (waitpid(outcome->guard_pid, NULL, 0) < 0 && errno == EINTR) {
        }
        outcome->guard_pid = 0;
    }
}
