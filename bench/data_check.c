/* lockstep data check: reads a data set completely; one line a split. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/data.h"
#include "bench/flags.h"

/* A value as a network without normalisation sees it. */
static double value_at(const ls_dataset *d, size_t i) {
    return d->values != NULL ? (double)d->values[i] : (double)d->pixels[i] / 255.0;
}

/* Mean and (population) standard deviation of a channel over all samples; two passes, so that nothing cancels. */
static void channel_statistics(const ls_dataset *d, size_t channel, double *mean, double *std) {
    size_t plane = d->height * d->width, features = ls_dataset_features(d);
    double n = (double)d->count * (double)plane;
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0;
        for (size_t s = 0; s < d->count; s++) {
            for (size_t i = 0; i < plane; i++) {
                double value = value_at(d, s * features + channel * plane + i);
                sum += pass == 0 ? value : (value - *mean) * (value - *mean);
            }
        }
        *(pass == 0 ? mean : std) = pass == 0 ? sum / n : sqrt(sum / n);
    }
}

static ls_rc print_classes(const ls_dataset *d) {
    size_t *counts = ls_calloc(d->classes, sizeof *counts, "samples a class");
    if (counts == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < d->count; i++) {
        counts[d->labels[i]]++;
    }
    enum { MOST = 100 }; /* that a line can hold */
    printf(", %zu classes of ", d->classes);
    for (size_t c = 0; c < d->classes && c < MOST; c++) {
        printf("%s%zu", c > 0 ? "/" : "", counts[c]);
    }
    printf("%s", d->classes > MOST ? "/..." : "");
    free(counts);
    return LS_OK;
}

/* Mean and deviation are written as --normalize takes them. */
static ls_rc print_channels(const ls_dataset *d) {
    double *numbers = ls_calloc(2 * d->channels, sizeof *numbers, "statistics of channels");
    if (numbers == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t c = 0; c < d->channels; c++) {
        channel_statistics(d, c, &numbers[c], &numbers[d->channels + c]);
    }
    printf(", mean,std ");
    for (size_t i = 0; i < 2 * d->channels; i++) {
        printf("%s%.6f", i == 0 ? "" : i == d->channels ? "," : "/", numbers[i]);
    }
    free(numbers);
    return LS_OK;
}

static ls_rc check_split(const char *spec, ls_split split) {
    ls_dataset d;
    LS_TRY(ls_dataset_open(spec, split, &d));
    printf("%s: %zu samples of %zux%zux%zu %s", split == LS_SPLIT_TRAIN ? "train" : "test", d.count, d.channels,
           d.height, d.width, d.floats ? "floats" : "bytes");
    ls_rc rc = LS_OK;
    if (d.target_count > 0) {
        printf(", %zu targets each", d.target_count);
    } else {
        rc = print_classes(&d);
    }
    if (rc == LS_OK) {
        rc = print_channels(&d);
    }
    printf("\n");
    ls_dataset_close(&d);
    return rc;
}

ls_rc ls_data_check(int argc, char **argv) {
    static const char usage[] = "lockstep data check SPEC";
    const ls_flag flags[] = {{0}};
    ls_flag_words words;
    bool help = false;
    LS_TRY(ls_flags_parse(flags, usage, argc, argv, 1, &words, &help));
    if (help) {
        return LS_OK;
    }
    if (words.count == 0) {
        return ls_fail(LS_BAD_INPUT, "data check needs a data set: %s, SPEC as --data takes it", usage);
    }
    LS_TRY(check_split(words.words[0], LS_SPLIT_TRAIN));
    return check_split(words.words[0], LS_SPLIT_TEST);
}
