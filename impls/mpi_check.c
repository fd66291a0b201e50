#include "impls/mpi_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/mutant.h"

ls_rc ls_mpi_check(int status, const char *call, const char *file, int line) {
    if (status == MPI_SUCCESS) {
        return LS_OK;
    }
    char reason[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    (void)MPI_Error_string(status, reason, &length);
    return ls_fail(LS_DEVICE_FAILED, "%s:%d: %s: %s", file, line, call, reason);
}

/* How many processes the launcher says that it started: Open MPI's, then the PMI of other launchers. 0: it says nothing. */
static unsigned long launcher_size(const char **variable) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        if (text == NULL || *text == '\0') {
            continue;
        }
        char *end = NULL;
        errno = 0;
        unsigned long size = strtoul(text, &end, 10);
        if (errno == 0 && *end == '\0') {
            *variable = names[i];
            return size;
        }
    }
    return 0;
}

static ls_rc local_rank(int *out) {
    MPI_Comm host = MPI_COMM_NULL;
    LS_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
    LS_MPI(MPI_Comm_rank(host, out));
    LS_MPI(MPI_Comm_free(&host));
    return LS_OK;
}

ls_rc ls_mpi_start(ls_mpi_world *world) {
    int initialized = 0;
    int rank = 0;
    int size = 0;
    int local = 0;
    LS_MPI(MPI_Initialized(&initialized));
    if (!initialized) {
        int provided = 0;
        LS_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided));
        if (provided < MPI_THREAD_FUNNELED) {
            return ls_fail(LS_DEVICE_FAILED, "this MPI has no support for programs with threads (MPI_THREAD_FUNNELED)");
        }
    }
    LS_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    LS_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    LS_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
    const char *variable = "";
    unsigned long said = launcher_size(&variable);
    if (said > 1 && size == 1) { /* each process believes to be the only one, so each says it */
        return ls_fail(LS_BAD_INPUT,
                       "mpirun says %lu processes (%s), the MPI library says 1; start it with Open MPI's own mpirun",
                       said, variable);
    }
    LS_TRY(local_rank(&local));
    *world = (ls_mpi_world){.rank = (size_t)rank, .size = (size_t)size, .local_rank = (size_t)local};
    return LS_OK;
}

void ls_mpi_stop(int failed) {
    int initialized = 0;
    int finalized = 0;
    if (MPI_Initialized(&initialized) != MPI_SUCCESS || MPI_Finalized(&finalized) != MPI_SUCCESS || !initialized ||
        finalized) {
        return;
    }
    if (failed) {
        (void)MPI_Abort(MPI_COMM_WORLD, LS_DEVICE_FAILED);
    }
    (void)ls_mpi_check(MPI_Finalize(), "MPI_Finalize", __FILE__, __LINE__);
}

ls_rc ls_mpi_describe(char *text, size_t size) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    LS_MPI(MPI_Get_library_version(library, &length));
    (void)snprintf(text, size, "%.*s", (int)strcspn(library, ",\n"), library);
    return LS_OK;
}

ls_rc ls_mpi_sum(void *values, size_t count, MPI_Datatype type, size_t most) {
    int element = 0;
    LS_MPI(MPI_Type_size(type, &element));
    if (LS_MUTANT(first_chunk_only)) {
        most = 16;
        count = count < most ? count : most;
    }
    for (size_t done = 0; done < count;) {
        size_t part = count - done < most ? count - done : most;
        char *part_values = (char *)values + done * (size_t)element;
        LS_MPI(MPI_Allreduce(MPI_IN_PLACE, part_values, (int)part, type, MPI_SUM, MPI_COMM_WORLD));
        done += part;
    }
    return LS_OK;
}
