/* The parts of the rank program: rank.c starts ranks, rank_loop.c trains, the others do one thing each. */
#ifndef LS_IMPLS_RANK_INTERNAL_H
#define LS_IMPLS_RANK_INTERNAL_H

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "impls/impl.h"
#include "impls/progress.h"
#include "reference/dataset.h"

/* What the ranks of one process share; read only once they run. */
typedef struct ls_rank_data {
    const ls_run *run;
    const ls_impl *impl;
    ls_model model;
    size_t batch;        /* samples a rank and full step */
    size_t global_batch; /* of all ranks */
    ls_dataset train;
    ls_dataset test;    /* with run->evaluate */
    ls_progress *page;  /* NULL: nobody watches */
    const char *folder; /* the run's private folder; NULL: none, no result file */
} ls_rank_data;

/* One rank while it runs. */
typedef struct ls_rank_task {
    const ls_rank_data *data;
    ls_rank rank;
    ls_progress_rank *progress; /* of data->page; NULL when nobody watches */
    void *self;                 /* the implementation's */
    /* what goes to the result file */
    json_t *log, *epochs, *step_seconds, *warmup_seconds;
    uint64_t steps, samples; /* samples: of all ranks */
    uint64_t resumed;        /* of the steps, those made before the checkpoint that the run went on from */
    double train_seconds;
    double input_seconds; /* of them, waiting for batches */
} ls_rank_task;

/* What this process is among the ranks, from the environment that its launcher set (see ls_rank_main). For ranks as threads
 * rank 0's place. One line and LS_BAD_INPUT when the environment and the run disagree. */
ls_rc ls_rank_place(const ls_run *run, const ls_impl *impl, ls_rank *out);

/* Opens the implementation, trains, evaluates, saves and writes the result. */
ls_rc ls_rank_run(ls_rank_task *task);

/* Opens the implementation, loads parameters, evaluates them and writes the result. */
ls_rc ls_rank_run_evaluation(ls_rank_task *task);

/* Starts the four arrays of the result. */
ls_rc ls_rank_result_open(ls_rank_task *task);
void ls_rank_result_close(ls_rank_task *task);

/* The slice of the test set that this rank evaluates: samples rank, rank + world, ... */
typedef struct ls_rank_slice {
    ls_batch samples;
    ls_samples own; /* owned; NULLs with one rank, which reads the data set itself */
} ls_rank_slice;

ls_rc ls_rank_slice_open(const ls_dataset *test, size_t rank, size_t world, ls_rank_slice *out);
void ls_rank_slice_close(ls_rank_slice *slice);

/* Of the whole test set, the same on every rank. */
typedef struct ls_test_score {
    double loss;           /* mean */
    double correct, count; /* samples */
    bool right_or_wrong;   /* no: float targets are neither, and have no accuracy */
} ls_test_score;

/* A loss to be printed: "nan" as PyTorch has it, where C prints the sign of a NaN. */
static inline double ls_printed_loss(double loss) {
    return isnan(loss) ? (double)NAN : loss;
}

/* Collective. */
ls_rc ls_rank_evaluate(ls_rank_task *task, const ls_rank_slice *slice, ls_test_score *score);
/* The line about a test set. */
void ls_rank_score_print(const ls_test_score *score);
/* A new reference: the share of right answers, or null. */
json_t *ls_rank_score_accuracy(const ls_test_score *score);

/* Files and memory for captures (impls/capture.h); nothing without run->capture. */
typedef struct ls_rank_capture ls_rank_capture;

ls_rc ls_rank_capture_open(ls_rank_task *task, ls_rank_capture **out);
void ls_rank_capture_close(ls_rank_capture *capture);
/* Before and after a step. Safe on NULL, which records nothing. */
ls_rc ls_rank_capture_before(ls_rank_capture *capture);
ls_rc ls_rank_capture_after(ls_rank_capture *capture, const ls_batch *batch);

/* Writes <folder>/rank-<R>.json whole. params, grads: hashes, grads NULL when no step was made. */
ls_rc ls_rank_result_write(ls_rank_task *task, uint64_t params, const uint64_t *grads);

#endif
