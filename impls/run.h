/* One training run as its options say it: what `lockstep train` parses, the launcher hands to rank programs, and a
 * reproducing command line repeats. Plain data. */
#ifndef LS_IMPLS_RUN_H
#define LS_IMPLS_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/layer_math.h"
#include "reference/loss.h"
#include "reference/normalize.h"
#include "reference/optimizer.h"
#include "reference/schedule.h"

enum { LS_PATH_SIZE = 1024, LS_MODEL_TEXT_SIZE = 2048 };

typedef enum ls_rank_kind { LS_RANKS_PROCESSES = 0, LS_RANKS_THREADS = 1 } ls_rank_kind;

/* Where MPI reads and writes gradients (impls/launch_mpi_buffers.h). */
typedef enum ls_mpi_buffers { LS_MPI_BUFFERS_HOST = 0, LS_MPI_BUFFERS_DEVICE, LS_MPI_BUFFERS_AUTO } ls_mpi_buffers;

typedef struct ls_run {
    char impl[16];
    size_t devices;
    bool share_devices;             /* several devices of the run may lie on one of the host (impls/devices.h) */
    ls_rank_kind ranks;             /* ddp only */
    char model[LS_MODEL_TEXT_SIZE]; /* a name of the zoo, or the spec of a network (reference/spec.h) in one line */
    char model_file[LS_PATH_SIZE];  /* the file that the spec came from, for error lines; empty: none */
    char data[LS_PATH_SIZE];
    bool normalize_given; /* false: the model's own default */
    ls_normalize normalize;
    ls_dtype dtype;
    ls_math_mode math;          /* how layers are computed */
    size_t batch;               /* samples a device and step */
    size_t global_batch;        /* samples a step over all devices; 0: batch * devices */
    bool drop_last, no_shuffle; /* of the sampler */
    size_t loader_threads;      /* 0: batches are made in the step that needs them */
    size_t epochs;              /* 0: the model's own default */
    size_t steps;               /* stop after so many steps; SIZE_MAX: whole epochs */
    ls_loss_options loss;
    double lr;
    ls_optimizer_options optimizer;
    ls_schedule schedule;
    bool baseline;    /* train: measure one device afterwards and print the speed-up, however short the run was */
    bool no_baseline; /* train: never */
    uint64_t seed;
    size_t log_every;              /* 0: no log lines */
    size_t bucket_bytes;           /* cap of a gradient bucket */
    ls_mpi_buffers mpi_buffers;    /* mpi only */
    bool nccl_register;            /* ddp only: NCCL gives the gradients' memory and registers it */
    bool reverse_buckets;          /* buckets are reduced after backward, the last first, not as they become ready */
    bool graph;                    /* full steps are captured and launched as CUDA graphs */
    double timeout;                /* seconds without progress of a rank until the run is ended */
    char save[LS_PATH_SIZE];       /* empty: none */
    char save_grads[LS_PATH_SIZE]; /* the last step's gradients; empty: none */
    char json[LS_PATH_SIZE];       /* empty: none */
    char load[LS_PATH_SIZE];       /* initial values from this file; empty: from the seed */
    char checkpoint[LS_PATH_SIZE]; /* written after each epoch; empty: none */
    char resume[LS_PATH_SIZE];     /* checkpoint to go on from; empty: none */

    /* Set by harnesses for the rank programs. */
    char run_dir[LS_PATH_SIZE]; /* the run's private folder: progress page, results and captures of ranks */
    bool capture;               /* write what verification needs after every step */
    bool evaluate;              /* test accuracy after each epoch */
    bool evaluate_only;         /* no training: test accuracy of the parameters of `load` */
    bool time_steps;            /* barrier before and synchronisation after every step, seconds of each recorded */
    size_t warmup;              /* untimed steps first, with time_steps */
} ls_run;

/* bucket_bytes by default: PyTorch's 25 MiB (bucket_cap_mb). */
#define LS_BUCKET_BYTES_DEFAULT (25u * 1024u * 1024u)

#endif
