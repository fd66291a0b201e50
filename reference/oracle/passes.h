/* What oracle.c and rounding.c share: the passes over all layers for a group of blocks. */
#ifndef LS_REFERENCE_ORACLE_PASSES_H
#define LS_REFERENCE_ORACLE_PASSES_H

#include "reference/oracle/block.h"

/* Samples go through in groups of blocks: of one block, or with batchnorm of all blocks of a call. Every array holds
 * [blocks][features][LANES]. */
struct ls_oracle {
    const ls_model *model;
    bool whole;                              /* some layer looks at all samples of a call */
    size_t blocks;                           /* of the arrays */
    size_t widest;                           /* most features of a layer's input or output */
    double *values[LS_MODEL_MAX_LAYERS + 1]; /* [l]: input of layer l; the last: the model's output */
    double
        *errors[LS_MODEL_MAX_LAYERS + 1]; /* bounds on the device's error of the same values; with random roundings the
                                              * deviations of an affine layer's output */
    uint8_t *choices[LS_MODEL_MAX_LAYERS];
    double *statistics[LS_MODEL_MAX_LAYERS]; /* batchnorm's */
    double *dy, *dx;                         /* gradients with respect to a layer's output and input */
    double *scratch, *scratch_dy, *weight;   /* absolute values or squares: inputs, dy and weights of one layer */
    struct ls_oracle_spread *spread;         /* what the next pass leaves for random roundings; NULL: nothing */
    ls_oracle_noise *noise;                  /* random roundings of the next pass; NULL: exact */
};

/* Deviations of results of float sums, and what those of gradients follow from (rounding.c). */
typedef struct ls_oracle_spread {
    double unit_roundoff, smallest;
    double *dx[LS_MODEL_MAX_LAYERS]; /* of an affine layer's dx */
    double *shared_y[LS_MODEL_MAX_LAYERS],
        *shared_dx[LS_MODEL_MAX_LAYERS]; /* [channels]: what the errors of a group's y and
                                                                              * dx add up to */
    double *squares; /* [param_count], of affine layers: sums of squared terms; at last the deviations themselves */
    double *sample_squares; /* likewise: sums of the squares of samples' sums of terms */
    double *one_by_one;     /* likewise: the gradients from a single accumulator of the device's precision */
} ls_oracle_spread;

/* Blocks that go through together. */
typedef struct ls_oracle_group {
    size_t first, count; /* samples */
    size_t blocks;
} ls_oracle_group;

extern const ls_oracle_kind *const ls_oracle_kinds[LS_LAYER_KIND_COUNT];

/* Room for the groups of a call; the first has count 0. 0, or -1 when memory is short. */
int ls_oracle_groups(ls_oracle *oracle, const ls_oracle_input *input, ls_oracle_group *group);
/* The next group of a call; false: there is none. */
bool ls_oracle_next(const ls_oracle *oracle, const ls_oracle_input *input, ls_oracle_group *group);

/* Forward, loss and backward of a group; as ls_oracle_gradient otherwise. */
void ls_oracle_run(ls_oracle *oracle, const ls_oracle_input *input, const ls_oracle_group *group, double *grads,
                   double *loss_sum, ls_oracle_decisions *report);

/* The pass of a layer over one block of a group; of a whole kind over all of them from block 0 on. */
ls_oracle_pass ls_oracle_make_pass(ls_oracle *oracle, const ls_oracle_input *input, size_t layer,
                                   const ls_oracle_group *group, size_t block, ls_oracle_decisions *report);

/* Doubles before a block of a layer's input. */
size_t ls_oracle_block_offset(const ls_model *model, size_t layer, size_t block);

/* rounding.c. The deviations of an affine layer's output and dx into out, and what the layer's gradients need into spread. */
void ls_oracle_spread_forward(ls_oracle *oracle, const ls_oracle_pass *pass, double *out);
void ls_oracle_spread_dx(ls_oracle *oracle, const ls_oracle_pass *pass, double *out);
void ls_oracle_spread_params(ls_oracle *oracle, const ls_oracle_pass *pass);
/* Adds to each value of a block a random number of its deviation, and one of what its channel has in common. */
void ls_oracle_noise_add(const ls_oracle_pass *pass, ls_shape shape, double *values, const double *deviations,
                         const double *shared);

#endif
