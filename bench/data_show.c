/* lockstep data show: one sample as text. */
#include <stdio.h>
#include <string.h>

#include "bench/data.h"
#include "bench/flags.h"

/* Bytes as a picture: the mean over the channels, from dark to light. */
static void print_picture(const ls_dataset *d, const uint8_t *pixels) {
    static const char shades[] = " .:-=+*#%@";
    size_t plane = d->height * d->width;
    for (size_t y = 0; y < d->height; y++) {
        for (size_t x = 0; x < d->width; x++) {
            size_t sum = 0;
            for (size_t c = 0; c < d->channels; c++) {
                sum += pixels[c * plane + y * d->width + x];
            }
            putchar(shades[sum * (sizeof shades - 2) / (255 * d->channels)]);
        }
        putchar('\n');
    }
}

static void print_values(const ls_dataset *d, const float *values) {
    for (size_t c = 0; c < d->channels; c++) {
        if (d->channels > 1) {
            printf("channel %zu\n", c);
        }
        for (size_t y = 0; y < d->height; y++) {
            for (size_t x = 0; x < d->width; x++) {
                printf("%s%g", x > 0 ? " " : "", (double)values[(c * d->height + y) * d->width + x]);
            }
            putchar('\n');
        }
    }
}

static void print_sample(const ls_dataset *d, size_t index, const char *split) {
    size_t features = ls_dataset_features(d);
    printf("%s sample %zu of %zu: %zux%zux%zu, ", split, index, d->count, d->channels, d->height, d->width);
    if (d->target_count > 0) {
        printf("targets");
        for (size_t i = 0; i < d->target_count; i++) {
            printf(" %g", (double)d->targets[index * d->target_count + i]);
        }
        putchar('\n');
    } else {
        printf("label %d\n", (int)d->labels[index]);
    }
    if (d->values != NULL) {
        print_values(d, d->values + index * features);
    } else {
        print_picture(d, d->pixels + index * features);
    }
}

ls_rc ls_data_show(int argc, char **argv) {
    static const char usage[] = "lockstep data show SPEC [--split train|test] [--index I]";
    const char *split = "train";
    size_t index = 0;
    const ls_flag flags[] = {{"--split", "train|test", LS_FLAG_TEXT, &split, 0, 0, "of which split [train]"},
                             {"--index", "I", LS_FLAG_SIZE, &index, 0, (size_t)1 << 40, "which sample, from 0 [0]"},
                             {0}};
    ls_flag_words words;
    bool help = false;
    LS_TRY(ls_flags_parse(flags, usage, argc, argv, 1, &words, &help));
    if (help) {
        return LS_OK;
    }
    bool test = strcmp(split, "test") == 0;
    if (words.count == 0) {
        return ls_fail(LS_BAD_INPUT, "data show needs a data set: %s, SPEC as --data takes it", usage);
    }
    if (!test && strcmp(split, "train") != 0) {
        return ls_fail(LS_BAD_INPUT, "option '--split': '%s' is not train or test", split);
    }
    ls_dataset d;
    LS_TRY(ls_dataset_open(words.words[0], test ? LS_SPLIT_TEST : LS_SPLIT_TRAIN, &d));
    ls_rc rc = LS_OK;
    if (index >= d.count) {
        rc = ls_fail(LS_BAD_INPUT, "option '--index': expected 0 to %zu, found %zu", d.count - 1, index);
    } else {
        print_sample(&d, index, split);
    }
    ls_dataset_close(&d);
    return rc;
}
