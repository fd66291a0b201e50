#include "impls/rank_guard.h"
#include "impls/pidfd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "impls/progress.h"
#include "impls/run_dir.h"

pid_t ls_rank_guard_launcher(void) {
    const char *text = getenv("LOCKSTEP_LAUNCHER");
    return text != NULL ? (pid_t)strtol(text, NULL, 10) : 0;
}

void ls_rank_guard_follow_parent(int signal_number, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, signal_number);
    /* the parent may have ended before the call: then nobody would ever tell */
    if (parent != 0 && getppid() != parent) {
        _exit(LS_DEVICE_FAILED);
    }
}

/* Ends a process of the run and waits for its end, at most limit_ms. ms of grace for an orderly end first. */
static void end_process(uint32_t pid, int grace_ms) {
    if (pid == 0) {
        return;
    }
    int fd = ls_pidfd_open((pid_t)pid);
    if (fd < 0) {
        return; /* gone */
    }
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (poll(&wait, 1, grace_ms) == 0) {
        ls_pidfd_send_signal(fd, SIGKILL);
        poll(&wait, 1, 5000);
    }
    close(fd);
}

/* Whether a pid of the page is still a process of this run: its number may belong to another by now. */
static int is_ours(uint32_t pid, const char *run_dir) {
    char path[64], text[8192];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    size_t count = fread(text, 1, sizeof text, file);
    fclose(file);
    return memmem(text, count, run_dir, strlen(run_dir)) != NULL;
}

/* The ranks end by themselves when the launcher is gone (ls_rank_guard_follow_parent); mpirun takes a moment to end its
 * own. The grace lets it; what is left then is killed. */
static void end_processes(const char *run_dir) {
    char path[LS_PATH_SIZE + 16];
    struct stat status;
    ls_progress *page;
    snprintf(path, sizeof path, "%s/progress", run_dir);
    if (stat(path, &status) != 0 || ls_progress_open(run_dir, &page) != LS_OK) {
        return;
    }
    uint32_t supervisor = atomic_load(&page->supervisor);
    if (is_ours(supervisor, run_dir)) {
        end_process(supervisor, 3000);
    }
    for (size_t r = 0; r < page->ranks; r++) {
        uint32_t pid = atomic_load(&page->rank[r].pid);
        if (is_ours(pid, run_dir)) {
            end_process(pid, 500);
        }
    }
    ls_progress_close(page);
}

static ls_rc clean(const char *run_dir) {
    char byte;
    ssize_t got;
    do {
        got = read(STDIN_FILENO, &byte, 1);
    } while (got > 0 || (got < 0 && errno == EINTR));
    end_processes(run_dir);
    ls_run_dir_remove_tree(run_dir);
    return LS_OK;
}

static ls_rc follow(char **argv) {
    ls_rank_guard_follow_parent(SIGTERM, ls_rank_guard_launcher());
    execvp(argv[0], argv);
    return ls_fail(LS_DEVICE_FAILED, "cannot start %s: %s", argv[0], strerror(errno));
}

ls_rc ls_rank_guard_main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[0], "clean") == 0) {
        return clean(argv[1]);
    }
    if (argc >= 2 && strcmp(argv[0], "exec") == 0) {
        return follow(argv + 1);
    }
    return ls_fail(LS_BAD_INPUT, "rank-guard: expected 'clean FOLDER' or 'exec PROGRAM...'; the launcher starts it");
}
