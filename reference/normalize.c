#include "reference/normalize.h"

#include <stdio.h>

void ls_normalize_format(const ls_normalize *normalize, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s", normalize->channels == 0 ? "none" : "");
    for (size_t i = 0; i < 2 * normalize->channels && used < size; i++) {
        const size_t c = i % normalize->channels;
        const char *before = i == 0 ? "" : c == 0 ? "," : "/";
        used += (size_t)snprintf(text + used, size - used, "%s%.17g", before,
                                 i < normalize->channels ? normalize->mean[c] : normalize->std[c]);
    }
}
