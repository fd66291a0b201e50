#include "impls/thread_group.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct ls_thread_group {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t world;
    size_t arrived;
    uint64_t generation; /* barriers passed */
    bool cancelled;
    bool *present;     /* [world]: arrived at the current barrier */
    const void *bytes; /* rank 0's, between the two barriers of a share */
};

ls_rc ls_thread_group_open(size_t world, ls_thread_group **out) {
    *out = NULL;
    ls_thread_group *group = ls_calloc(1, sizeof *group, "a group of threads");
    if (group == NULL) {
        return LS_DEVICE_FAILED;
    }
    group->world = world;
    group->present = ls_calloc(world, sizeof *group->present, "a group of threads");
    if (group->present == NULL) {
        free(group);
        return LS_DEVICE_FAILED;
    }
    pthread_condattr_t attributes;
    int status = pthread_mutex_init(&group->mutex, NULL);
    if (status == 0) {
        status = pthread_condattr_init(&attributes);
        if (status == 0) {
            status = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
            status = status == 0 ? pthread_cond_init(&group->changed, &attributes) : status;
            (void)pthread_condattr_destroy(&attributes);
        }
        if (status != 0) {
            (void)pthread_mutex_destroy(&group->mutex);
        }
    }
    if (status != 0) {
        free(group->present);
        free(group);
        return ls_fail(LS_DEVICE_FAILED, "a group of %zu threads cannot be made: %s", world, strerror(status));
    }
    *out = group;
    return LS_OK;
}

void ls_thread_group_close(ls_thread_group *group) {
    if (group == NULL) {
        return;
    }
    (void)pthread_cond_destroy(&group->changed);
    (void)pthread_mutex_destroy(&group->mutex);
    free(group->present);
    free(group);
}

void ls_thread_group_cancel(ls_thread_group *group) {
    (void)pthread_mutex_lock(&group->mutex);
    group->cancelled = true;
    (void)pthread_cond_broadcast(&group->changed);
    (void)pthread_mutex_unlock(&group->mutex);
}

static struct timespec deadline_after(double seconds) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    double whole = (double)(time_t)seconds;
    now.tv_sec += (time_t)whole;
    now.tv_nsec += (long)((seconds - whole) * 1e9);
    if (now.tv_nsec >= 1000000000L) {
        now.tv_sec++;
        now.tv_nsec -= 1000000000L;
    }
    return now;
}

/* With the mutex held: prints which ranks are missing and cancels the group. */
static ls_rc fail_missing(ls_thread_group *group, double timeout) {
    char missing[256] = "";
    size_t used = 0;
    for (size_t rank = 0; rank < group->world && used < sizeof missing - 24; rank++) {
        if (!group->present[rank]) {
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%zu", used == 0 ? "" : ", ", rank);
        }
    }
    group->cancelled = true;
    (void)pthread_cond_broadcast(&group->changed);
    return ls_fail(LS_DEVICE_FAILED, "barrier of %zu ranks: rank %s did not come within %g s", group->world, missing,
                   timeout);
}

ls_rc ls_thread_group_barrier(ls_thread_group *group, size_t rank, double timeout) {
    struct timespec deadline = deadline_after(timeout);
    ls_rc rc = LS_OK;
    (void)pthread_mutex_lock(&group->mutex);
    if (group->cancelled) {
        rc = LS_DEVICE_FAILED;
    } else {
        group->present[rank] = true;
        group->arrived++;
        uint64_t generation = group->generation;
        if (group->arrived == group->world) {
            group->arrived = 0;
            group->generation++;
            memset(group->present, 0, group->world * sizeof *group->present);
            (void)pthread_cond_broadcast(&group->changed);
        }
        while (group->generation == generation && rc == LS_OK) {
            if (group->cancelled) {
                rc = LS_DEVICE_FAILED;
            } else if (pthread_cond_timedwait(&group->changed, &group->mutex, &deadline) == ETIMEDOUT &&
                       group->generation == generation && !group->cancelled) {
                rc = fail_missing(group, timeout);
            }
        }
    }
    (void)pthread_mutex_unlock(&group->mutex);
    return rc;
}

ls_rc ls_thread_group_share(ls_thread_group *group, size_t rank, void *bytes, size_t size, double timeout) {
    if (rank == 0) {
        group->bytes = bytes; /* the barriers order this store before the readers and its reuse after them */
    }
    LS_TRY(ls_thread_group_barrier(group, rank, timeout));
    if (rank != 0) {
        memcpy(bytes, group->bytes, size);
    }
    return ls_thread_group_barrier(group, rank, timeout);
}
