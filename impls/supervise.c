#include "impls/supervise.h"
#include "gpu/base/clock.h"
#include "impls/pidfd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "impls/interrupt.h"

/* How often the page is looked at. Ends of processes are seen at once. */
static const double tick_seconds = 0.25;
static const int terminate_ms = 2000;

static bool all_ended(ls_watch *watch) {
    bool all = true;
    for (size_t i = 0; i < watch->count; i++) {
        all = ls_child_poll(&watch->children[i]) && all;
    }
    return all;
}

/* mpirun starts its ranks itself; their pids stand in the page. */
static void find_rank_fds(ls_watch *watch) {
    for (size_t r = 0; watch->mpirun && r < watch->page->ranks; r++) {
        uint32_t pid = atomic_load(&watch->page->rank[r].pid);
        if (watch->rank_fds[r] < 0 && pid != 0) {
            watch->rank_fds[r] = ls_pidfd_open((pid_t)pid);
        }
    }
}

/* Such a pipe would be ready for ever. */
static bool writers_gone(const struct pollfd *pipe) {
    return (pipe->revents & (POLLHUP | POLLIN)) == POLLHUP;
}

/* Prints what mpirun has written. What cannot be written stays an error of stdout, for ls_output_end; when nobody reads stdout any
 * more the run is interrupted by SIGPIPE (impls/interrupt.h). */
static void relay(const ls_rank_pipe *output) {
    char block[4096];
    ssize_t count;
    while (output->open && (count = read(output->reader, block, sizeof block)) > 0) {
        (void)fwrite(block, 1, (size_t)count, stdout);
        (void)fflush(stdout);
    }
}

void ls_watch_read(ls_watch *watch) {
    ls_error_lines_read(watch->lines);
    relay(&watch->output);
}

/* Waits at most limit_ms (-1: no limit) for something to happen and reads what the ranks write. extra: two more file
 * descriptors; -1: none. */
static void wait_for_event(ls_watch *watch, int limit_ms, int extra1, int extra2) {
    struct pollfd *fds = ls_calloc(watch->count + 4, sizeof *fds, "file descriptors to wait for");
    if (fds == NULL) {
        usleep(1000);
        return;
    }
    size_t count = 0;
    for (size_t i = 0; i < watch->count; i++) {
        if (watch->children[i].pid != 0 && !watch->children[i].ended) {
            fds[count++] = (struct pollfd){.fd = watch->children[i].pidfd, .events = POLLIN};
        }
    }
    fds[count++] = (struct pollfd){.fd = extra1, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = extra2, .events = POLLIN};
    const struct pollfd *error = &fds[count], *output = &fds[count + 1];
    fds[count++] = (struct pollfd){.fd = watch->hung_up ? -1 : ls_error_lines_reader(watch->lines), .events = POLLIN};
    bool relayed = watch->output.open && !watch->silent;
    fds[count++] = (struct pollfd){.fd = relayed ? watch->output.reader : -1, .events = POLLIN};
    (void)poll(fds, count, limit_ms);
    watch->hung_up = watch->hung_up || writers_gone(error);
    watch->silent = watch->silent || writers_gone(output);
    free(fds);
    ls_watch_read(watch);
}

bool ls_watch_wait(ls_watch *watch, int limit_ms) {
    double end = ls_now_seconds() + limit_ms * 1e-3;
    while (!all_ended(watch)) {
        double left = end - ls_now_seconds();
        if (left <= 0) {
            return false;
        }
        wait_for_event(watch, (int)(left * 1e3) + 1, -1, -1);
    }
    return true;
}

static void signal_all(ls_watch *watch, int number) {
    for (size_t i = 0; i < watch->count; i++) {
        ls_child_signal(&watch->children[i], number);
    }
    for (size_t r = 0; watch->mpirun && r < watch->page->ranks; r++) {
        if (watch->rank_fds[r] >= 0) {
            (void)ls_pidfd_send_signal(watch->rank_fds[r], number); /* gone already: as wanted */
        }
    }
}

/* Ranks under mpirun are not our children: wait until they are gone. */
static void wait_rank_fds(ls_watch *watch) {
    for (size_t r = 0; watch->mpirun && r < watch->page->ranks; r++) {
        if (watch->rank_fds[r] >= 0) {
            struct pollfd wait = {.fd = watch->rank_fds[r], .events = POLLIN};
            (void)ls_pidfd_send_signal(watch->rank_fds[r], SIGKILL);
            (void)poll(&wait, 1, terminate_ms);
            close(watch->rank_fds[r]);
            watch->rank_fds[r] = -1;
        }
    }
}

void ls_watch_end(ls_watch *watch, int stopped) {
    find_rank_fds(watch);
    if (stopped >= 0 && watch->mpirun && watch->rank_fds[stopped] >= 0) {
        (void)ls_pidfd_send_signal(watch->rank_fds[stopped], SIGKILL);
    } else if (stopped >= 0 && !watch->mpirun) {
        ls_child_signal(&watch->children[watch->count == 1 ? 0 : stopped], SIGKILL);
    }
    if (!all_ended(watch)) {
        signal_all(watch, SIGTERM);
        if (!ls_watch_wait(watch, terminate_ms)) {
            find_rank_fds(watch);
            signal_all(watch, SIGKILL);
        }
    }
    for (size_t i = 0; i < watch->count; i++) {
        ls_child_close(&watch->children[i]);
    }
    wait_rank_fds(watch);
    ls_watch_read(watch);
}

void ls_watch_close(ls_watch *watch) {
    ls_error_lines_close(watch->lines);
    ls_rank_pipe_close(&watch->output);
    ls_progress_close(watch->page);
    free(watch->children);
    free(watch->rank_fds);
}

/* Seconds since any rank last passed a point. */
typedef struct stall_clock {
    uint64_t phases;
    double moved, looked;
} stall_clock;

static double stalled_for(stall_clock *clock, const ls_progress *page) {
    uint64_t phases = 0;
    double now = ls_now_seconds();
    for (size_t r = 0; r < page->ranks; r++) {
        phases += atomic_load(&page->rank[r].phase) + (atomic_load(&page->rank[r].state) != LS_RANK_ABSENT);
    }
    if (now - clock->looked > 1 + tick_seconds) {
        clock->moved += now - clock->looked; /* this process itself was stopped, with the ranks perhaps */
    }
    clock->looked = now;
    if (phases != clock->phases) {
        clock->phases = phases;
        clock->moved = now;
    }
    return now - clock->moved;
}

/* Waits for the verdict: nobody (found is false) when all ranks have ended well. */
static ls_verdict watch_ranks(ls_watch *watch, int timer) {
    stall_clock clock = {.moved = ls_now_seconds(), .looked = ls_now_seconds()};
    for (;;) {
        wait_for_event(watch, -1, timer, ls_interrupt_fd());
        bool ended = all_ended(watch);
        uint64_t expirations;
        bool tick = read(timer, &expirations, sizeof expirations) > 0;
        ls_verdict verdict = ls_verdict_of_ended(watch);
        if (ls_interrupt_signal() != 0 || verdict.found || ended) {
            return verdict;
        }
        if (tick) {
            find_rank_fds(watch);
            double seconds = stalled_for(&clock, watch->page);
            size_t gone;
            if (seconds >= watch->run->timeout && ls_verdict_rank_gone(watch, &gone) &&
                ls_watch_wait(watch, terminate_ms)) {
                continue; /* mpirun took longer than the limit to end; it knows the signal */
            }
            if (seconds >= watch->run->timeout) {
                return ls_verdict_of_stalled(watch, watch->run->timeout);
            }
            ls_error_lines_tick(watch->lines);
        }
    }
}

/* Puts the verdict into the outcome and prints what the rank has not said itself. */
static void pronounce(ls_watch *watch, const ls_verdict *verdict, ls_outcome *outcome) {
    char place[64] = "", who[64];
    outcome->rc = verdict->rc;
    outcome->guilty_rank = verdict->rank;
    /* a rank that was killed has said nothing; lines without a rank are about what its death did to others */
    bool said =
        ls_error_lines_settle(watch->lines, verdict->rank, verdict->said, outcome->reason, sizeof outcome->reason);
    if (said && verdict->said) {
        return;
    }
    size_t shown = verdict->rank >= 0 ? (size_t)verdict->rank : 0;
    if (verdict->rank >= 0) {
        snprintf(who, sizeof who, "rank %d (pid %u)", verdict->rank, verdict->pid);
    } else if (verdict->pid == 0) {
        snprintf(who, sizeof who, "all ranks");
    } else {
        snprintf(who, sizeof who, "%s (pid %u)", watch->mpirun ? "mpirun" : "the process of all ranks", verdict->pid);
    }
    ls_progress_place(&watch->page->rank[shown], place, sizeof place);
    const char *hint = ls_error_lines_hint(watch->lines);
    bool hinted = watch->mpirun && verdict->rank < 0 && hint[0] != '\0';
    snprintf(outcome->reason, sizeof outcome->reason, "%s %s%s%s%s%.200s; the run was ended", who, verdict->what, place,
             verdict->how, hinted ? ": " : "", hinted ? hint : "");
    (void)ls_fail(verdict->rc, "%s", outcome->reason);
}

/* Whether stdout is a pipe that nobody reads any more. */
static bool reader_gone(void) {
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) > 0 && (out.revents & POLLERR) != 0;
}

void ls_supervise(ls_watch *watch, ls_outcome *outcome) {
    struct itimerspec period = {.it_interval.tv_nsec = (long)(tick_seconds * 1e9),
                                .it_value.tv_nsec = (long)(tick_seconds * 1e9)};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer < 0 || timerfd_settime(timer, 0, &period, NULL) != 0) {
        outcome->rc = ls_fail(LS_DEVICE_FAILED, "timerfd: %s", strerror(errno));
        ls_watch_end(watch, -1);
        return;
    }
    ls_verdict verdict = watch_ranks(watch, timer);
    if (verdict.found && verdict.said) {
        (void)ls_watch_wait(watch, LS_SETTLE_MS); /* a rank that failed may be the victim of another */
        verdict = ls_verdict_of_ended(watch);
    }
    bool stopped = verdict.found && verdict.how[0] != '\0';
    ls_watch_end(watch, stopped ? verdict.rank : -1);
    close(timer);
    if (!watch->mpirun && verdict.signal == SIGPIPE && reader_gone()) {
        ls_interrupt_take(SIGPIPE); /* the ranks' stdout is this process's own: it ends as if it had written itself */
    }
    if (ls_interrupt_signal() != 0) {
        outcome->rc = LS_DEVICE_FAILED;
        snprintf(outcome->reason, sizeof outcome->reason, "ended by signal %d (%s)", ls_interrupt_signal(),
                 strsignal(ls_interrupt_signal()));
    } else if (verdict.found) {
        pronounce(watch, &verdict, outcome);
    } else {
        ls_error_lines_show(watch->lines);
    }
}
