#include "impls/ddp_comm.h"

#include <string.h>
#include <time.h>

#include "gpu/base/clock.h"

ncclResult_t ls_ddp_comm_settle(ncclComm_t comm, ncclResult_t status, double timeout) {
    /* Between two questions: first short, since most calls end at once, then rare enough to leave the core to NCCL's threads. */
    struct timespec pause = {.tv_nsec = 20000};
    const long longest = 2000000;
    double end = ls_now_seconds() + timeout;
    while (status == ncclInProgress && ls_now_seconds() < end) {
        (void)nanosleep(&pause, NULL);
        pause.tv_nsec = pause.tv_nsec < longest ? 2 * pause.tv_nsec : longest;
        ncclResult_t asked = ncclCommGetAsyncError(comm, &status);
        status = asked == ncclSuccess ? status : asked;
    }
    return status;
}

static ls_rc fail_open(const ls_rank *rank, ncclComm_t comm, ncclResult_t status) {
    if (status == ncclInProgress) {
        return ls_fail(LS_DEVICE_FAILED, "NCCL: not all of the %zu ranks have met within %g s", rank->world,
                       rank->timeout);
    }
    const char *words = ncclGetLastError(comm);
    bool known = words != NULL && words[0] != '\0';
    bool doubled = known && strstr(words, "Duplicate GPU") != NULL;
    return ls_fail(LS_DEVICE_FAILED, "NCCL: ncclCommInitRankConfig: %s%s%s%s", ncclGetErrorString(status),
                   known ? ": " : "", known ? words : "",
                   doubled
                       ? "; NCCL allows one rank a GPU: give each rank of a host its own LOCAL_RANK, or use mpi with "
                         "--share-devices"
                       : "");
}

ls_rc ls_ddp_comm_open(const ls_rank *rank, ncclUniqueId id, ncclComm_t *out) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    *out = NULL;
    ncclResult_t status = ncclCommInitRankConfig(out, (int)rank->world, id, (int)rank->rank, &config);
    status = *out != NULL ? ls_ddp_comm_settle(*out, status, rank->timeout) : status;
    if (status == ncclSuccess) {
        return LS_OK;
    }
    ls_rc rc = fail_open(rank, *out, status);
    if (*out != NULL) {
        (void)ncclCommAbort(*out); /* the cause has been printed */
        *out = NULL;
    }
    return rc;
}

void ls_ddp_comm_close(ncclComm_t comm, double timeout) {
    ncclResult_t status = ls_ddp_comm_settle(comm, ncclCommFinalize(comm), timeout);
    (void)(status == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm));
}
