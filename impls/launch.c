#include "impls/launch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "impls/impl.h"
#include "impls/interrupt.h"
#include "impls/launch_mpi.h"
#include "impls/launch_mpi_buffers.h"
#include "impls/options.h"
#include "impls/run_dir.h"
#include "impls/supervise.h"

ls_rc ls_launch_self(char *path, size_t size) {
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length < 0 || (size_t)length == size - 1) {
        return ls_fail(LS_DEVICE_FAILED, "cannot find this program's own path: %s",
                       length < 0 ? strerror(errno) : "it is too long");
    }
    path[length] = '\0';
    return LS_OK;
}

ls_rc ls_launch_reserve_port(int *fd, unsigned short *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int yes = 1;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(*fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(*fd, (struct sockaddr *)&address, &size) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "no free port for the rendezvous of the ranks: %s", strerror(errno));
    }
    *port = ntohs(address.sin_port);
    return LS_OK;
}

static ls_rc set_number(ls_environment *environment, const char *name, size_t value) {
    char text[32];
    snprintf(text, sizeof text, "%zu", value);
    return ls_environment_set(environment, name, text, false);
}

/* What every rank program gets. One thread a library: ranks share the cores. */
static ls_rc common_environment(ls_environment *environment) {
    LS_TRY(ls_environment_set(environment, "OMP_NUM_THREADS", "1", true));
    LS_TRY(ls_environment_set(environment, "OPENBLAS_NUM_THREADS", "1", true));
    return set_number(environment, "LOCKSTEP_LAUNCHER", (size_t)getpid());
}

static ls_rc rank_environment(ls_environment *environment, size_t rank, size_t world, unsigned short port) {
    LS_TRY(set_number(environment, "RANK", rank));
    LS_TRY(set_number(environment, "LOCAL_RANK", rank));
    LS_TRY(set_number(environment, "WORLD_SIZE", world));
    LS_TRY(set_number(environment, "MASTER_PORT", port));
    return ls_environment_set(environment, "MASTER_ADDR", "127.0.0.1", false);
}

/* One process a rank, or one for all. */
static ls_rc start_ranks(char **argv, ls_environment *environment, size_t world, unsigned short port, ls_watch *watch) {
    ls_spawn_files files = {.in = -1, .out = STDOUT_FILENO, .error = ls_error_lines_writer(watch->lines)};
    for (size_t i = 0; i < watch->count; i++) {
        if (port != 0) {
            LS_TRY(rank_environment(environment, i, world, port));
        }
        LS_TRY(ls_spawn(argv, environment, &files, &watch->children[i]));
    }
    return LS_OK;
}

/* Everything that a run under way holds. */
typedef struct launch_state {
    ls_environment environment;
    char **argv;
    int port_fd;
    ls_watch watch;
} launch_state;

static ls_rc prepare(const char *program, const ls_run *run, size_t world, ls_outcome *out, launch_state *state) {
    ls_run told = *run;
    snprintf(told.run_dir, sizeof told.run_dir, "%s", out->run_dir);
    state->argv = ls_options_argv(program, LS_COMMAND_RANK, &told);
    ls_watch *watch = &state->watch;
    watch->children = ls_calloc(watch->count, sizeof *watch->children, "the ranks' processes");
    watch->rank_fds = ls_calloc(world, sizeof *watch->rank_fds, "the ranks' processes");
    if (state->argv == NULL || watch->children == NULL || watch->rank_fds == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t r = 0; r < world; r++) {
        watch->rank_fds[r] = -1;
    }
    LS_TRY(ls_progress_create(out->run_dir, world, &watch->page));
    LS_TRY(ls_error_lines_open(watch->mpirun, &watch->lines));
    LS_TRY(ls_environment_copy(&state->environment));
    return common_environment(&state->environment);
}

static ls_rc start(const char *program, const ls_run *run, size_t world, ls_outcome *out, launch_state *state) {
    ls_watch *watch = &state->watch;
    if (watch->mpirun) {
        return ls_launch_mpi(program, state->argv, world, out->run_dir, &state->environment, watch);
    }
    unsigned short port = 0;
    bool processes = (ls_impl_find(run->impl)->capabilities & LS_CAP_RANK_PROCESSES) != 0;
    if (processes && run->ranks == LS_RANKS_PROCESSES) {
        LS_TRY(ls_launch_reserve_port(&state->port_fd, &port));
    }
    return start_ranks(state->argv, &state->environment, world, port, watch);
}

static void put_away(launch_state *state) {
    ls_watch_close(&state->watch);
    free(state->argv);
    ls_environment_free(&state->environment);
    if (state->port_fd >= 0) {
        close(state->port_fd);
    }
}

/* The results that the ranks have left. */
static ls_rc collect(size_t world, ls_outcome *out) {
    out->ranks = json_array();
    for (size_t r = 0; r < world && out->ranks != NULL; r++) {
        char path[LS_PATH_SIZE + 32];
        json_error_t error;
        snprintf(path, sizeof path, "%s/rank-%zu.json", out->run_dir, r);
        json_t *result = json_load_file(path, 0, &error);
        if (!json_is_object(result)) {
            json_decref(result);
            out->guilty_rank = (int)r;
            snprintf(out->reason, sizeof out->reason, "rank %zu left no result: %.200s", r, error.text);
            return ls_fail(LS_DEVICE_FAILED, "%s", out->reason);
        }
        if (json_array_append_new(out->ranks, result) != 0) {
            return ls_fail(LS_DEVICE_FAILED, "out of memory for the results of the ranks");
        }
    }
    return out->ranks != NULL ? LS_OK : ls_fail(LS_DEVICE_FAILED, "out of memory for the results of the ranks");
}

static ls_rc launch_in_folder(const char *program, const ls_run *asked, const ls_impl *impl, ls_outcome *out) {
    ls_run decided = *asked;
    const ls_run *run = &decided;
    if ((impl->capabilities & LS_CAP_MPIRUN) != 0) {
        out->rc = ls_mpi_buffers_decide(program, out->run_dir, &decided);
        if (out->rc != LS_OK) {
            return out->rc;
        }
    }
    bool threads = (impl->capabilities & LS_CAP_RANK_THREADS) != 0 && run->ranks == LS_RANKS_THREADS;
    size_t world = impl->ranks(run->devices);
    launch_state state = {.port_fd = -1};
    state.watch.run = run;
    state.watch.mpirun = (impl->capabilities & LS_CAP_MPIRUN) != 0;
    state.watch.count = threads || state.watch.mpirun ? 1 : world;
    out->rc = prepare(program, run, world, out, &state);
    if (out->rc == LS_OK) {
        out->rc = start(program, run, world, out, &state);
        ls_error_lines_started(state.watch.lines);
        if (out->rc == LS_OK) {
            ls_supervise(&state.watch, out);
        } else {
            ls_watch_end(&state.watch, -1);
        }
    }
    put_away(&state);
    return out->rc;
}

ls_rc ls_launch(const char *program, const ls_run *run, ls_outcome *out) {
    *out = (ls_outcome){.guilty_rank = -1};
    const ls_impl *impl = ls_impl_find(run->impl);
    if (impl == NULL) {
        return out->rc = ls_fail(LS_BAD_INPUT, "unknown implementation '%s'", run->impl);
    }
    fflush(stdout); /* what was printed before comes before what the ranks print */
    out->rc = ls_interrupt_begin();
    if (out->rc != LS_OK) {
        return out->rc;
    }
    out->rc = ls_run_dir_make(program, out);
    if (out->rc == LS_OK) {
        out->rc = launch_in_folder(program, run, impl, out);
    }
    bool interrupted = ls_interrupt_signal() != 0;
    if (interrupted) {
        ls_outcome_release(out);
    }
    ls_interrupt_end();
    if (interrupted) {
        return out->rc = LS_DEVICE_FAILED;
    }
    if (out->rc == LS_OK) {
        out->rc = collect(impl->ranks(run->devices), out);
    }
    if (out->rc != LS_OK && out->reason[0] == '\0') {
        snprintf(out->reason, sizeof out->reason, "the run could not be started");
    }
    return out->rc;
}

void ls_outcome_release(ls_outcome *outcome) {
    json_decref(outcome->ranks);
    outcome->ranks = NULL;
    ls_run_dir_remove(outcome);
}
