/* The rank program: one rank (or all ranks, as threads) of a run, from open to close: the epochs, the log lines of the
 * sources, evaluation, timing, capture, saving. Ranks report progress on a page that the launcher watches, and write their
 * result as <run_dir>/rank-<R>.json:
 *   {"rank", "pid", "steps", "log": [{"epoch", "batch", "loss"}], "epochs": [{"loss", "test_loss", "test_accuracy", "seconds", "samples_per_second"}],
 *    "step_seconds": [timed steps], "param_hash": "16 hex digits", "grad_hash", "samples", "train_seconds", "input_seconds": waiting for batches,
 *    "warmup_seconds": [the untimed steps before], "counters": {"steps": made in this run, and ls_counters}, "math": "...", "max_rss_bytes"} */
#ifndef LS_IMPLS_RANK_H
#define LS_IMPLS_RANK_H

#include "impls/impl.h"
#include "impls/run.h"
#include "reference/dataset.h"
#include "reference/model.h"
#include "reference/sampler.h"

/* Runs what this process is to run of the run: rank and world size from the environment (RANK, WORLD_SIZE, LOCAL_RANK,
 * MASTER_ADDR, MASTER_PORT for ddp's processes; MPI for mpi), all ranks for ranks as threads. */
ls_rc ls_rank_main(const ls_run *run);

/* Whether this process was started as a rank by somebody else's launcher: under mpirun or srun for mpi, with RANK and
 * WORLD_SIZE for ddp's processes. Then a command runs ls_rank_main itself, without a private folder, instead of ls_launch. */
bool ls_rank_started_outside(const ls_run *run);

/* The model of a run, its parameters' sizes, and the normalisation in force. */
ls_rc ls_run_model(const ls_run *run, ls_model *model, ls_normalize *normalize);

/* The sampler of a run for count samples: order, padding and seed as the run says. */
ls_sampler ls_run_sampler(const ls_run *run, size_t count, size_t world, size_t rank);

/* Checks that the network can take the samples and tell the classes of a data set (sizes suffice): one line with both and
 * LS_BAD_INPUT. */
ls_rc ls_run_fits(const ls_run *run, const ls_model *model, const ls_dataset *data);

/* Makes of a run one by `single` on one device, without what only ranks that communicate have. Batches stay as they are. */
void ls_run_make_single(ls_run *run);

/* Samples of a device and of all devices in a full step (from batch and global_batch). */
ls_rc ls_run_batches(const ls_run *run, size_t *local, size_t *global);

/* What a rank of the run has of `count` samples: its samples of an epoch, and those of a full step. LS_BAD_INPUT as
 * ls_run_batches. */
ls_rc ls_run_share(const ls_run *run, size_t count, size_t *length, size_t *batch);

/* Refuses a run whose ranks never have a full step, since a shard has fewer samples than a batch: one line with both and
 * LS_BAD_INPUT. Such a run trains (an epoch is one short step), but nothing can be said of the speed of its batch. */
ls_rc ls_run_full_steps(const ls_run *run);

/* Epochs asked for, else the model's own: what the learning rate's schedule is laid out for. */
size_t ls_run_epochs(const ls_run *run);

/* The learning rate of a step: steps made before over all epochs, and its epoch from 0. */
double ls_run_rate(const ls_run *run, uint64_t step, size_t epoch);

#endif
