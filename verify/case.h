/* A case of verification: what a run was asked to do, and what its ranks recorded of each step. */
#ifndef LS_VERIFY_CASE_H
#define LS_VERIFY_CASE_H

#include "impls/capture.h"
#include "impls/impl.h"
#include "reference/dataset.h"
#include "reference/oracle/oracle.h"

typedef struct ls_case {
    ls_run run;
    ls_model model;
    ls_normalize normalize;
    ls_reduction reduction;
    size_t ranks, devices, steps;
    size_t local_batch;          /* samples of a rank in a full step */
    const ls_dataset *data;      /* the training set; not owned */
    ls_capture_local *locals;    /* [steps][devices]; a device of dp that had no samples has count 0 and zeros */
    ls_capture_reduced *reduced; /* [steps][ranks] */
} ls_case;

/* What run says, before anything is read: model, sizes, empty records for `steps` steps. Owned: ls_case_close. */
ls_rc ls_case_open(const ls_run *run, const ls_impl *impl, const ls_dataset *data, size_t steps, ls_case *out);

/* Reads the captures of run_dir. LS_CHECK_FAILED with a line in why when they are not complete. */
ls_rc ls_case_read(ls_case *c, const char *run_dir, char *why, size_t size);
void ls_case_close(ls_case *c);

static inline ls_capture_local *ls_case_local(const ls_case *c, size_t step, size_t device) {
    return &c->locals[step * c->devices + device];
}

static inline ls_capture_reduced *ls_case_reduced(const ls_case *c, size_t step, size_t rank) {
    return &c->reduced[step * c->ranks + rank];
}

/* The rank that drives a device: its own, or the only one. */
static inline size_t ls_case_rank_of(const ls_case *c, size_t device) {
    return c->ranks == 1 ? 0 : device;
}

/* Samples of all devices in a step. */
size_t ls_case_samples(const ls_case *c, size_t step);

/* The run's loss and optimizer as the oracle's (case_training.c); false: an optimizer that the oracle does not know. */
ls_oracle_loss ls_case_loss(const ls_case *c);
bool ls_case_optimizer(const ls_case *c, ls_oracle_optimizer *out);
/* The learning rate of a step. */
double ls_case_rate(const ls_case *c, size_t step);

#endif
