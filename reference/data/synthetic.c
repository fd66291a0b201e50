#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "reference/data/source.h"
#include "reference/rng.h"

/* Ten classes of bars: class c is a bar through the middle at c*18 degrees, moved by up to 2 pixels and under noise. Whole
 * numbers only, so that every machine makes the same bytes. */
enum { SIDE = 28, CLASSES = 10, DEFAULT_COUNT = 60000 };

/* 784 MB of pixels, beyond which a rank would need more than 1 GiB. */
static const size_t max_count = 1000000;

/* Fills one image and returns its label; a function of key alone. */
static int32_t make_sample(uint64_t key, uint8_t *pixels) {
    static const int cosine[CLASSES] = {256, 243, 207, 150, 79, 0, -79, -150, -207, -243}; /* 256*cos(c*18 degrees) */
    static const int sine[CLASSES] = {0, 79, 150, 207, 243, 256, 243, 207, 150, 79};
    uint64_t bits = ls_splitmix64(key);
    int label = (int)(bits % CLASSES);
    int centre_x = 27 + 2 * ((int)((bits >> 32) % 5) - 2); /* in half pixels */
    int centre_y = 27 + 2 * ((int)((bits >> 40) % 5) - 2);
    uint64_t noise = 0;
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            int at = y * SIDE + x;
            if (at % 8 == 0) {
                noise = ls_splitmix64(bits + (uint64_t)at + 1);
            }
            int distance = abs((2 * x - centre_x) * sine[label] - (2 * y - centre_y) * cosine[label]) / 256;
            int light = distance < 6 ? 190 - 25 * distance : 0;
            pixels[at] = (uint8_t)(light + (int)(noise & 63));
            noise >>= 8;
        }
    }
    return label;
}

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
                       "--data synthetic: expected a number of samples from 1 to %zu after the colon, found '%s'",
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
    *out = (ls_dataset){.count = count, .channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES};
    return LS_OK;
}

static ls_rc open_samples(const char *argument, ls_split split, ls_dataset *out) {
    LS_TRY(shape_of(argument, split, out));
    size_t count = out->count;
    out->pixels = ls_calloc(count, SIDE * SIDE, "synthetic images");
    out->labels = ls_calloc(count, sizeof *out->labels, "synthetic labels");
    if (out->pixels == NULL || out->labels == NULL) {
        ls_dataset_close(out);
        return LS_DEVICE_FAILED;
    }
    uint64_t first = split == LS_SPLIT_TEST ? UINT64_C(1) << 62 : 0; /* apart from every training sample */
    for (size_t i = 0; i < count; i++) {
        out->labels[i] = make_sample(first + (uint64_t)i * 1024, out->pixels + i * SIDE * SIDE);
    }
    return LS_OK;
}

const ls_data_source ls_data_synthetic = {
    .name = "synthetic", .usage = "synthetic[:N]", .check = check, .open = open_samples, .shape = shape_of};
