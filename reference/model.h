/* A model as pure data: what a zoo entry says (ls_model_spec) and what follows from it (ls_model: sizes, parameters,
 * orders). No device and no library here; the replica, the oracle and the checkpoint writer all read it. */
#ifndef LS_REFERENCE_MODEL_H
#define LS_REFERENCE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/normalize.h"

enum {
    LS_MODEL_MAX_LAYERS = 64,
    LS_MODEL_MAX_PARAMS = 2 * LS_MODEL_MAX_LAYERS,
    LS_MODEL_MAX_BUFFERS = 3 * LS_MODEL_MAX_LAYERS,
    LS_NAME_SIZE = 64,
};

typedef enum ls_layer_kind {
    LS_LAYER_CONV = 0,
    LS_LAYER_MAXPOOL,
    LS_LAYER_RELU,
    LS_LAYER_FLATTEN,
    LS_LAYER_LINEAR,
    LS_LAYER_LOG_SOFTMAX,
    LS_LAYER_AVGPOOL,
    LS_LAYER_DROPOUT,
    LS_LAYER_BATCHNORM,
    LS_LAYER_KIND_COUNT
} ls_layer_kind;

/* Initial values. */
typedef enum ls_init {
    LS_INIT_PYTORCH = 0,
    LS_INIT_EXACT, /* weights of 0 (15 of 16), 1 and -1, biases of 1 and -1, whatever the seed */
} ls_init;

typedef struct ls_layer_spec {
    ls_layer_kind kind;
    char name[LS_NAME_SIZE]; /* PyTorch's module name ("conv1"); parameters are name.weight and name.bias. Empty: the
                              * layer's index, as nn.Sequential names it */
    size_t out;              /* out channels or out features */
    size_t kernel;           /* square */
    size_t stride;           /* 0: 1 for conv, kernel for maxpool and avgpool */
    size_t padding;
    bool no_bias;         /* conv and linear: weight only */
    double p;             /* dropout: share of the values that is dropped, 0 <= p < 1 */
    double eps, momentum; /* batchnorm; 0: PyTorch's defaults, 1e-5 and 0.1 */
    size_t line, column;  /* where the layer stands in the text that it was read from, from 1 on; 0: in none */
} ls_layer_spec;

typedef struct ls_model_spec {
    const char *name; /* borrowed: outlives the spec */
    const char *summary;
    size_t channels, height, width; /* of an input */
    size_t classes;
    size_t layer_count;
    ls_layer_spec layers[LS_MODEL_MAX_LAYERS];
    /* the source's own training defaults */
    size_t epochs;
    ls_normalize normalize;
    ls_init init;
} ls_model_spec;

typedef struct ls_shape {
    size_t channels, height, width;
} ls_shape;

static inline size_t ls_shape_features(ls_shape s) {
    return s.channels * s.height * s.width;
}

typedef struct ls_param {
    char name[LS_NAME_SIZE]; /* PyTorch's state_dict key */
    size_t dims;
    size_t shape[4];
    size_t count;  /* elements */
    size_t fan_in; /* for the initial values; 0: batchnorm's, weight ones and bias zeros */
    size_t offset; /* elements into the flat buffers (ready order) */
    size_t layer;
} ls_param;

/* What training keeps beside the parameters: PyTorch's buffers. running_mean and running_var are values of the replica's
 * dtype, num_batches_tracked is one int64. */
typedef struct ls_buffer {
    char name[LS_NAME_SIZE]; /* PyTorch's state_dict key */
    size_t count;            /* elements */
    size_t offset;           /* into the values, or with is_count into the counts; registration order */
    size_t layer;
    bool is_count; /* num_batches_tracked, of shape [] */
} ls_buffer;

typedef struct ls_layer {
    ls_layer_kind kind;
    char name[LS_NAME_SIZE];
    ls_shape in, out;
    size_t kernel, stride, padding;
    size_t weight, bias;    /* indices of parameters; SIZE_MAX: none */
    size_t buffer;          /* batchnorm: index of running_mean; running_var and num_batches_tracked follow it */
    double p;               /* dropout */
    double eps, momentum;   /* batchnorm */
    size_t decision_offset; /* bytes into a sample's decisions; see decisions_per_sample */
    size_t decisions;       /* bytes of decisions of this layer a sample: 0 but for relu (one byte a value: input > 0),
                                maxpool (one byte an output: row*kernel+column of the chosen input in its window) and
                                dropout (one byte a value: kept) */
} ls_layer;

/* Parameters are indexed in registration order (PyTorch's state_dict order). Flat buffers (parameters, gradients,
 * optimizer state) hold them in ready order, the order in which backward makes gradients ready: a bucket is a view. */
typedef struct ls_model {
    char name[LS_NAME_SIZE];
    ls_shape input;
    ls_init init;
    size_t classes;
    size_t layer_count;
    ls_layer layers[LS_MODEL_MAX_LAYERS];
    size_t param_tensors;
    ls_param params[LS_MODEL_MAX_PARAMS];
    size_t ready[LS_MODEL_MAX_PARAMS]; /* ready[k] = registration index of the k-th gradient to become ready */
    size_t param_count;                /* elements of all parameters */
    size_t buffer_tensors;
    ls_buffer buffers[LS_MODEL_MAX_BUFFERS]; /* registration order */
    size_t buffer_count;                     /* elements of all running_mean and running_var */
    size_t tracked_count;                    /* num_batches_tracked: one a batchnorm */
    size_t decisions_per_sample;             /* bytes; layers in order, values of a layer in C, H, W order */
} ls_model;

/* The zoo: a NULL-ended table. "seed-cnn", "seed-conv". ls_zoo_find knows "exact" besides, which is no network to train but
 * one whose arithmetic is exact (verification). */
extern const ls_model_spec *const ls_zoo[];
const ls_model_spec *ls_zoo_find(const char *name);

/* Infers every shape. Returns 0, or -1 with one line about the impossible layer in error (at most size bytes). */
int ls_model_resolve(const ls_model_spec *spec, ls_model *out, char *error, size_t size);

/* PyTorch's initial values for torch.manual_seed(seed), bit for bit (kaiming_uniform with a = sqrt(5): U(+-1/sqrt(fan_in)),
 * weight then bias, registration order; batchnorm's are ones and zeros and draw nothing), or as model->init says. flat: param_count floats, written in ready order. */
void ls_model_init(const ls_model *model, uint64_t seed, float *flat);

/* The initial buffers: means 0 and variances 1 into values (buffer_count), zeros into tracked (tracked_count). */
void ls_model_init_buffers(const ls_model *model, float *values, int64_t *tracked);

/* The gradients of a layer, which are neighbours in ready order: 0, 1 or 2. */
size_t ls_layer_params(const ls_layer *layer);

/* "conv", "log-softmax": a kind of layer as a text spec writes it. */
const char *ls_layer_kind_name(ls_layer_kind kind);

/* Index of a layer's registration-order parameter by ready position and back. */
size_t ls_model_ready_position(const ls_model *model, size_t param);

#endif
