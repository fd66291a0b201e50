/* The fp64 oracle: gradients in plain double-precision C, written apart from everything it judges. It includes nothing
 * from gpu/ and shares no code with the layers; of the project it knows only what a model is (reference/model.h). */
#ifndef LS_REFERENCE_ORACLE_H
#define LS_REFERENCE_ORACLE_H

#include "reference/model.h"

typedef struct ls_oracle ls_oracle;

/* Returns 0, or -1 when memory is short. model must outlive the oracle. An oracle serves one call at a time. */
int ls_oracle_open(const ls_model *model, ls_oracle **out);
void ls_oracle_close(ls_oracle *oracle);

/* Where the oracle followed a device's decisions (ReLU's sign, max-pool's choice), how they compare with its own. */
typedef struct ls_oracle_decisions {
    size_t total;       /* decisions followed */
    size_t different;   /* of them, those that differ from the oracle's own choice */
    size_t unproven;    /* of those, where the two candidates lie further apart than the forward error bound */
    double worst_ratio; /* largest distance / bound among the different ones */
    size_t worst_sample, worst_layer, worst_position;
} ls_oracle_decisions;

typedef struct ls_oracle_loss {
    enum { LS_ORACLE_CROSS_ENTROPY = 0, LS_ORACLE_MSE, LS_ORACLE_RMSE } kind;
    bool sum;               /* over samples (and outputs), not their mean */
    double label_smoothing; /* of cross entropy */
} ls_oracle_loss;

/* The loss made of the sum of its terms over samples, and its derivative with respect to that sum. A term is a sample's
 * cross entropy, or its squared error summed over the outputs. */
double ls_oracle_loss_value(const ls_oracle_loss *loss, double sum, double samples, size_t outputs);
double ls_oracle_loss_slope(const ls_oracle_loss *loss, double sum, double samples, size_t outputs);

typedef struct ls_oracle_input {
    const double *params;     /* param_count values in the model's flat (ready) order */
    size_t count;             /* samples */
    const double *x;          /* [count][features] */
    const int32_t *labels;    /* [count] */
    const double *targets;    /* [count][outputs] for squared errors, or NULL: the labels' one-hot vectors */
    ls_oracle_loss loss;      /* which terms; how they are reduced is the caller's */
    double denominator;       /* of the loss: gradient of sum(terms)/denominator */
    const uint8_t *decisions; /* [count][decisions_per_sample] to follow, or NULL: the oracle's own choices */
    double unit_roundoff;     /* u of the device's arithmetic, for the bound on followed decisions */
    double *statistics;       /* NULL, or [buffer_count]: each batchnorm's mean in running_mean's place and unbiased
                               * variance in running_var's, over the samples of this call */
    double *statistics_error; /* with statistics: bounds on the device's errors of them (with decisions) */
} ls_oracle_input;

/* Batchnorm normalises by the statistics of the samples of this call. Dropout follows the mask in decisions; without
 * decisions it lets everything pass.
 *
 * Adds the gradient of sum(terms)/denominator to grads (param_count, ready order; the caller zeroes) and sum(terms) to
 * *loss_sum. report may be NULL without decisions; it is accumulated into. Returns 0, or -1 when memory is short. */
int ls_oracle_gradient(ls_oracle *oracle, const ls_oracle_input *input, double *grads, double *loss_sum,
                       ls_oracle_decisions *report);

/* How far a device's gradients may lie from the oracle's by rounding alone: Monte-Carlo arithmetic. The passes of
 * ls_oracle_gradient once more for each draw, with a random rounding in the place of each one that the device has. */
typedef struct ls_oracle_draws {
    size_t first, count; /* draws first .. first+count-1; each has random numbers of its own */
    double smallest;     /* the most that a result below the normal range loses */
    double *grads;       /* [count][param_count]: a draw's gradient is added */
    double *loss_sums;   /* [count]: its sum of terms is added */
} ls_oracle_draws;

/* The input must have decisions to follow. Returns 0, or -1 when memory is short. */
int ls_oracle_draw(ls_oracle *oracle, const ls_oracle_input *input, const ls_oracle_draws *draws);

/* x = pixels as ToTensor and Normalize give them in float32, widened; one sample of the shape's bytes. */
void ls_oracle_pixels(const uint8_t *pixels, ls_shape shape, const ls_normalize *normalize, double *x);
/* The same of floats, which ToTensor leaves as they are. */
void ls_oracle_values(const float *values, ls_shape shape, const ls_normalize *normalize, double *x);

/* PyTorch's optimizers in double: torch.optim's names. */
typedef struct ls_oracle_optimizer {
    enum { LS_ORACLE_SGD = 0, LS_ORACLE_ADAM, LS_ORACLE_ADAMW, LS_ORACLE_RMSPROP } rule;
    double momentum, dampening, weight_decay, beta1, beta2, eps, alpha;
    bool nesterov, amsgrad, centered, maximize;
} ls_oracle_optimizer;

enum { LS_ORACLE_STATES = 3 };

/* One step. state: LS_ORACLE_STATES buffers of count values, zeros before the first: SGD's velocity; Adam's first and second
 * moment and the largest second one; RMSprop's square and gradient averages and velocity. step: 0 for the first. */
void ls_oracle_update(const ls_oracle_optimizer *optimizer, size_t count, double *params, const double *grads,
                      double *const *state, size_t step, double lr);

/* SGD's: g += weight_decay*w; buf = first ? g : momentum*buf + (1 - dampening)*g; w -= lr*g without momentum, lr*(g +
 * momentum*buf) with Nesterov's, else lr*buf. */
void ls_oracle_sgd(const ls_oracle_optimizer *optimizer, size_t count, double *params, const double *grads,
                   double *velocity, double lr, bool first);

#endif
