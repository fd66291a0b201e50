#include "reference/zoo/zoo.h"

/* One convolution and one linear layer, 14,670 parameters. The source shows no pooling, but its linear layer takes
 * 1440 = 10*12*12 features, which only a 2x2 pool of the 24x24 convolution gives. */
const ls_model_spec ls_zoo_seed_conv = {
    .name = "seed-conv",
    .summary = "conv 10 k5, maxpool 2, fc 10; inputs normalised by 0.1307, 0.3081",
    .channels = 1,
    .height = 28,
    .width = 28,
    .classes = 10,
    .layer_count = 4,
    .layers =
        {
            {.kind = LS_LAYER_CONV, .name = "conv1", .out = 10, .kernel = 5},
            {.kind = LS_LAYER_MAXPOOL, .name = "pool1", .kernel = 2},
            {.kind = LS_LAYER_FLATTEN, .name = "flatten"},
            {.kind = LS_LAYER_LINEAR, .name = "fc", .out = 10},
        },
    .epochs = 2,
    .normalize = {.channels = 1, .mean = {0.1307}, .std = {0.3081}},
};
