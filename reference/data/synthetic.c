#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "reference/data/source.h"
#include "reference/rng.h"

/* Classes of bars: class c is a bar through the middle at c*18 degrees, moved by up to 2 pixels and under noise. Whole
 * numbers only, so that every machine makes the same bytes. With targets the samples are floats, and the
 * targets numbers without a rule. */
enum { SIDE = 28, CLASSES = 10, DEFAULT_COUNT = 60000, MAX_SIDE = 1024, MAX_CHANNELS = 16, MAX_TARGETS = 64 };

/* 784 MB of pixels, beyond which a rank would need more than 1 GiB. */
static const size_t max_count = 1000000;
static const size_t max_pixels = (size_t)784 * 1000000;

/* Fills one sample of bytes and returns its label; a function of key and shape alone. */
static int32_t make_sample(uint64_t key, const ls_dataset *set, uint8_t *pixels) {
    static const int cosine[CLASSES] = {256, 243, 207, 150, 79, 0, -79, -150, -207, -243}; /* 256*cos(c*18 degrees) */
    static const int sine[CLASSES] = {0, 79, 150, 207, 243, 256, 243, 207, 150, 79};
    uint64_t bits = ls_splitmix64(key);
    int width = (int)set->width, height = (int)set->height, rows = (int)set->channels * height;
    int label = (int)(bits % (set->classes > 0 ? set->classes : CLASSES));
    int centre_x = width - 1 + 2 * ((int)((bits >> 32) % 5) - 2); /* in half pixels */
    int centre_y = height - 1 + 2 * ((int)((bits >> 40) % 5) - 2);
    uint64_t noise = 0;
    for (int row = 0; row < rows; row++) { /* channels differ in noise only */
        int y = row % height;
        for (int x = 0; x < width; x++) {
            int at = row * width + x;
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

/* Samples and targets as small multiples of 1/64, exact in float32. */
static void make_floats(uint64_t key, const ls_dataset *set, const uint8_t *pixels, float *values, float *targets) {
    for (size_t i = 0; i < ls_dataset_features(set); i++) {
        values[i] = (float)((int)pixels[i] - 96) / 64;
    }
    for (size_t t = 0; t < set->target_count; t++) {
        targets[t] = (float)((int)(ls_splitmix64(key + 1 + t) & 127) - 64) / 64;
    }
}

/* A whole number from low to high up to `end`; *at moves behind it. */
static bool read_number(const char **at, char end, size_t low, size_t high, size_t *out) {
    char *stop = NULL;
    errno = 0;
    unsigned long long value = strtoull(*at, &stop, 10);
    bool good = **at >= '0' && **at <= '9' && errno == 0 && value >= low && value <= high && *stop == end;
    *out = (size_t)value;
    *at = stop + (end != '\0' ? 1 : 0);
    return good;
}

/* "CxHxW", "CxHxW:CLASSES" or "CxHxW:tTARGETS". */
static bool read_shape(const char *at, ls_dataset *out) {
    const char *colon = strchr(at, ':');
    bool good = read_number(&at, 'x', 1, MAX_CHANNELS, &out->channels) &&
                read_number(&at, 'x', 1, MAX_SIDE, &out->height) &&
                read_number(&at, colon != NULL ? ':' : '\0', 1, MAX_SIDE, &out->width);
    if (!good || colon == NULL) {
        return good;
    }
    if (*at != 't') {
        return read_number(&at, '\0', 2, CLASSES, &out->classes);
    }
    at++;
    out->classes = 0;
    out->floats = true;
    return read_number(&at, '\0', 1, MAX_TARGETS, &out->target_count);
}

static ls_rc parse(const char *argument, ls_dataset *out) {
    *out = (ls_dataset){.count = DEFAULT_COUNT, .channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES};
    if (argument == NULL) {
        return LS_OK;
    }
    const char *colon = strchr(argument, ':');
    const char *at = argument;
    if (!read_number(&at, colon != NULL ? ':' : '\0', 1, max_count, &out->count)) {
        return ls_fail(LS_BAD_INPUT,
                       "--data synthetic: expected a number of samples from 1 to %zu after the colon, found '%s'",
                       max_count, argument);
    }
    if (colon != NULL && !read_shape(colon + 1, out)) {
        return ls_fail(LS_BAD_INPUT,
                       "--data synthetic: expected CxHxW of at most %dx%dx%d behind the number of samples, and then "
                       ":CLASSES of 2 to %d or :tTARGETS of 1 to %d, found '%s'",
                       MAX_CHANNELS, MAX_SIDE, MAX_SIDE, CLASSES, MAX_TARGETS, colon + 1);
    }
    if (out->count > max_pixels / ls_dataset_features(out)) {
        return ls_fail(LS_BAD_INPUT, "--data synthetic: expected at most %zu pixels in all, found %s", max_pixels,
                       argument);
    }
    return LS_OK;
}

static ls_rc check(const char *argument) {
    ls_dataset unused;
    return parse(argument, &unused);
}

static ls_rc shape_of(const char *argument, ls_split split, ls_dataset *out) {
    LS_TRY(parse(argument, out));
    if (split == LS_SPLIT_TEST) {
        out->count = out->count / 6 > 0 ? out->count / 6 : 1;
    }
    return LS_OK;
}

/* Samples of floats: each is made of one of bytes. */
static ls_rc make_targets(uint64_t first, ls_dataset *out) {
    size_t features = ls_dataset_features(out);
    uint8_t *pixels = ls_calloc(features, 1, "a synthetic image");
    out->values = ls_calloc(out->count, features * sizeof *out->values, "synthetic images");
    out->targets = ls_calloc(out->count, out->target_count * sizeof *out->targets, "synthetic targets");
    bool good = pixels != NULL && out->values != NULL && out->targets != NULL;
    for (size_t i = 0; good && i < out->count; i++) {
        uint64_t key = first + (uint64_t)i * 1024;
        (void)make_sample(key, out, pixels);
        make_floats(key, out, pixels, out->values + i * features, out->targets + i * out->target_count);
    }
    free(pixels);
    return good ? LS_OK : LS_DEVICE_FAILED;
}

static ls_rc make_labels(uint64_t first, ls_dataset *out) {
    size_t features = ls_dataset_features(out);
    out->pixels = ls_calloc(out->count, features, "synthetic images");
    for (size_t i = 0; out->pixels != NULL && i < out->count; i++) {
        out->labels[i] = make_sample(first + (uint64_t)i * 1024, out, out->pixels + i * features);
    }
    return out->pixels != NULL ? LS_OK : LS_DEVICE_FAILED;
}

static ls_rc open_samples(const char *argument, ls_split split, ls_dataset *out) {
    LS_TRY(shape_of(argument, split, out));
    uint64_t first = split == LS_SPLIT_TEST ? UINT64_C(1) << 62 : 0; /* apart from every training sample */
    out->labels = ls_calloc(out->count, sizeof *out->labels, "synthetic labels");
    ls_rc rc = LS_DEVICE_FAILED;
    if (out->labels != NULL) {
        rc = out->target_count > 0 ? make_targets(first, out) : make_labels(first, out);
    }
    if (rc != LS_OK) {
        ls_dataset_close(out);
    }
    return rc;
}

const ls_data_source ls_data_synthetic = {.name = "synthetic",
                                          .usage = "synthetic[:N[:CxHxW[:CLASSES]]]",
                                          .check = check,
                                          .open = open_samples,
                                          .shape = shape_of};
