#include "reference/zoo/zoo.h"

/* Two convolutions and two linear layers, 21,840 parameters. The source ends in log_softmax and trains with
 * CrossEntropyLoss on it, which is the same loss since log_softmax is idempotent. */
const ls_model_spec ls_zoo_seed_cnn = {
    .name = "seed-cnn",
    .summary = "conv 10 k5, maxpool 2, relu, conv 20 k5, maxpool 2, relu, fc 50, relu, fc 10, log-softmax",
    .channels = 1,
    .height = 28,
    .width = 28,
    .classes = 10,
    .layer_count = 11,
    .layers =
        {
            {.kind = LS_LAYER_CONV, .name = "conv1", .out = 10, .kernel = 5},
            {.kind = LS_LAYER_MAXPOOL, .name = "pool1", .kernel = 2},
            {.kind = LS_LAYER_RELU, .name = "relu1"},
            {.kind = LS_LAYER_CONV, .name = "conv2", .out = 20, .kernel = 5},
            {.kind = LS_LAYER_MAXPOOL, .name = "pool2", .kernel = 2},
            {.kind = LS_LAYER_RELU, .name = "relu2"},
            {.kind = LS_LAYER_FLATTEN, .name = "flatten"},
            {.kind = LS_LAYER_LINEAR, .name = "fc1", .out = 50},
            {.kind = LS_LAYER_RELU, .name = "relu3"},
            {.kind = LS_LAYER_LINEAR, .name = "fc2", .out = 10},
            {.kind = LS_LAYER_LOG_SOFTMAX, .name = "log_softmax"},
        },
    .epochs = 10,
    .normalize = {.channels = 0},
};
