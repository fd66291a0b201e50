#include "reference/zoo/zoo.h"

/* Linear layers whose weights are mostly zeros and otherwise 1 or -1: on the samples of --data exact every sum of a forward
 * and backward pass is a whole number of the same unit and stays below 2^24, so that float32 computes it exactly in any
 * order. Wide in the middle, so that bucket caps of 4 KiB, 16 KiB and more give 3, 2 and 1 buckets. */
const ls_model_spec ls_zoo_exact = {
    .name = "exact",
    .summary = "fc 32, fc 128, fc 8 with weights of 0, 1 and -1: exact arithmetic",
    .channels = 1,
    .height = 8,
    .width = 8,
    .classes = 8,
    .layer_count = 4,
    .layers =
        {
            {.kind = LS_LAYER_FLATTEN, .name = "flatten"},
            {.kind = LS_LAYER_LINEAR, .name = "fc1", .out = 32},
            {.kind = LS_LAYER_LINEAR, .name = "fc2", .out = 128},
            {.kind = LS_LAYER_LINEAR, .name = "fc3", .out = 8},
        },
    .epochs = 1,
    .normalize = {.channels = 0},
    .init = LS_INIT_EXACT,
};
