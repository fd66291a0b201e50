/* Who is to blame for the end of a run. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "impls/supervise.h"

/* The state letter of a process in /proc ('R', 'S', 'T', 'Z', ...); 0: gone. */
static char process_state(uint32_t pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    size_t count = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[count] = '\0';
    const char *name_end = strrchr(text, ')'); /* the name may hold anything */
    return name_end != NULL && name_end[1] == ' ' ? name_end[2] : 0;
}

static bool is_stopped(uint32_t pid) {
    char state = pid != 0 ? process_state(pid) : 0;
    return state == 'T' || state == 't';
}

/* The process that runs a rank, when the launcher started it itself. */
static const ls_child *child_of(const ls_watch *watch, size_t rank) {
    if (watch->mpirun) {
        return NULL;
    }
    return watch->count == 1 ? &watch->children[0] : &watch->children[rank];
}

static void blame(ls_verdict *verdict, const ls_watch *watch, size_t rank, ls_rc rc) {
    verdict->found = true;
    verdict->rank = (int)rank;
    verdict->rc = rc;
    const ls_child *child = child_of(watch, rank);
    verdict->pid = child != NULL ? (uint32_t)child->pid : atomic_load(&watch->page->rank[rank].pid);
}

static void say_signal(ls_verdict *verdict, int number) {
    verdict->signal = number;
    snprintf(verdict->what, sizeof verdict->what, "was killed by signal %d (%s)", number, strsignal(number));
}

static void say_code(ls_verdict *verdict, unsigned code) {
    verdict->rc = code == LS_BAD_INPUT ? LS_BAD_INPUT : LS_DEVICE_FAILED;
    verdict->said = code == LS_BAD_INPUT || code == LS_DEVICE_FAILED;
    snprintf(verdict->what, sizeof verdict->what, "ended with exit code %u", code);
}

static bool is_gone(const ls_progress_rank *entry) {
    char state = process_state(atomic_load(&entry->pid));
    return atomic_load(&entry->state) == LS_RANK_RUNNING && (state == 0 || state == 'Z');
}

bool ls_verdict_rank_gone(const ls_watch *watch, size_t *rank) {
    for (*rank = 0; watch->mpirun && *rank < watch->page->ranks; (*rank)++) {
        if (is_gone(&watch->page->rank[*rank])) {
            return true;
        }
    }
    return false;
}

/* A rank that is gone without a word in the page. Returns its signal, 0 when it is not that. */
static int killed_by(const ls_watch *watch, size_t rank) {
    const ls_child *child = child_of(watch, rank);
    if (child != NULL) {
        return child->ended && WIFSIGNALED(child->status) ? WTERMSIG(child->status) : 0;
    }
    const ls_progress_rank *entry = &watch->page->rank[rank];
    const ls_child *mpirun = &watch->children[0];
    /* mpirun passes a rank's signal on as 128 + signal */
    if (!is_gone(entry) || !mpirun->ended || !WIFEXITED(mpirun->status) || WEXITSTATUS(mpirun->status) <= 128) {
        return 0;
    }
    return WEXITSTATUS(mpirun->status) - 128;
}

static bool find_killed(const ls_watch *watch, ls_verdict *verdict) {
    for (size_t r = 0; r < watch->page->ranks; r++) {
        int number = killed_by(watch, r);
        if (number != 0) {
            blame(verdict, watch, r, LS_DEVICE_FAILED);
            say_signal(verdict, number);
            if (watch->count == 1 && !watch->mpirun && watch->page->ranks > 1) {
                verdict->rank = -1; /* one process for all ranks */
            }
            return true;
        }
    }
    return false;
}

/* The first to have recorded that it failed or was terminated; with bad_input the first that failed for that. */
static bool find_recorded(const ls_watch *watch, bool bad_input, ls_verdict *verdict) {
    size_t best = SIZE_MAX;
    uint32_t best_order = UINT32_MAX;
    for (size_t r = 0; r < watch->page->ranks; r++) {
        const ls_progress_rank *entry = &watch->page->rank[r];
        uint32_t state = atomic_load(&entry->state), order = atomic_load(&entry->order);
        bool wanted = state == LS_RANK_FAILED || state == LS_RANK_TERMINATED;
        if (wanted && order < best_order && (!bad_input || atomic_load(&entry->code) == LS_BAD_INPUT)) {
            best = r;
            best_order = order;
        }
    }
    if (best == SIZE_MAX) {
        return false;
    }
    blame(verdict, watch, best, LS_DEVICE_FAILED);
    if (atomic_load(&watch->page->rank[best].state) == LS_RANK_FAILED) {
        say_code(verdict, atomic_load(&watch->page->rank[best].code));
    } else {
        say_signal(verdict, (int)atomic_load(&watch->page->rank[best].code));
    }
    return true;
}

/* It makes its peers fail first. */
bool ls_verdict_of_stopped(const ls_watch *watch, ls_verdict *verdict) {
    for (size_t r = 0; r < watch->page->ranks; r++) {
        if (is_stopped(atomic_load(&watch->page->rank[r].pid))) {
            blame(verdict, watch, r, LS_DEVICE_FAILED);
            snprintf(verdict->what, sizeof verdict->what, "stood still");
            snprintf(verdict->how, sizeof verdict->how, " (stopped)");
            return true;
        }
    }
    return false;
}

/* Ended without having recorded an end. */
static bool find_unrecorded(const ls_watch *watch, ls_verdict *verdict) {
    for (size_t i = 0; i < watch->count; i++) {
        const ls_child *child = &watch->children[i];
        size_t rank = watch->count == 1 ? 0 : i;
        bool finished = atomic_load(&watch->page->rank[rank].state) == LS_RANK_FINISHED;
        if (!child->ended || (WIFEXITED(child->status) && WEXITSTATUS(child->status) == 0 && finished)) {
            continue;
        }
        blame(verdict, watch, rank, LS_DEVICE_FAILED);
        if (WIFSIGNALED(child->status)) {
            say_signal(verdict, WTERMSIG(child->status));
        } else if (WEXITSTATUS(child->status) == 0) {
            snprintf(verdict->what, sizeof verdict->what, "ended before the run was finished");
        } else {
            say_code(verdict, (unsigned)WEXITSTATUS(child->status));
        }
        if (watch->mpirun) {
            verdict->rank = -1;
            verdict->pid = (uint32_t)child->pid;
        }
        return true;
    }
    return false;
}

/* Whether there is an end to judge. mpirun takes a second to end after a rank has: what the rank has recorded is enough,
 * unless another is gone without a record, which only mpirun can explain. */
static bool some_rank_ended(const ls_watch *watch) {
    bool failed = false;
    size_t gone;
    for (size_t i = 0; i < watch->count; i++) {
        if (watch->children[i].ended) {
            return true;
        }
    }
    for (size_t r = 0; watch->mpirun && r < watch->page->ranks; r++) {
        failed = failed || atomic_load(&watch->page->rank[r].state) == LS_RANK_FAILED;
    }
    return failed && !ls_verdict_rank_gone(watch, &gone);
}

ls_verdict ls_verdict_of_ended(const ls_watch *watch) {
    ls_verdict verdict = {.rank = -1, .rc = LS_DEVICE_FAILED};
    if (!some_rank_ended(watch)) {
        return verdict;
    }
    if (find_killed(watch, &verdict) || find_recorded(watch, true, &verdict)) {
        return verdict;
    }
    ls_verdict recorded = verdict;
    if (find_recorded(watch, false, &recorded)) {
        return ls_verdict_of_stopped(watch, &verdict) ? verdict : recorded;
    }
    (void)find_unrecorded(watch, &verdict);
    return verdict;
}

ls_verdict ls_verdict_of_stalled(const ls_watch *watch, double seconds) {
    ls_verdict verdict = {.rank = -1, .rc = LS_DEVICE_FAILED};
    size_t gone;
    if (ls_verdict_rank_gone(watch, &gone)) {
        blame(&verdict, watch, gone, LS_DEVICE_FAILED);
        snprintf(verdict.what, sizeof verdict.what, "ended without a word");
        return verdict;
    }
    if (!ls_verdict_of_stopped(watch, &verdict)) {
        size_t least = 0, ties = 0;
        for (size_t r = 0; r < watch->page->ranks; r++) {
            uint64_t phase = atomic_load(&watch->page->rank[r].phase);
            uint64_t best = atomic_load(&watch->page->rank[least].phase);
            ties = phase < best || r == 0 ? 1 : ties + (phase == best);
            least = phase < best ? r : least;
        }
        blame(&verdict, watch, least, LS_DEVICE_FAILED);
        if (ties == watch->page->ranks && ties > 1) {
            verdict.pid = 0;
            verdict.rank = -1; /* all stand at the same point */
        }
    }
    verdict.found = true;
    snprintf(verdict.what, sizeof verdict.what, "made no progress for %g s", seconds);
    return verdict;
}
