#include <errno.h>
#include <stdlib.h>

#include "reference/data/source.h"
#include "reference/rng.h"

/* Small whole numbers: 64 inputs of -1, 0 or 1 and 8 targets of -8 to 8. Products and sums of them are exact in float32 as
 * long as they stay below 2^24, whatever their order. */
enum { SIDE = 8, TARGETS = 8, FARTHEST = 8, DEFAULT_COUNT = 4096 };

static const size_t max_count = 1000000;

static ls_rc parse_count(const char *argument, size_t *count) {
    *count = DEFAULT_COUNT;
    if (argument == NULL) {
        return LS_OK;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(argument, &end, 10);
    bool digits = argument[0] >= '0' && argument[0] <= '9' && *end == '\0';
    if (!digits || errno != 0 || value == 0 || value > max_count) {
        return ls_fail(LS_BAD_INPUT,
                       "--data exact: expected a number of samples from 1 to %zu after the colon, found '%s'",
                       max_count, argument);
    }
    *count = (size_t)value;
    return LS_OK;
}

static ls_rc check(const char *argument) {
    size_t count = 0;
    return parse_count(argument, &count);
}

static ls_rc shape_of(const char *argument, ls_split split, ls_dataset *out) {
    size_t count = 0;
    LS_TRY(parse_count(argument, &count));
    if (split == LS_SPLIT_TEST) {
        count = count / 6 > 0 ? count / 6 : 1;
    }
    *out = (ls_dataset){
        .count = count, .channels = 1, .height = SIDE, .width = SIDE, .target_count = TARGETS, .floats = true};
    return LS_OK;
}

/* A function of key alone. */
static void make_sample(uint64_t key, float *values, float *targets) {
    for (uint64_t i = 0; i < (uint64_t)SIDE * SIDE; i++) {
        values[i] = (float)(ls_splitmix64(key + i) % 3) - 1;
    }
    for (uint64_t i = 0; i < TARGETS; i++) {
        targets[i] = (float)(ls_splitmix64(key + (uint64_t)SIDE * SIDE + i) % (2 * FARTHEST + 1)) - FARTHEST;
    }
}

static ls_rc open_samples(const char *argument, ls_split split, ls_dataset *out) {
    LS_TRY(shape_of(argument, split, out));
    out->values = ls_calloc(out->count * SIDE * SIDE, sizeof *out->values, "exact samples");
    out->targets = ls_calloc(out->count * TARGETS, sizeof *out->targets, "exact targets");
    out->labels = ls_calloc(out->count, sizeof *out->labels, "exact labels");
    if (out->values == NULL || out->targets == NULL || out->labels == NULL) {
        ls_dataset_close(out);
        return LS_DEVICE_FAILED;
    }
    uint64_t first = split == LS_SPLIT_TEST ? UINT64_C(1) << 62 : 0; /* apart from every training sample */
    for (size_t i = 0; i < out->count; i++) {
        make_sample(first + (uint64_t)i * 1024, out->values + i * SIDE * SIDE, out->targets + i * TARGETS);
    }
    return LS_OK;
}

const ls_data_source ls_data_exact = {
    .name = "exact", .usage = "exact[:N]", .check = check, .open = open_samples, .shape = shape_of};
