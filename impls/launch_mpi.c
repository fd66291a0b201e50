#include "impls/launch_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/gpu.h"

/* Session folders, sockets and shared-memory files go to the run's private folder: it is removed whatever happens. As MCA
 * environment variables, which mpirun passes on to its ranks. */
static ls_rc set_folders(ls_environment *environment, const char *run_dir) {
    static const char *const names[] = {
        "TMPDIR",
        "OMPI_MCA_orte_tmpdir_base",
        "OMPI_MCA_btl_vader_backing_directory",
        "OMPI_MCA_osc_sm_backing_directory",
        "OMPI_MCA_osc_rdma_backing_directory",
        "OMPI_MCA_shmem_mmap_backing_file_base_dir",
        "PMIX_SYSTEM_TMPDIR",
        "PMIX_SERVER_TMPDIR",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        LS_TRY(ls_environment_set(environment, names[i], run_dir, false));
    }
    return LS_OK;
}

static ls_rc set_behaviour(ls_environment *environment, size_t world) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bool shared = ls_platform_shared_cores() > 0;
    if (geteuid() == 0) {
        LS_TRY(ls_environment_set(environment, "OMPI_ALLOW_RUN_AS_ROOT", "1", false));
        LS_TRY(ls_environment_set(environment, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", false));
    }
    if (shared || cores < 1 || world > (size_t)cores) {
        /* a rank that spins while it waits takes the core that another rank, or a device on CPU threads, needs */
        LS_TRY(ls_environment_set(environment, "OMPI_MCA_mpi_yield_when_idle", "1", true));
    }
    if (shared && access("/sys/class/infiniband", F_OK) != 0) {
        /* no device that a fabric's driver could find, after a quarter of a second of looking: this is what is left then */
        LS_TRY(ls_environment_set(environment, "OMPI_MCA_pml", "ob1", true));
    }
    return LS_OK;
}

ls_rc ls_launch_mpirun(const char *program, char **arguments, size_t world, const char *run_dir,
                       ls_environment *environment, const ls_spawn_files *files, ls_child *child) {
    char number[32];
    snprintf(number, sizeof number, "%zu", world);
    const char *const first[] = {program, "rank-guard",      "exec",      "mpirun", "-n",
                                 number,  "--oversubscribe", "--bind-to", "none",   program};
    size_t ours = sizeof first / sizeof first[0], theirs = 0;
    while (arguments[theirs] != NULL) {
        theirs++;
    }
    char **words = ls_calloc(ours + theirs + 1, sizeof *words, "a command line");
    if (words == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < ours; i++) {
        words[i] = (char *)first[i];
    }
    for (size_t i = 0; i < theirs; i++) {
        words[ours + i] = arguments[i];
    }
    ls_rc rc = set_folders(environment, run_dir);
    if (rc == LS_OK) {
        rc = set_behaviour(environment, world);
    }
    rc = rc == LS_OK ? ls_spawn(words, environment, files, child) : rc;
    free(words);
    return rc;
}

ls_rc ls_launch_mpi(const char *program, char **argv, size_t world, const char *run_dir, ls_environment *environment,
                    ls_watch *watch) {
    LS_TRY(ls_rank_pipe_open(&watch->output));
    ls_spawn_files files = {.in = -1, .out = watch->output.writer, .error = ls_error_lines_writer(watch->lines)};
    LS_TRY(ls_launch_mpirun(program, argv + 1, world, run_dir, environment, &files, &watch->children[0]));
    ls_rank_pipe_started(&watch->output);
    atomic_store(&watch->page->supervisor, (uint32_t)watch->children[0].pid);
    return LS_OK;
}
