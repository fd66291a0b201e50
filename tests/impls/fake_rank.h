/* For tests of the launcher: the test program itself plays the rank program, and misbehaves as FAKE_RANK says. */
#ifndef LS_TESTS_IMPLS_FAKE_RANK_H
#define LS_TESTS_IMPLS_FAKE_RANK_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "impls/progress.h"
#include "impls/rank_guard.h"
#include "impls/run.h"

static ls_progress *fake_page;
static size_t fake_number;

static void fake_terminated(int number) {
    (void)number;
    ls_progress_end(fake_page, &fake_page->rank[fake_number], LS_RANK_TERMINATED, SIGTERM);
    _exit(LS_DEVICE_FAILED);
}

static void fake_pause(void) {
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void fake_fail(ls_rc rc, const char *message) {
    (void)ls_fail(rc, "%s", message);
    ls_progress_end(fake_page, &fake_page->rank[fake_number], LS_RANK_FAILED, (uint32_t)rc);
    _exit(rc);
}

static void fake_result(const char *run_dir) {
    char path[LS_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/rank-%zu.json", run_dir, fake_number);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        _exit(LS_DEVICE_FAILED);
    }
    fprintf(file, "{\"rank\": %zu, \"pid\": %d}\n", fake_number, (int)getpid());
    fclose(file);
}

/* What rank 1 does at step 5. */
static void fake_misbehave(const char *mode, const char *run_dir) {
    if (strcmp(mode, "kill") == 0 || strcmp(mode, "stubborn") == 0) {
        raise(SIGKILL);
    } else if (strcmp(mode, "victims") == 0) {
        atomic_store(&fake_page->rank[1].step, 99); /* the peers see it and fail */
        raise(SIGKILL);
    } else if (strcmp(mode, "stop") == 0) {
        raise(SIGSTOP);
    } else if (strcmp(mode, "hang") == 0) {
        for (;;) {
            pause();
        }
    } else if (strcmp(mode, "bad input") == 0) {
        fake_fail(LS_BAD_INPUT, "the file is bad");
    } else if (strcmp(mode, "device") == 0) {
        fake_fail(LS_DEVICE_FAILED, "the device is bad");
    } else if (strcmp(mode, "quiet") == 0) {
        exit(7);
    } else if (strcmp(mode, "early") == 0) {
        exit(0);
    } else if (strcmp(mode, "no result") == 0) {
        ls_progress_end(fake_page, &fake_page->rank[fake_number], LS_RANK_FINISHED, 0);
        exit(0);
    } else {
        fake_result(run_dir);
        ls_progress_end(fake_page, &fake_page->rank[fake_number], LS_RANK_FINISHED, 0);
        exit(0);
    }
}

/* What the others do when rank 1 has come to step 5. */
static void fake_wait(const char *mode, const char *run_dir) {
    if (strcmp(mode, "well") == 0 || strcmp(mode, "no result") == 0) {
        fake_result(run_dir);
        ls_progress_end(fake_page, &fake_page->rank[fake_number], LS_RANK_FINISHED, 0);
        exit(0);
    }
    ls_progress_bump(&fake_page->rank[fake_number], LS_STAGE_TRAINING); /* the point that rank 1 does not pass */
    for (;;) {
        if (strcmp(mode, "victims") == 0 && atomic_load(&fake_page->rank[1].step) == 99) {
            fake_fail(LS_DEVICE_FAILED, "the peer is gone");
        }
        fake_pause();
    }
}

/* Five steps in step with the other ranks, then as FAKE_RANK says. Does not return. */
static int fake_rank_main(int argc, char **argv) {
    const char *run_dir = NULL, *mode = getenv("FAKE_RANK"), *rank = getenv("RANK");
    for (int i = 1; i + 1 < argc; i++) {
        run_dir = strcmp(argv[i], "--run-dir") == 0 ? argv[i + 1] : run_dir;
    }
    rank = rank != NULL ? rank : getenv("OMPI_COMM_WORLD_RANK");
    fake_number = rank != NULL ? (size_t)strtoul(rank, NULL, 10) : 0;
    if (run_dir == NULL || mode == NULL || ls_progress_open(run_dir, &fake_page) != LS_OK) {
        return LS_DEVICE_FAILED;
    }
    ls_error_set_rank((int)fake_number, (int)fake_number);
    ls_rank_guard_follow_parent(SIGKILL, getenv("RANK") != NULL ? ls_rank_guard_launcher() : 0);
    ls_progress_rank *self = &fake_page->rank[fake_number];
    signal(SIGTERM, strcmp(mode, "stubborn") == 0 ? SIG_IGN : fake_terminated);
    ls_progress_start(self);
    for (uint64_t step = 0; step < 6; step++) {
        ls_progress_step(self, step);
        ls_progress_bump(self, LS_STAGE_TRAINING);
        for (size_t peer = 0; peer < fake_page->ranks; peer++) {
            while (atomic_load(&fake_page->rank[peer].phase) < step + 1) {
                fake_pause();
            }
        }
    }
    if (fake_number == 1) {
        fake_misbehave(mode, run_dir);
    }
    fake_wait(mode, run_dir);
    return LS_DEVICE_FAILED;
}

#endif
