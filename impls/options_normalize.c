/* --normalize: none, MEAN,STD for all channels, or M1/M2/..,S1/S2/.. with one of each for each channel. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impls/options_table.h"

/* Reads numbers parted by '/' up to `end` (a character or '\0'); returns how many, 0 when anything else is there. */
static size_t read_numbers(const char **at, char end, double *numbers) {
    for (size_t count = 0; count < LS_NORMALIZE_MAX_CHANNELS; count++) {
        char *rest = NULL;
        if (**at == ' ' || **at == '\t') {
            return 0; /* strtod would skip it */
        }
        numbers[count] = strtod(*at, &rest);
        if (rest == *at || !isfinite(numbers[count])) {
            return 0;
        }
        *at = rest + (*rest != '\0');
        if (*rest == end) {
            return count + 1;
        }
        if (*rest != '/') {
            return 0;
        }
    }
    return 0;
}

static bool parse(const char *value, ls_normalize *out) {
    const char *at = value;
    out->channels = read_numbers(&at, ',', out->mean);
    bool good = out->channels > 0 && read_numbers(&at, '\0', out->std) == out->channels;
    for (size_t c = 0; good && c < out->channels; c++) {
        good = (float)out->std[c] > 0 && isfinite((float)out->std[c]) && isfinite((float)out->mean[c]);
    }
    return good;
}

ls_rc ls_option_parse_normalize(const ls_option *option, const char *value, ls_options *options) {
    ls_run *run = &options->run;
    run->normalize_given = true;
    run->normalize = (ls_normalize){0};
    if (strcmp(value, "none") == 0 || parse(value, &run->normalize)) {
        return LS_OK;
    }
    return ls_fail(LS_BAD_INPUT,
                   "option '%s': '%s' is not none or MEAN,STD with STD above 0 (for each channel: M1/M2/M3,S1/S2/S3, "
                   "at most %d channels)",
                   option->flag, value, LS_NORMALIZE_MAX_CHANNELS);
}

void ls_option_format_normalize(const ls_option *option, const ls_run *run, char *text, size_t size) {
    (void)option;
    text[0] = '\0';
    if (run->normalize_given) {
        ls_normalize_format(&run->normalize, text, size);
    }
}
