#include "impls/ddp_watch.h"

#include <string.h>
#include <time.h>

#include "gpu/base/clock.h"
#include "impls/ddp_comm.h"

/* How long a failure may go unnoticed by the thread, in seconds; short against any time limit, rare enough to cost nothing. */
static const double watch_interval = 0.1;

/* What follows is called with the mutex held. */

/* NCCL's own words about what went wrong, which name the peer. */
static ls_rc fail_async(const ls_ddp_watch *watch, ncclResult_t error) {
    const char *detail = ncclGetLastError(watch->comm);
    bool known = detail != NULL && detail[0] != '\0';
    return ls_fail(LS_DEVICE_FAILED, "NCCL: %s%s%s", ncclGetErrorString(error), known ? ": " : "", known ? detail : "");
}

/* The communicator's asynchronous error, ncclSuccess when there is none. */
static ncclResult_t async_error(const ls_ddp_watch *watch) {
    ncclResult_t state = ncclSuccess;
    if (watch->comm == NULL) {
        return ncclSuccess;
    }
    ncclResult_t asked = ncclCommGetAsyncError(watch->comm, &state);
    if (asked != ncclSuccess) {
        return asked;
    }
    return state == ncclInProgress ? ncclSuccess : state;
}

/* Ends the communicator, and every wait on it here and at the peers. The cause has been printed before, since those waits end
 * with errors of their own. */
static void give_up(ls_ddp_watch *watch) {
    watch->failed = true;
    watch->pending = false;
    if (watch->comm != NULL) {
        (void)ncclCommAbort(watch->comm);
        watch->comm = NULL;
    }
}

/* One look at what is pending. */
static void look(ls_ddp_watch *watch) {
    ncclResult_t error = async_error(watch);
    if (error != ncclSuccess) {
        (void)fail_async(watch, error);
        give_up(watch);
        return;
    }
    cudaError_t status = cudaEventQuery(watch->progress);
    if (status == cudaErrorNotReady) {
        if (ls_now_seconds() - watch->since > watch->timeout) {
            (void)ls_fail(LS_DEVICE_FAILED, "a collective has not finished within %g s", watch->timeout);
            give_up(watch);
        }
        return;
    }
    watch->pending = false; /* done; or the device failed, which the rank's own thread sees */
}

static void *run(void *argument) {
    ls_ddp_watch *watch = argument;
    ls_error_set_rank(watch->rank, watch->device);
    (void)cudaSetDevice(watch->device);
    (void)pthread_mutex_lock(&watch->mutex);
    while (!watch->stop) {
        if (!watch->pending) {
            (void)pthread_cond_wait(&watch->changed, &watch->mutex);
            continue;
        }
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(watch_interval * 1e9);
        if (until.tv_nsec >= 1000000000L) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000L;
        }
        (void)pthread_cond_timedwait(&watch->changed, &watch->mutex, &until);
        if (watch->pending && !watch->stop) {
            look(watch);
        }
    }
    (void)pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

static int open_locks(ls_ddp_watch *watch) {
    pthread_condattr_t attributes;
    int status = pthread_mutex_init(&watch->mutex, NULL);
    if (status != 0) {
        return status;
    }
    status = pthread_condattr_init(&attributes);
    if (status == 0) {
        status = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        status = status == 0 ? pthread_cond_init(&watch->changed, &attributes) : status;
        (void)pthread_condattr_destroy(&attributes);
    }
    if (status != 0) {
        (void)pthread_mutex_destroy(&watch->mutex);
    }
    return status;
}

ls_rc ls_ddp_watch_open(ls_ddp_watch *watch, ncclComm_t comm, int rank, int device, double timeout) {
    *watch = (ls_ddp_watch){.comm = comm, .rank = rank, .device = device, .timeout = timeout};
    ls_rc rc = ls_cuda_check(cudaEventCreateWithFlags(&watch->progress, cudaEventDisableTiming),
                             "cudaEventCreateWithFlags", __FILE__, __LINE__);
    if (rc != LS_OK) {
        (void)ncclCommAbort(comm);
        return rc;
    }
    int status = open_locks(watch);
    if (status == 0) {
        status = pthread_create(&watch->thread, NULL, run, watch);
        if (status != 0) {
            (void)pthread_cond_destroy(&watch->changed);
            (void)pthread_mutex_destroy(&watch->mutex);
        }
    }
    if (status != 0) {
        (void)ncclCommAbort(comm);
        (void)cudaEventDestroy(watch->progress);
        return ls_fail(LS_DEVICE_FAILED, "the watch over NCCL cannot be started: %s", strerror(status));
    }
    watch->open = true;
    return LS_OK;
}

void ls_ddp_watch_close(ls_ddp_watch *watch, bool abort) {
    if (!watch->open) {
        return;
    }
    (void)pthread_mutex_lock(&watch->mutex);
    watch->stop = true;
    if (abort && !watch->failed) {
        give_up(watch);
    }
    (void)pthread_cond_broadcast(&watch->changed);
    (void)pthread_mutex_unlock(&watch->mutex);
    (void)pthread_join(watch->thread, NULL);
    if (watch->comm != NULL) {
        ls_ddp_comm_close(watch->comm, watch->timeout);
    }
    (void)cudaEventDestroy(watch->progress);
    (void)pthread_cond_destroy(&watch->changed);
    (void)pthread_mutex_destroy(&watch->mutex);
    watch->open = false;
}

ls_rc ls_ddp_watch_begin(ls_ddp_watch *watch) {
    (void)pthread_mutex_lock(&watch->mutex);
    if (watch->failed) {
        (void)pthread_mutex_unlock(&watch->mutex);
        return LS_DEVICE_FAILED;
    }
    return LS_OK;
}

ls_rc(ls_ddp_watch_check)(ls_ddp_watch *watch, ncclResult_t status, const char *call, const char *file, int line) {
    status = ls_ddp_comm_settle(watch->comm, status, watch->timeout);
    if (status == ncclInProgress) {
        return ls_fail(LS_DEVICE_FAILED, "%s:%d: %s has not been started within %g s", file, line, call,
                       watch->timeout);
    }
    return ls_nccl_check(status, call, file, line);
}

void ls_ddp_watch_end(ls_ddp_watch *watch) {
    (void)pthread_mutex_unlock(&watch->mutex);
}

ls_rc ls_ddp_watch_enqueued(ls_ddp_watch *watch, cudaStream_t stream) {
    (void)pthread_mutex_lock(&watch->mutex);
    ls_rc rc = ls_cuda_check(cudaEventRecord(watch->progress, stream), "cudaEventRecord", __FILE__, __LINE__);
    watch->since = ls_now_seconds();
    if (rc == LS_OK && !watch->failed && !watch->pending) {
        watch->pending = true;
        (void)pthread_cond_signal(&watch->changed);
    }
    (void)pthread_mutex_unlock(&watch->mutex);
    return rc;
}

void ls_ddp_watch_explain(ls_ddp_watch *watch) {
    (void)pthread_mutex_lock(&watch->mutex);
    ncclResult_t error = watch->failed ? ncclSuccess : async_error(watch);
    if (error != ncclSuccess) {
        (void)fail_async(watch, error);
        give_up(watch);
    }
    (void)pthread_mutex_unlock(&watch->mutex);
}

ls_rc ls_ddp_watch_wait(ls_ddp_watch *watch, cudaStream_t stream) {
    cudaError_t status = cudaStreamSynchronize(stream);
    (void)pthread_mutex_lock(&watch->mutex);
    if (!watch->failed) {
        ncclResult_t error = async_error(watch);
        if (error != ncclSuccess) {
            (void)fail_async(watch, error);
        } else if (status != cudaSuccess) {
            (void)ls_cuda_check(status, "cudaStreamSynchronize", __FILE__, __LINE__);
        }
        if (error != ncclSuccess || status != cudaSuccess) {
            give_up(watch);
        }
    }
    ls_rc rc = watch->failed ? LS_DEVICE_FAILED : LS_OK;
    (void)pthread_mutex_unlock(&watch->mutex);
    return rc;
}
