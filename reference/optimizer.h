/* What makes a step of parameters out of a gradient. An optimizer is one file in reference/optimizers/ and one line in the
 * table of reference/optimizer.c; docs/adding-an-optimizer.md walks through it. */
#ifndef LS_REFERENCE_OPTIMIZER_H
#define LS_REFERENCE_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/base/dtype.h"
#include "gpu/base/error.h"
#include "gpu/gpu.h"
#include "gpu/kernels/kernels.h"

enum { LS_OPTIMIZER_MAX_STATES = 3 };

/* Hyper-parameters under PyTorch's names; an optimizer reads those it knows. All zeros: SGD without momentum. The learning
 * rate is not among them: it belongs to a step. */
typedef struct ls_optimizer_options {
    size_t kind; /* index into ls_optimizers */
    double momentum, dampening, weight_decay;
    double beta1, beta2, eps, alpha;
    bool nesterov, amsgrad, centered, maximize;
} ls_optimizer_options;

/* Which hyper-parameters an optimizer knows. weight_decay and maximize are everyone's. */
enum {
    LS_KNOWS_MOMENTUM = 1u << 0,
    LS_KNOWS_DAMPENING = 1u << 1,
    LS_KNOWS_NESTEROV = 1u << 2,
    LS_KNOWS_BETAS = 1u << 3,
    LS_KNOWS_EPS = 1u << 4,
    LS_KNOWS_AMSGRAD = 1u << 5,
    LS_KNOWS_ALPHA = 1u << 6,
    LS_KNOWS_CENTERED = 1u << 7,
};

/* One step over a flat buffer; device pointers to count elements of dtype. */
typedef struct ls_optimizer_step {
    cudaStream_t stream;
    ls_dtype dtype;
    size_t count;
    void *param;
    const void *grad;
    void *const *state; /* [ls_optimizer_state_count] */
    uint64_t steps;     /* made before this one */
    double lr;
    const ls_step_values *live; /* NULL, or device memory that holds ls_optimizer.live's scalars when the step runs */
} ls_optimizer_step;

typedef struct ls_optimizer {
    const char *name;  /* --optimizer */
    const char *title; /* "RMSprop" */
    unsigned knows;    /* LS_KNOWS_* */
    double lr;         /* the learning rate when none is given */
    ls_optimizer_options defaults;
    /* The buffers that it keeps under these options, by PyTorch's names; returns how many. */
    size_t (*states)(const ls_optimizer_options *options, const char *names[LS_OPTIMIZER_MAX_STATES]);
    /* Contradictions: one line and LS_BAD_INPUT. NULL: none are possible. */
    ls_rc (*check)(const ls_optimizer_options *options);
    /* What the kernel makes of steps and lr alone: the scalars that change from step to step. */
    void (*live)(const ls_optimizer_options *options, uint64_t steps, double lr, double scalar[LS_STEP_SCALARS]);
    /* Enqueues the step: one launch. */
    cudaError_t (*step)(const ls_optimizer_options *options, const ls_optimizer_step *step);
} ls_optimizer;

/* NULL-ended. */
extern const ls_optimizer *const ls_optimizers[];

/* The optimizer of options. */
const ls_optimizer *ls_optimizer_of(const ls_optimizer_options *options);
/* The names of all, joined by ", ", in the table's order; cut off where size does not do. */
void ls_optimizer_names(char *text, size_t size);
/* Index into ls_optimizers; false: no such name. */
bool ls_optimizer_find(const char *name, size_t *kind);

/* Buffers of parameter size that the optimizer keeps (0..LS_OPTIMIZER_MAX_STATES), and PyTorch's name of each. They start as
 * zeros; SGD's velocity is written before it is read. */
size_t ls_optimizer_state_count(const ls_optimizer_options *options);
const char *ls_optimizer_state_name(const ls_optimizer_options *options, size_t index);

/* Refuses contradictory options: one line and LS_BAD_INPUT. */
ls_rc ls_optimizer_check(const ls_optimizer_options *options);

#endif
