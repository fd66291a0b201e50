/* The learning rate of a step. A schedule changes it from epoch to epoch, as PyTorch's StepLR and CosineAnnealingLR stepped
 * once an epoch; a warm-up raises it from step to step. A pure function: nothing is carried from step to step. */
#ifndef LS_REFERENCE_SCHEDULE_H
#define LS_REFERENCE_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

typedef enum ls_schedule_kind {
    LS_SCHEDULE_CONSTANT = 0,
    LS_SCHEDULE_STEP,   /* StepLR: base*gamma^floor(epoch/step_size) */
    LS_SCHEDULE_COSINE, /* CosineAnnealingLR with eta_min 0: base*(1 + cos(pi*epoch/T_max))/2, T_max the run's epochs */
    LS_SCHEDULE_COUNT
} ls_schedule_kind;

typedef struct ls_schedule {
    ls_schedule_kind kind;
    size_t step_size;    /* of StepLR, epochs; at least 1 */
    double gamma;        /* of StepLR */
    size_t warmup_steps; /* the rate of step s < warmup_steps is s/warmup_steps of what it would be */
} ls_schedule;

/* "constant", "step", "cosine". */
const char *ls_schedule_name(ls_schedule_kind kind);

/* base: the rate that the optimizer was given; step: steps made before, over all epochs; epoch: 0 for the first; epochs:
 * T_max, at least 1. */
double ls_schedule_rate(const ls_schedule *schedule, double base, uint64_t step, size_t epoch, size_t epochs);

#endif
