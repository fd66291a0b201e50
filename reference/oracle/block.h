/* What the files of the oracle share: a block of samples, and what each kind of layer does with it. */
#ifndef LS_REFERENCE_ORACLE_BLOCK_H
#define LS_REFERENCE_ORACLE_BLOCK_H

#include "reference/oracle/oracle.h"

/* Samples of a block lie side by side, [feature][LANES], so that every inner loop runs over the samples and vectorises
 * without changing the order in which a sample's terms are added. */
enum { LS_ORACLE_LANES = 8 };
/* Doubles that batchnorm keeps for each channel from forward to backward. */
enum { LS_ORACLE_STATISTICS = 7 };

/* Random roundings of one draw (rounding.c). */
typedef struct ls_oracle_noise {
    double unit_roundoff, smallest; /* of the device's arithmetic; see ls_oracle_draws */
    uint64_t draw;                  /* the draw's random number */
    uint64_t layer;                 /* of the pass under way */
} ls_oracle_noise;

/* A layer with the values that one pass over it reads and writes. Lanes at or beyond used hold zeros at the input and
 * zero gradients; what they hold in between is finite and counts for nothing. */
typedef struct ls_oracle_pass {
    const ls_layer *layer;
    size_t layer_index;
    size_t used;          /* lanes that hold samples */
    const double *weight; /* NULL without parameters */
    const double *bias;
    double *dweight; /* added to */
    double *dbias;
    const double *x;       /* [in features][LANES] */
    double *y;             /* [out features][LANES] */
    const double *x_error; /* bounds on |device's value - x|; NULL: no bound wanted */
    double *y_error;
    uint8_t *choice;       /* [out features][LANES]: what relu and maxpool decided */
    const uint8_t *follow; /* first sample's decisions of this layer, or NULL */
    bool masked;           /* dropout drops */
    size_t follow_stride;  /* bytes from one sample's decisions to the next */
    size_t first_sample;   /* index of lane 0 in the batch, for the report */
    ls_oracle_decisions *report;
    double unit_roundoff; /* of the device's arithmetic */
    size_t blocks;        /* of a whole kind: x, y, dy, dx and the errors are those of so many blocks */
    size_t count;         /* of a whole kind: samples in them */
    double *statistics;   /* batchnorm: [LS_ORACLE_STATISTICS][channels] */
    ls_oracle_noise
        *noise; /* NULL: exact; else each result is rounded at random, and relu, maxpool and dropout repeat what
                             * choice says */
    bool sample_squares; /* of an affine kind: params adds squares of samples' sums */
    bool one_by_one; /* of an affine kind: sums in the device's precision; params adds term by term, sample by sample */
    const double *dy; /* [out features][LANES] */
    double *dx;       /* [in features][LANES], zeroed before; NULL: not wanted */
} ls_oracle_pass;

/* What a kind of layer does. The error bound of an affine layer is its own forward pass over absolute values (see
 * oracle.c), its random roundings come from passes over squares (rounding.c). Others do both themselves. A whole kind is given all blocks of a call in one pass. params and dx may be
 * NULL. */
typedef struct ls_oracle_kind {
    bool affine;
    bool whole;
    void (*forward)(const ls_oracle_pass *pass);
    void (*params)(const ls_oracle_pass *pass); /* adds to dweight and dbias */
    void (*dx)(const ls_oracle_pass *pass);     /* adds to dx */
} ls_oracle_kind;

extern const ls_oracle_kind ls_oracle_conv, ls_oracle_linear, ls_oracle_relu, ls_oracle_maxpool, ls_oracle_flatten,
    ls_oracle_log_softmax, ls_oracle_avgpool, ls_oracle_dropout, ls_oracle_batchnorm;

/* After a forward pass of batchnorm: the mean and unbiased variance of each channel and the bounds on the device's errors of
 * them, [channels] each. */
void ls_oracle_batchnorm_statistics(const ls_oracle_pass *pass, double *mean, double *variance, double *mean_error,
                                    double *variance_error);

/* The loss over a block whose lane 0 is sample `first` (loss.c): the sum of its terms, and dy[output][lane] = the gradient of
 * that sum divided by input->denominator, zero in the lanes without a sample. */
double ls_oracle_terms(const ls_oracle_input *input, size_t outputs, size_t first, size_t used, const double *y,
                       double *dy, const ls_oracle_noise *noise);

/* Arithmetic with random roundings (rounding.c); without noise each returns its argument, or 0. A result of the device's
 * arithmetic; of double, whatever the device's; of an exponential or logarithm. */
double ls_oracle_rounded(const ls_oracle_noise *noise, double value);
double ls_oracle_rounded_double(const ls_oracle_noise *noise, double value);
double ls_oracle_rounded_function(const ls_oracle_noise *noise, double value);
/* value with a relative error of at most so many unit roundoffs that is the same wherever the key is. */
double ls_oracle_rounded_alike(const ls_oracle_noise *noise, size_t key, double roundings, double value);
/* A sum of n terms added in double, in whatever order: with the sum of their magnitudes, and that of the squares of what a
 * relative rounding of each is worth. */
double ls_oracle_rounded_sum(const ls_oracle_noise *noise, double sum, double n, double magnitudes, double rounded);

/* Enters a decision that differs from the oracle's own: the candidates lie distance apart, the bound allows bound. */
void ls_oracle_differs(const ls_oracle_pass *pass, size_t lane, size_t position, double distance, double bound);

#endif
