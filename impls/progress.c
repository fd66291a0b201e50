#include "impls/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "impls/run.h"

static const uint64_t page_magic = UINT64_C(0x6c732d7061676531); /* "ls-page1" */

static size_t page_bytes(size_t ranks) {
    return sizeof(ls_progress) + ranks * sizeof(ls_progress_rank);
}

static ls_rc fail_page(const char *what, const char *path) {
    return ls_fail(LS_DEVICE_FAILED, "%s %s: %s", what, path, strerror(errno));
}

static ls_rc map_page(int fd, const char *path, size_t bytes, ls_progress **out) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return fail_page("cannot map the progress page", path);
    }
    *out = memory;
    return LS_OK;
}

ls_rc ls_progress_create(const char *run_dir, size_t ranks, ls_progress **out) {
    char path[LS_PATH_SIZE + 16];
    snprintf(path, sizeof path, "%s/progress", run_dir);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return fail_page("cannot create the progress page", path);
    }
    ls_rc rc = LS_OK;
    if (ftruncate(fd, (off_t)page_bytes(ranks)) != 0) {
        rc = fail_page("cannot size the progress page", path);
    }
    if (rc == LS_OK) {
        rc = map_page(fd, path, page_bytes(ranks), out);
    }
    close(fd);
    if (rc == LS_OK) {
        (*out)->ranks = ranks;
        (*out)->magic = page_magic;
    }
    return rc;
}

ls_rc ls_progress_open(const char *run_dir, ls_progress **out) {
    char path[LS_PATH_SIZE + 16];
    snprintf(path, sizeof path, "%s/progress", run_dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return fail_page("cannot open the progress page", path);
    }
    struct stat status;
    ls_rc rc = LS_OK;
    if (fstat(fd, &status) != 0) {
        rc = fail_page("cannot look at the progress page", path);
    } else if ((size_t)status.st_size < page_bytes(0)) {
        rc = ls_fail(LS_DEVICE_FAILED, "the progress page %s has %lld bytes, expected at least %zu", path,
                     (long long)status.st_size, page_bytes(0));
    }
    if (rc == LS_OK) {
        rc = map_page(fd, path, (size_t)status.st_size, out);
    }
    close(fd);
    if (rc == LS_OK && ((*out)->magic != page_magic || page_bytes((*out)->ranks) != (size_t)status.st_size)) {
        munmap(*out, (size_t)status.st_size);
        *out = NULL;
        rc = ls_fail(LS_DEVICE_FAILED, "%s is not a progress page", path);
    }
    return rc;
}

void ls_progress_close(ls_progress *page) {
    if (page != NULL) {
        munmap(page, page_bytes(page->ranks));
    }
}

void ls_progress_start(ls_progress_rank *rank) {
    if (rank != NULL) {
        atomic_store(&rank->pid, (uint32_t)getpid());
        atomic_store(&rank->state, LS_RANK_RUNNING);
    }
}

void ls_progress_bump(ls_progress_rank *rank, ls_stage stage) {
    if (rank != NULL) {
        atomic_store_explicit(&rank->stage, stage, memory_order_relaxed);
        atomic_fetch_add_explicit(&rank->phase, 1, memory_order_relaxed);
    }
}

void ls_progress_step(ls_progress_rank *rank, uint64_t step) {
    if (rank != NULL) {
        atomic_store_explicit(&rank->step, step, memory_order_relaxed);
    }
}

void ls_progress_end(ls_progress *page, ls_progress_rank *rank, ls_rank_state state, uint32_t code) {
    if (rank == NULL || atomic_load(&rank->state) != LS_RANK_RUNNING) {
        return;
    }
    if (state != LS_RANK_FINISHED) {
        atomic_store(&rank->order, atomic_fetch_add(&page->ended, 1) + 1);
    }
    atomic_store(&rank->code, code);
    atomic_store(&rank->state, state);
}

void ls_progress_place(const ls_progress_rank *rank, char *text, size_t size) {
    static const char *const doing[] = {
        [LS_STAGE_STARTING] = "starting", [LS_STAGE_LOADING] = "loading data",  [LS_STAGE_OPENING] = "opening",
        [LS_STAGE_TRAINING] = "training", [LS_STAGE_EVALUATING] = "evaluating", [LS_STAGE_SAVING] = "saving",
    };
    uint32_t stage = atomic_load(&rank->stage);
    if (stage == LS_STAGE_TRAINING) {
        snprintf(text, size, " at step %llu", (unsigned long long)atomic_load(&rank->step));
    } else {
        snprintf(text, size, " while %s", stage <= LS_STAGE_SAVING ? doing[stage] : "running");
    }
}
