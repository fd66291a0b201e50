/* Plain binary arrays, such as numpy's tofile writes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/data.h"
#include "reference/plain.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as they lie in the files");

static ls_rc take_samples(const ls_data_plain *plain, const void *bytes, size_t numbers, ls_dataset *out) {
    if (plain->sample_size == 1) {
        out->pixels = ls_calloc(numbers, 1, plain->samples);
        if (out->pixels == NULL) {
            return LS_DEVICE_FAILED;
        }
        memcpy(out->pixels, bytes, numbers);
        return LS_OK;
    }
    out->floats = true;
    out->values = ls_calloc(numbers, sizeof *out->values, plain->samples);
    if (out->values == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < numbers; i++) {
        if (plain->sample_size == sizeof(double)) {
            out->values[i] = (float)((const double *)bytes)[i];
        } else {
            out->values[i] = ((const float *)bytes)[i];
        }
        if (!isfinite(out->values[i])) {
            return ls_fail(LS_BAD_INPUT, "%s: byte %zu: expected a finite float32, found %g", plain->samples,
                           i * plain->sample_size, (double)out->values[i]);
        }
    }
    return LS_OK;
}

static int64_t label_at(const ls_data_plain *plain, const void *bytes, size_t i) {
    return plain->label_size == 1   ? ((const uint8_t *)bytes)[i]
           : plain->label_size == 4 ? ((const int32_t *)bytes)[i]
                                    : ((const int64_t *)bytes)[i];
}

static ls_rc take_labels(ls_data_plain *plain, const void *bytes, ls_dataset *out) {
    enum { LIMIT = 1 << 24 }; /* as the container's */
    size_t limit = plain->classes > 0 ? plain->classes : LIMIT, largest = 0;
    for (size_t i = 0; i < out->count; i++) {
        int64_t label = label_at(plain, bytes, i);
        if (label < 0 || (uint64_t)label >= limit) {
            return ls_fail(LS_BAD_INPUT, "%s: byte %zu (sample %zu): expected a label of 0 to %zu, found %lld",
                           plain->answers, i * plain->label_size, i, limit - 1, (long long)label);
        }
        largest = (size_t)label > largest ? (size_t)label : largest;
        out->labels[i] = (int32_t)label;
    }
    plain->classes = plain->classes > 0 ? plain->classes : largest + 1;
    out->classes = plain->classes;
    return LS_OK;
}

static ls_rc take_targets(const ls_data_plain *plain, const void *bytes, ls_dataset *out) {
    size_t numbers = out->count * plain->target_count;
    out->target_count = plain->target_count;
    out->targets = ls_calloc(numbers, sizeof *out->targets, plain->answers);
    if (out->targets == NULL) {
        return LS_DEVICE_FAILED;
    }
    memcpy(out->targets, bytes, numbers * sizeof *out->targets);
    for (size_t i = 0; i < numbers; i++) {
        if (!isfinite(out->targets[i])) {
            return ls_fail(LS_BAD_INPUT, "%s: byte %zu: expected a finite target, found %g", plain->answers,
                           i * sizeof *out->targets, (double)out->targets[i]);
        }
    }
    return LS_OK;
}

static ls_rc take_answers(ls_data_plain *plain, ls_dataset *out) {
    size_t each = plain->target_count > 0 ? plain->target_count * sizeof(float) : plain->label_size, size = 0;
    void *bytes = NULL;
    LS_TRY(ls_plain_read(plain->answers, &bytes, &size));
    ls_rc rc = LS_OK;
    if (size % each != 0 || size / each != out->count) {
        rc = ls_fail(LS_BAD_INPUT, "%s: expected %zu bytes, %zu for each of the %zu samples in %s, found %zu",
                     plain->answers, each * out->count, each, out->count, plain->samples, size);
    }
    out->labels = rc == LS_OK ? ls_calloc(out->count, sizeof *out->labels, plain->answers) : NULL;
    if (rc == LS_OK && out->labels == NULL) {
        rc = LS_DEVICE_FAILED;
    }
    if (rc == LS_OK) {
        rc = plain->target_count > 0 ? take_targets(plain, bytes, out) : take_labels(plain, bytes, out);
    }
    free(bytes);
    return rc;
}

ls_rc ls_data_plain_read(ls_data_plain *plain, ls_dataset *out) {
    *out = (ls_dataset){.channels = plain->channels, .height = plain->height, .width = plain->width};
    size_t features = ls_dataset_features(out), each = features * plain->sample_size, size = 0;
    void *bytes = NULL;
    LS_TRY(ls_plain_read(plain->samples, &bytes, &size));
    ls_rc rc = LS_OK;
    if (size % each != 0) {
        rc = ls_fail(LS_BAD_INPUT,
                     "%s: expected a multiple of %zu bytes, the size of a sample of %zux%zux%zu, found %zu",
                     plain->samples, each, plain->channels, plain->height, plain->width, size);
    }
    out->count = size / each;
    if (rc == LS_OK) {
        rc = take_samples(plain, bytes, out->count * features, out);
    }
    free(bytes);
    if (rc == LS_OK) {
        rc = take_answers(plain, out);
    }
    if (rc != LS_OK) {
        ls_dataset_close(out);
    }
    return rc;
}
