/* Keeps a rank of ddp from waiting for ever: a thread, asleep while nothing is under way, that looks at the communicator's
 * asynchronous error and at the progress of the last collective, and aborts the communicator when a peer has failed or
 * nothing has moved within the time limit. It prints why, once. The abort ends whatever wait the rank's own thread is in (as the watchdog of
 * PyTorch's ProcessGroupNCCL). */
#ifndef LS_IMPLS_DDP_WATCH_H
#define LS_IMPLS_DDP_WATCH_H

#include <pthread.h>
#include <stdbool.h>

#include "gpu/gpu.h"

typedef struct ls_ddp_watch {
    bool open;
    int rank, device;
    double timeout;       /* seconds */
    cudaEvent_t progress; /* recorded after the last collective that was enqueued */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    ncclComm_t comm; /* NULL once aborted */
    bool stop;
    bool pending; /* progress is not known to have passed */
    bool failed;  /* the communicator is no longer usable, and the cause has been printed */
    double since; /* seconds of CLOCK_MONOTONIC when the last collective was enqueued */
} ls_ddp_watch;

/* Takes over comm (of the current device) and starts the thread. On failure comm is aborted. */
ls_rc ls_ddp_watch_open(ls_ddp_watch *watch, ncclComm_t comm, int rank, int device, double timeout);

/* Stops the thread and destroys the communicator; aborts it when it has failed or `abort` says that its peers must be woken.
 * Safe on a zeroed watch. */
void ls_ddp_watch_close(ls_ddp_watch *watch, bool abort);

/* Between begin and end the communicator cannot be aborted: collectives are enqueued there. begin returns LS_DEVICE_FAILED,
 * without need of end, once the communicator has failed. */
ls_rc ls_ddp_watch_begin(ls_ddp_watch *watch);
void ls_ddp_watch_end(ls_ddp_watch *watch);

/* The check of an NCCL call made between them, once what it does behind the scenes has ended: a line and LS_DEVICE_FAILED. */
ls_rc ls_ddp_watch_check(ls_ddp_watch *watch, ncclResult_t status, const char *call, const char *file, int line);
#define ls_ddp_watch_check(watch, status, call, file, line) \
    (LS_NOTE_PLACE(file, line), (ls_ddp_watch_check)(watch, status, call, file, line))

/* After collectives were enqueued on stream: records their progress and starts the clock. */
ls_rc ls_ddp_watch_enqueued(ls_ddp_watch *watch, cudaStream_t stream);

/* A call has failed on the rank's own thread. When a collective is the cause, whose failure every later call on the device meets, says
 * so in NCCL's words, which name the peer, and ends the communicator; once. */
void ls_ddp_watch_explain(ls_ddp_watch *watch);

/* Waits for a stream that depends on collectives. When they failed, one line with the reason. */
ls_rc ls_ddp_watch_wait(ls_ddp_watch *watch, cudaStream_t stream);

#endif
