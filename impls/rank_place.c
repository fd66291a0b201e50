/* What a process is among the ranks of a run. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "impls/devices.h"
#include "impls/rank.h"
#include "impls/rank_internal.h"

/* The first of the variables that is set. */
static const char *first_set(const char *const *names, const char **name) {
    for (; *names != NULL; names++) {
        const char *text = getenv(*names);
        if (text != NULL && text[0] != '\0') {
            *name = *names;
            return text;
        }
    }
    return NULL;
}

/* A number from the first of the variables (NULL-ended) that is set; otherwise when there is none. */
static ls_rc read_number(const char *const *names, size_t limit, size_t otherwise, size_t *out) {
    const char *name = names[0], *text = first_set(names, &name);
    if (text == NULL) {
        *out = otherwise;
        return LS_OK;
    }
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || text[0] == '-' || value > limit) {
        return ls_fail(LS_BAD_INPUT, "environment variable %s: expected a number from 0 to %zu, found '%s'", name,
                       limit, text);
    }
    *out = (size_t)value;
    return LS_OK;
}

static const char *const mpi_rank[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", NULL};
static const char *const mpi_local[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK",
                                        "PMIX_RANK", NULL};
static const char *const ddp_rank[] = {"RANK", NULL};
static const char *const ddp_local[] = {"LOCAL_RANK", "RANK", NULL};
static const char *const ddp_world[] = {"WORLD_SIZE", NULL};
static const char *const ddp_port[] = {"MASTER_PORT", NULL};

/* mpi: what the launcher says; that MPI itself says the same is checked when it is initialised. */
static ls_rc place_mpi(ls_rank *out) {
    LS_TRY(read_number(mpi_rank, SIZE_MAX / 2, 0, &out->rank));
    return read_number(mpi_local, SIZE_MAX / 2, 0, &out->local_rank);
}

static bool is_set(const char *name) {
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0';
}

/* ddp's processes: torchrun's variables. */
static ls_rc place_process(const ls_run *run, ls_rank *out) {
    size_t world = 0, port = 0;
    if (is_set("RANK") != is_set("WORLD_SIZE")) {
        bool rank = is_set("RANK");
        return ls_fail(LS_BAD_INPUT,
                       "environment variable %s is set, %s is not; set both in every rank's shell, or none and let "
                       "lockstep start the ranks",
                       rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK");
    }
    LS_TRY(read_number(ddp_world, SIZE_MAX / 2, 1, &world));
    if (world != run->devices) {
        return ls_fail(LS_BAD_INPUT,
                       "WORLD_SIZE is %zu, --devices says %zu; start one process a device, or none and let lockstep "
                       "start them",
                       world, run->devices);
    }
    LS_TRY(read_number(ddp_rank, world - 1, 0, &out->rank));
    LS_TRY(read_number(ddp_local, SIZE_MAX / 2, 0, &out->local_rank));
    LS_TRY(read_number(ddp_port, 65535, 29500, &port)); /* torchrun's default */
    if (port == 0) {
        return ls_fail(LS_BAD_INPUT, "environment variable MASTER_PORT: expected a port from 1 to 65535, found 0");
    }
    out->master = is_set("MASTER_ADDR") ? getenv("MASTER_ADDR") : "127.0.0.1";
    out->port = (unsigned short)port;
    return LS_OK;
}

/* Under a launcher its own time limit comes first, so that it names the rank that stands still rather than one that waits
 * for it. */
static double wait_limit(const ls_run *run) {
    return run->run_dir[0] != '\0' ? run->timeout + 2 : run->timeout;
}

ls_rc ls_rank_place(const ls_run *run, const ls_impl *impl, ls_rank *out) {
    *out = (ls_rank){.world = impl->ranks(run->devices), .master = "127.0.0.1", .timeout = wait_limit(run)};
    bool threads = (impl->capabilities & LS_CAP_RANK_THREADS) != 0 && run->ranks == LS_RANKS_THREADS;
    if ((impl->capabilities & LS_CAP_MPIRUN) != 0) {
        LS_TRY(place_mpi(out));
    } else if ((impl->capabilities & LS_CAP_RANK_PROCESSES) != 0 && !threads) {
        LS_TRY(place_process(run, out));
    }
    return ls_devices_place(run, out->local_rank, &out->device);
}

bool ls_rank_started_outside(const ls_run *run) {
    const ls_impl *impl = ls_impl_find(run->impl);
    if (impl == NULL) {
        return false;
    }
    if ((impl->capabilities & LS_CAP_MPIRUN) != 0) {
        return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMIX_RANK") != NULL;
    }
    return (impl->capabilities & LS_CAP_RANK_PROCESSES) != 0 && run->ranks == LS_RANKS_PROCESSES &&
           (is_set("RANK") || is_set("WORLD_SIZE")); /* one alone is refused by ls_rank_place */
}
