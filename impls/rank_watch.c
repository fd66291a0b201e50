#include "impls/rank_watch.h"

#include <signal.h>
#include <unistd.h>

#include "impls/rank_guard.h"

/* For the signal handler: the page, and this process's ranks on it. */
static ls_progress *handler_page;
static size_t handler_first, handler_count;

/* The launcher ends a run by SIGTERM. The devices' threads may be anywhere, so nothing is cleaned up: the system does. */
static void on_terminate(int number) {
    for (size_t i = 0; i < handler_count; i++) {
        ls_progress_end(handler_page, &handler_page->rank[handler_first + i], LS_RANK_TERMINATED, (uint32_t)number);
    }
    _exit(LS_DEVICE_FAILED);
}

/* SIGINT and SIGHUP reach the launcher as well: what it ignores (nohup) its ranks have inherited, and ignore too. */
static void terminate_by(int number, bool even_if_ignored) {
    struct sigaction action = {.sa_handler = on_terminate}, before;
    sigemptyset(&action.sa_mask);
    sigaction(number, NULL, &before);
    if (even_if_ignored || before.sa_handler != SIG_IGN) {
        sigaction(number, &action, NULL);
    }
}

ls_rc ls_rank_watch_join(const char *folder, size_t first, size_t count, bool mpirun, ls_progress **page) {
    ls_rank_guard_follow_parent(SIGKILL, mpirun ? 0 : ls_rank_guard_launcher());
    LS_TRY(ls_progress_open(folder, page));
    if (first + count > (*page)->ranks) {
        return ls_fail(LS_BAD_INPUT, "rank %zu of a run that has %llu ranks", first,
                       (unsigned long long)(*page)->ranks);
    }
    for (size_t i = 0; i < count; i++) {
        ls_progress_start(&(*page)->rank[first + i]);
    }
    handler_page = *page;
    handler_first = first;
    handler_count = count;
    terminate_by(SIGTERM, true);
    terminate_by(SIGINT, false);
    terminate_by(SIGHUP, false);
    return LS_OK;
}
