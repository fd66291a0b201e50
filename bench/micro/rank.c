/* A rank of a crew; `lockstep micro-rank FOLDER KIND RANK PORT` is one as a process. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/cmd.h"
#include "bench/micro/crew.h"
#include "bench/micro/job.h"
#include "impls/mpi_world.h"
#include "impls/progress.h"
#include "impls/rank_watch.h"

typedef struct open_job {
    const ls_micro_op *op;
    void *self;
} open_job;

static ls_rc open_slot(ls_micro_place *place, const ls_micro_order *order, open_job *job) {
    job->op = ls_micro_op_find(order->job.op);
    if (job->op == NULL) {
        return ls_fail(LS_BAD_INPUT, "no work called '%s' to measure", order->job.op);
    }
    return job->op->open(place, &order->job, &job->self);
}

static void close_slot(open_job *job) {
    if (job->op != NULL) {
        job->op->close(job->self);
    }
    *job = (open_job){0};
}

static ls_rc obey(ls_micro_place *place, open_job *jobs) {
    ls_micro_order order = place->page->order;
    ls_micro_page_rank *mine = &place->page->rank[place->rank];
    open_job *job = &jobs[order.slot];
    switch (order.verb) {
    case LS_MICRO_OPEN:
        return open_slot(place, &order, job);
    case LS_MICRO_MEASURE:
        return job->op->measure(job->self, order.iterations, mine->seconds);
    case LS_MICRO_CHECK:
        mine->wrong = 0;
        return job->op->check != NULL ? job->op->check(job->self, &mine->wrong) : LS_OK;
    case LS_MICRO_CLOSE:
        close_slot(job);
        return LS_OK;
    case LS_MICRO_QUIT:
        break;
    }
    return LS_OK;
}

ls_rc ls_micro_rank_obey(ls_micro_place *place) {
    open_job jobs[LS_MICRO_SLOTS] = {{0}};
    ls_micro_page_rank *mine = &place->page->rank[place->rank];
    ls_rc rc = LS_OK;
    bool quit = false;
    while (rc == LS_OK && !quit) {
        while (sem_wait(&mine->go) != 0 && errno == EINTR) {
        }
        quit = place->page->order.verb == LS_MICRO_QUIT;
        if (!quit) {
            rc = obey(place, jobs);
            atomic_store(&mine->rc, (int)rc);
            sem_post(&place->page->done);
        }
    }
    if (rc == LS_OK) { /* after a failure peers may never come: whoever commands the crew ends it */
        for (size_t i = 0; i < LS_MICRO_SLOTS; i++) {
            close_slot(&jobs[i]);
        }
        ls_micro_place_close(place, false);
    }
    return rc;
}

static ls_rc read_number(const char *text, size_t most, size_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || text[0] == '-' || text[0] == '\0' || value > most) {
        return ls_fail(LS_BAD_INPUT, "micro-rank: '%s' is not a number up to %zu", text, most);
    }
    *out = (size_t)value;
    return LS_OK;
}

static ls_rc become_rank(char **argv, ls_micro_place *place) {
    size_t port = 0;
    LS_TRY(read_number(argv[3], 65535, &port));
    place->port = (unsigned short)port;
    place->mpi = strcmp(argv[1], ls_crew_kind_name(LS_CREW_MPI)) == 0;
    if (place->mpi) {
        ls_mpi_world world;
        LS_TRY(ls_mpi_start(&world));
        place->rank = world.rank;
    } else {
        LS_TRY(read_number(argv[2], 1U << 20, &place->rank));
    }
    place->device = (int)place->rank;
    ls_error_set_rank((int)place->rank, place->device);
    return LS_OK;
}

/* Joins the watch: the page of pids, by which the guard of the folder ends what is left when the program is killed. */
static ls_rc join(const char *folder, ls_micro_place *place, ls_progress **progress) {
    char path[LS_PATH_SIZE + 16];
    LS_TRY(ls_rank_watch_join(folder, place->rank, 1, place->mpi, progress));
    snprintf(path, sizeof path, "%s/crew", folder);
    LS_TRY(ls_micro_page_open(path, &place->page));
    place->world = place->page->world;
    return LS_OK;
}

ls_rc ls_command_micro_rank(int argc, char **argv) {
    if (argc != 4) {
        return ls_fail(LS_BAD_INPUT, "micro-rank: expected FOLDER KIND RANK PORT; `lockstep micro` starts it");
    }
    ls_micro_place place = {.timeout = 60};
    ls_progress *progress = NULL;
    ls_rc rc = become_rank(argv, &place);
    if (rc == LS_OK) {
        rc = join(argv[0], &place, &progress);
    }
    if (rc == LS_OK) {
        sem_post(&place.page->done); /* up */
        rc = ls_micro_rank_obey(&place);
    }
    if (rc != LS_OK) {
        fflush(stdout);
        _exit(rc); /* streams and peers may hang */
    }
    ls_micro_page_close(place.page);
    ls_progress_end(progress, &progress->rank[place.rank], LS_RANK_FINISHED, LS_OK);
    if (place.mpi) {
        ls_mpi_stop(0);
    }
    return rc;
}
