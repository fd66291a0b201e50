#include "bench/micro/crew.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/micro/job.h"
#include "bench/stats.h"
#include "gpu/base/clock.h"
#include "impls/launch.h"
#include "impls/launch_mpi.h"
#include "impls/run_dir.h"
#include "impls/supervise.h"

/* A rank that has not obeyed an order after so many seconds is taken for hung: far more than any order takes. */
static const double order_limit = 180;
/* A rank that alone is stopped holds up the others: their times are lost long before this. */
static const double stopped_limit = 5;
/* Closing communicators and MPI takes a second at most. */
static const int quit_ms = 5000;

struct ls_crew {
    ls_crew_kind kind;
    size_t world;
    ls_micro_page *page;
    bool broken;   /* a rank failed: the others may never come back */
    ls_rc rc;      /* then */
    double looked; /* when wait_done last looked for a stopped rank */

    /* threads */
    ls_thread_group *group;
    pthread_t *threads;
    size_t threads_started;
    ls_micro_place *places;

    /* processes */
    ls_outcome folder; /* the private folder and its guard */
    ls_watch watch;
    ls_environment environment;
    int port_fd;
};

const char *ls_crew_kind_name(ls_crew_kind kind) {
    static const char *const names[LS_CREW_KINDS] = {"threads", "processes", "mpi"};
    return names[kind];
}

size_t ls_crew_world(const ls_crew *crew) {
    return crew->world;
}

/* Orders. */

static struct timespec in_100_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t); /* sem_timedwait's clock */
    t.tv_nsec += 100000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* "rank 1 (pid 4711)"; rank -1: the process pid that started all, or any rank when that is 0. */
static void name_process(const ls_crew *crew, int rank, uint32_t pid, char *text, size_t size) {
    if (rank >= 0 && crew->watch.page != NULL) {
        snprintf(text, size, "rank %d (pid %u)", rank, atomic_load(&crew->watch.page->rank[rank].pid));
    } else if (rank >= 0) {
        snprintf(text, size, "rank %d", rank);
    } else if (pid != 0) {
        snprintf(text, size, "mpirun (pid %u)", pid);
    } else {
        snprintf(text, size, "a rank");
    }
}

/* Says once why the crew ends: what the rank has printed itself, else what; lines of the others are about what its end did to
 * them. rank -1: any, or with a pid mpirun. */
static ls_rc give_up(ls_crew *crew, int rank, uint32_t pid, ls_rc rc, const char *what) {
    char who[64];
    name_process(crew, rank, pid, who, sizeof who);
    char said[256] = "";
    crew->broken = true;
    crew->rc = rc;
    if (crew->kind == LS_CREW_THREADS && what == NULL) {
        return rc; /* printed by the rank */
    }
    if (crew->kind != LS_CREW_THREADS) {
        (void)ls_watch_wait(&crew->watch, LS_SETTLE_MS);
        ls_watch_end(&crew->watch, -1); /* what a rank wrote, through mpirun perhaps, is all here then */
        if (ls_error_lines_settle(crew->watch.lines, rank, rank < 0, said, sizeof said) && what == NULL) {
            return rc;
        }
    }
    /* where what is known mpirun's words are about the same */
    const char *hint = what == NULL && crew->kind == LS_CREW_MPI ? ls_error_lines_hint(crew->watch.lines) : "";
    return ls_fail(rc, "%s of the measurement (%s) %s%s%.200s", who, ls_crew_kind_name(crew->kind),
                   what != NULL ? what : "failed", hint[0] != '\0' ? ": " : "", hint);
}

/* A rank that was killed, or mpirun. */
static ls_rc look_for_killed(ls_crew *crew) {
    for (size_t i = 0; i < crew->watch.count; i++) {
        (void)ls_child_poll(&crew->watch.children[i]);
    }
    ls_verdict verdict = ls_verdict_of_ended(&crew->watch);
    return verdict.found && verdict.signal != 0
               ? give_up(crew, verdict.rank, verdict.pid, LS_DEVICE_FAILED, verdict.what)
               : LS_OK;
}

/* A process of ours that has ended by itself. */
static ls_rc look_for_ended(ls_crew *crew) {
    for (size_t i = 0; i < crew->watch.count; i++) {
        if (!ls_child_poll(&crew->watch.children[i])) {
            continue;
        }
        int status = crew->watch.children[i].status;
        bool refused = WIFEXITED(status) && WEXITSTATUS(status) == LS_BAD_INPUT;
        return give_up(crew, crew->watch.mpirun ? -1 : (int)i, 0, refused ? LS_BAD_INPUT : LS_DEVICE_FAILED, NULL);
    }
    return LS_OK;
}

/* A rank that has failed, or the stopped one that made it fail. */
static ls_rc give_up_failed(ls_crew *crew, int rank, ls_rc rc) {
    ls_verdict verdict = {.rank = -1};
    if (crew->kind != LS_CREW_THREADS && ls_verdict_of_stopped(&crew->watch, &verdict)) {
        return give_up(crew, verdict.rank, verdict.pid, LS_DEVICE_FAILED, "is stopped");
    }
    return give_up(crew, rank, 0, rc, NULL);
}

/* Looks after the ranks while they work. A rank that was killed comes first: others fail because of it. */
static ls_rc look(ls_crew *crew) {
    if (crew->kind != LS_CREW_THREADS) {
        ls_watch_read(&crew->watch);
        LS_TRY(look_for_killed(crew));
    }
    for (size_t r = 0; r < crew->world; r++) {
        int rc = atomic_load(&crew->page->rank[r].rc);
        if (rc != LS_OK) {
            return give_up_failed(crew, (int)r, (ls_rc)rc);
        }
    }
    return crew->kind != LS_CREW_THREADS ? look_for_ended(crew) : LS_OK;
}

/* Looks are 0.1 s apart: after more than a second this program itself was stopped, with its ranks perhaps. */
static ls_rc look_for_stopped(ls_crew *crew, double *moved) {
    ls_verdict verdict = {.rank = -1};
    const double now = ls_now_seconds(), since = *moved;
    const bool stopped = crew->kind != LS_CREW_THREADS && ls_verdict_of_stopped(&crew->watch, &verdict);
    if (!stopped || now - crew->looked > 1) {
        *moved = now;
    }
    crew->looked = now;
    return stopped && now - since > stopped_limit && *moved == since
               ? give_up(crew, verdict.rank, verdict.pid, LS_DEVICE_FAILED, "is stopped")
               : LS_OK;
}

/* Waits until every rank has posted once more. */
static ls_rc wait_done(ls_crew *crew) {
    double begin = ls_now_seconds(), moved = begin; /* the last look at which no rank was stopped */
    crew->looked = begin;
    for (size_t done = 0; done < crew->world;) {
        struct timespec until = in_100_ms();
        if (sem_timedwait(&crew->page->done, &until) == 0) {
            done++;
        } else if (errno == ETIMEDOUT) {
            LS_TRY(look(crew));
            LS_TRY(look_for_stopped(crew, &moved));
            if (ls_now_seconds() - begin > order_limit) {
                return give_up(crew, -1, 0, LS_DEVICE_FAILED, "has not answered for 180 s");
            }
        }
    }
    return look(crew);
}

static ls_rc command(ls_crew *crew, const ls_micro_order *order) {
    if (crew->broken) {
        return crew->rc;
    }
    crew->page->order = *order;
    for (size_t r = 0; r < crew->world; r++) {
        sem_post(&crew->page->rank[r].go);
    }
    return order->verb == LS_MICRO_QUIT ? LS_OK : wait_done(crew);
}

ls_rc ls_crew_prepare(ls_crew *crew, size_t slot, const ls_micro_job *job) {
    return command(crew, &(ls_micro_order){.verb = LS_MICRO_OPEN, .slot = slot, .job = *job});
}

ls_rc ls_crew_release(ls_crew *crew, size_t slot) {
    return command(crew, &(ls_micro_order){.verb = LS_MICRO_CLOSE, .slot = slot});
}

ls_rc ls_crew_measure(ls_crew *crew, size_t slot, size_t iterations, double *seconds) {
    for (size_t done = 0; done < iterations; done += LS_MICRO_CHUNK) {
        size_t count = iterations - done < LS_MICRO_CHUNK ? iterations - done : LS_MICRO_CHUNK;
        LS_TRY(command(crew, &(ls_micro_order){.verb = LS_MICRO_MEASURE, .slot = slot, .iterations = count}));
        for (size_t i = 0; i < count; i++) {
            double slowest = 0;
            for (size_t r = 0; r < crew->world; r++) {
                double mine = crew->page->rank[r].seconds[i];
                slowest = mine > slowest ? mine : slowest;
            }
            seconds[done + i] = slowest;
        }
    }
    return LS_OK;
}

ls_rc ls_crew_line_seconds(ls_crew *crew, double *seconds) {
    double trips[21];
    const size_t count = sizeof trips / sizeof trips[0];
    *seconds = 0;
    if (crew->world < 2) {
        return LS_OK;
    }
    LS_TRY(ls_crew_prepare(crew, LS_MICRO_SLOTS - 1, &(ls_micro_job){.op = "line"}));
    LS_TRY(ls_crew_measure(crew, LS_MICRO_SLOTS - 1, count, trips));
    *seconds = ls_stats_summarize(trips, count).minimum;
    return ls_crew_release(crew, LS_MICRO_SLOTS - 1);
}

ls_rc ls_crew_check(ls_crew *crew, size_t slot, uint64_t *wrong) {
    *wrong = 0;
    LS_TRY(command(crew, &(ls_micro_order){.verb = LS_MICRO_CHECK, .slot = slot}));
    for (size_t r = 0; r < crew->world; r++) {
        *wrong += crew->page->rank[r].wrong;
    }
    return LS_OK;
}

/* Threads. */

static void *rank_thread(void *argument) {
    ls_micro_place *place = argument;
    ls_error_set_rank((int)place->rank, place->device);
    (void)ls_micro_rank_obey(place); /* its code stands in the page */
    return NULL;
}

static ls_rc start_threads(ls_crew *crew) {
    LS_TRY(ls_micro_page_create(NULL, crew->world, &crew->page));
    LS_TRY(ls_thread_group_open(crew->world, &crew->group));
    crew->threads = ls_calloc(crew->world, sizeof *crew->threads, "ranks");
    crew->places = ls_calloc(crew->world, sizeof *crew->places, "ranks");
    if (crew->threads == NULL || crew->places == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (; crew->threads_started < crew->world; crew->threads_started++) {
        size_t rank = crew->threads_started;
        crew->places[rank] = (ls_micro_place){.rank = rank,
                                              .world = crew->world,
                                              .device = (int)rank,
                                              .page = crew->page,
                                              .shared = crew->group,
                                              .timeout = 60};
        int error = pthread_create(&crew->threads[rank], NULL, rank_thread, &crew->places[rank]);
        if (error != 0) {
            return ls_fail(LS_DEVICE_FAILED, "cannot start the thread of rank %zu: %s", rank, strerror(error));
        }
    }
    return LS_OK;
}

static void end_threads(ls_crew *crew) {
    if (crew->broken) {
        fflush(NULL);
        _exit(crew->rc); /* its peers may wait for a rank that never comes */
    }
    if (crew->threads_started > 0) {
        crew->page->order.verb = LS_MICRO_QUIT;
    }
    for (size_t r = 0; r < crew->threads_started; r++) {
        sem_post(&crew->page->rank[r].go);
    }
    for (size_t r = 0; r < crew->threads_started; r++) {
        pthread_join(crew->threads[r], NULL);
    }
    ls_thread_group_close(crew->group);
    free(crew->threads);
    free(crew->places);
}

/* Processes. */

static ls_rc set_environment(ls_crew *crew) {
    char number[32];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    LS_TRY(ls_environment_copy(&crew->environment));
    snprintf(number, sizeof number, "%ld", (long)getpid());
    if (crew->kind == LS_CREW_MPI) {
        /* MPI at its best: large messages from memory that stays mapped, and spins where each rank has a core. */
        LS_TRY(ls_environment_set(&crew->environment, "MALLOC_MMAP_MAX_", "0", true));
        LS_TRY(ls_environment_set(&crew->environment, "MALLOC_TRIM_THRESHOLD_", "4000000000", true));
        if (cores > 0 && crew->world <= (size_t)cores) {
            LS_TRY(ls_environment_set(&crew->environment, "OMPI_MCA_mpi_yield_when_idle", "0", true));
        }
    }
    LS_TRY(ls_environment_set(&crew->environment, "OMP_NUM_THREADS", "1", true));
    return ls_environment_set(&crew->environment, "LOCKSTEP_LAUNCHER", number, false);
}

static ls_rc start_children(ls_crew *crew, const char *program, unsigned short port) {
    char rank[32], port_text[32];
    char *argv[] = {(char *)program, "micro-rank", crew->folder.run_dir, (char *)ls_crew_kind_name(crew->kind), rank,
                    port_text,       NULL};
    snprintf(rank, sizeof rank, "0");
    snprintf(port_text, sizeof port_text, "%u", port);
    if (crew->kind == LS_CREW_MPI) {
        return ls_launch_mpi(program, argv, crew->world, crew->folder.run_dir, &crew->environment, &crew->watch);
    }
    ls_spawn_files files = {.in = -1, .out = STDOUT_FILENO, .error = ls_error_lines_writer(crew->watch.lines)};
    for (size_t r = 0; r < crew->world; r++) {
        snprintf(rank, sizeof rank, "%zu", r);
        LS_TRY(ls_spawn(argv, &crew->environment, &files, &crew->watch.children[r]));
    }
    return LS_OK;
}

static ls_rc start_processes(ls_crew *crew) {
    char program[LS_PATH_SIZE], path[LS_PATH_SIZE + 16];
    unsigned short port = 0;
    LS_TRY(ls_launch_self(program, sizeof program));
    LS_TRY(ls_run_dir_make(program, &crew->folder));
    snprintf(path, sizeof path, "%s/crew", crew->folder.run_dir);
    LS_TRY(ls_micro_page_create(path, crew->world, &crew->page));
    LS_TRY(ls_progress_create(crew->folder.run_dir, crew->world, &crew->watch.page));
    crew->watch.mpirun = crew->kind == LS_CREW_MPI;
    LS_TRY(ls_error_lines_open(crew->watch.mpirun, &crew->watch.lines));
    crew->watch.children = ls_calloc(crew->world, sizeof *crew->watch.children, "ranks");
    crew->watch.rank_fds = ls_calloc(crew->world, sizeof *crew->watch.rank_fds, "ranks");
    if (crew->watch.children == NULL || crew->watch.rank_fds == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t r = 0; r < crew->world; r++) {
        crew->watch.rank_fds[r] = -1;
    }
    crew->watch.count = crew->watch.mpirun ? 1 : crew->world;
    LS_TRY(set_environment(crew));
    if (!crew->watch.mpirun) {
        LS_TRY(ls_launch_reserve_port(&crew->port_fd, &port));
    }
    fflush(stdout);
    LS_TRY(start_children(crew, program, port));
    ls_error_lines_started(crew->watch.lines);
    return wait_done(crew);
}

/* Ranks end by themselves after QUIT; what does not is ended. */
static void end_processes(ls_crew *crew) {
    if (!crew->broken && crew->page != NULL && crew->watch.lines != NULL) {
        (void)command(crew, &(ls_micro_order){.verb = LS_MICRO_QUIT});
        (void)ls_watch_wait(&crew->watch, quit_ms);
        ls_error_lines_show(crew->watch.lines);
    }
    if (crew->watch.children != NULL && crew->watch.rank_fds != NULL && crew->watch.lines != NULL) {
        ls_watch_end(&crew->watch, -1);
    }
    ls_watch_close(&crew->watch);
    ls_environment_free(&crew->environment);
    if (crew->port_fd >= 0) {
        close(crew->port_fd);
    }
    ls_run_dir_remove(&crew->folder);
}

void ls_crew_close(ls_crew *crew) {
    if (crew == NULL) {
        return;
    }
    if (crew->kind == LS_CREW_THREADS) {
        end_threads(crew);
    } else {
        end_processes(crew);
    }
    ls_micro_page_close(crew->page);
    free(crew);
}

ls_rc ls_crew_open(ls_crew_kind kind, size_t world, ls_crew **out) {
    *out = ls_calloc(1, sizeof **out, "ranks to measure with");
    if (*out == NULL) {
        return LS_DEVICE_FAILED;
    }
    (*out)->kind = kind;
    (*out)->world = world;
    (*out)->port_fd = -1;
    ls_rc rc = kind == LS_CREW_THREADS ? start_threads(*out) : start_processes(*out);
    if (rc != LS_OK) {
        ls_crew_close(*out);
        *out = NULL;
    }
    return rc;
}
