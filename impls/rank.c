#include "impls/rank.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "impls/launch.h"
#include "impls/rank_internal.h"
#include "impls/rank_restore.h"
#include "impls/rank_watch.h"
#include "impls/thread_group.h"

/* Joins the launcher's watch. */
static ls_rc join_watch(ls_rank_data *data, const ls_rank *place, size_t ranks_here) {
    bool mpirun = (data->impl->capabilities & LS_CAP_MPIRUN) != 0;
    return ls_rank_watch_join(data->folder, place->rank, ranks_here, mpirun, &data->page);
}

static void bump_all(const ls_rank_data *data, const ls_rank *place, size_t ranks_here) {
    for (size_t i = 0; data->page != NULL && i < ranks_here; i++) {
        ls_progress_bump(&data->page->rank[place->rank + i], LS_STAGE_LOADING);
    }
}

/* Everything but the ranks themselves. */
static ls_rc prepare(ls_rank_data *data, const ls_rank *place, size_t ranks_here) {
    const ls_run *run = data->run;
    ls_normalize normalize;
    size_t local, present, devices_here = place->world == 1 ? run->devices : ranks_here;
    LS_TRY(ls_run_model(run, &data->model, &normalize));
    LS_TRY(ls_run_batches(run, &local, &data->global_batch));
    data->batch = place->world == 1 ? data->global_batch : local;
    LS_TRY(ls_platform_device_count(&present));
    if (!run->share_devices && (size_t)place->device + devices_here > present) {
        return ls_fail(LS_BAD_INPUT, "device %zu is needed, the host has %zu; use fewer devices",
                       (size_t)place->device + devices_here - 1, present);
    }
    char why[256] = "";
    if (data->folder == NULL && !ls_run_suits(run, data->impl, why, sizeof why)) {
        return ls_fail(LS_BAD_INPUT, "%s cannot run here: %s", run->impl, why);
    }
    if (data->folder == NULL && place->rank == 0) {
        LS_TRY(ls_restore_check(run)); /* else the launcher has */
    }
    bump_all(data, place, ranks_here);
    if (!run->evaluate_only) {
        LS_TRY(ls_dataset_open(run->data, LS_SPLIT_TRAIN, &data->train));
        LS_TRY(ls_run_fits(run, &data->model, &data->train));
        ls_sampler share = ls_run_sampler(run, data->train.count, place->world, place->rank);
        size_t length = ls_sampler_length(&share);
        data->batch = data->batch < length ? data->batch : length; /* one short batch, as PyTorch's DataLoader */
        bump_all(data, place, ranks_here);
    }
    if (run->evaluate) {
        LS_TRY(ls_dataset_open(run->data, LS_SPLIT_TEST, &data->test));
        LS_TRY(ls_run_fits(run, &data->model, &data->test));
        bump_all(data, place, ranks_here);
    }
    return LS_OK;
}

/* Ends this process after a failure of one of its ranks, at once: other threads may wait for ever. */
static void give_up(const ls_rank_data *data, size_t rank, ls_rc rc) {
    ls_progress_end(data->page, data->page != NULL ? &data->page->rank[rank] : NULL, LS_RANK_FAILED, (uint32_t)rc);
    fflush(stdout);
    _exit(rc);
}

static void run_rank(ls_rank_task *task) {
    ls_error_set_rank((int)task->rank.rank, task->rank.device);
    ls_rc rc = task->data->run->evaluate_only ? ls_rank_run_evaluation(task) : ls_rank_run(task);
    if (rc != LS_OK) {
        give_up(task->data, task->rank.rank, rc);
    }
    ls_progress_end(task->data->page, task->progress, LS_RANK_FINISHED, LS_OK);
}

static void *rank_thread(void *argument) {
    run_rank(argument);
    return NULL;
}

/* All ranks as threads. */
static ls_rc run_threads(const ls_rank_data *data, const ls_rank *place) {
    ls_thread_group *group;
    LS_TRY(ls_thread_group_open(place->world, &group));
    ls_rank_task *tasks = ls_calloc(place->world, sizeof *tasks, "ranks");
    pthread_t *threads = ls_calloc(place->world, sizeof *threads, "ranks");
    ls_rc rc = tasks != NULL && threads != NULL ? LS_OK : LS_DEVICE_FAILED;
    size_t started = 0;
    while (rc == LS_OK && started < place->world) {
        ls_rank_task *task = &tasks[started];
        *task = (ls_rank_task){.data = data, .rank = *place};
        task->rank.rank = task->rank.local_rank = started;
        task->rank.device = (int)started;
        task->rank.shared = group;
        task->progress = data->page != NULL ? &data->page->rank[started] : NULL;
        int error = pthread_create(&threads[started], NULL, rank_thread, task);
        if (error != 0) {
            rc = ls_fail(LS_DEVICE_FAILED, "cannot start the thread of rank %zu: %s", started, strerror(error));
            give_up(data, started, rc);
        }
        started++;
    }
    for (size_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    free(tasks);
    free(threads);
    ls_thread_group_close(group);
    return rc;
}

static ls_rc run_all(ls_rank_data *data, const ls_rank *place, bool threads) {
    if (threads) {
        return run_threads(data, place);
    }
    ls_rank_task task = {.data = data, .rank = *place};
    task.progress = data->page != NULL ? &data->page->rank[place->rank] : NULL;
    run_rank(&task);
    return LS_OK;
}

ls_rc ls_rank_main(const ls_run *run) {
    ls_rank_data data = {.run = run, .impl = ls_impl_find(run->impl)};
    ls_rank place;
    if (data.impl == NULL) {
        return ls_fail(LS_BAD_INPUT, "unknown implementation '%s'", run->impl);
    }
    ls_math_set_mode(run->math);
    setvbuf(stdout, NULL, _IOLBF, 0); /* progress is seen through a pipe too */
    LS_TRY(ls_rank_place(run, data.impl, &place));
    bool threads = (data.impl->capabilities & LS_CAP_RANK_THREADS) != 0 && run->ranks == LS_RANKS_THREADS;
    size_t ranks_here = threads ? place.world : 1;
    ls_error_set_rank((int)place.rank, place.device);
    if (run->run_dir[0] != '\0') {
        data.folder = run->run_dir;
        LS_TRY(join_watch(&data, &place, ranks_here));
    }
    ls_rc rc = prepare(&data, &place, ranks_here);
    if (rc == LS_OK) {
        rc = run_all(&data, &place, threads);
    }
    if (rc != LS_OK) {
        give_up(&data, place.rank, rc);
    }
    ls_dataset_close(&data.train);
    ls_dataset_close(&data.test);
    return rc; /* the page stays mapped for the signal handler */
}
