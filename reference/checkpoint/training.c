#include "reference/checkpoint/training.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/checkpoint/formats.h"
#include "reference/checkpoint/model_state.h"

enum { TEXT = LS_SPEC_TEXT_SIZE }; /* of a network: the longest of them */

static const char kind_key[] = "lockstep";
static const char kind[] = "training checkpoint 1";

bool ls_training_is(const ls_state *state) {
    const char *text = ls_state_text_of(state, kind_key);
    return text != NULL && strcmp(text, kind) == 0;
}

/* What must be alike, one row a text of the file. */
typedef struct likeness {
    const char *key, *meaning;
    char value[TEXT];
} likeness;

enum { LIKENESSES = 11 };

/* The name, and what it keeps of each parameter: with momentum another than without. */
static void describe_optimizer(const ls_training *t, char *text) {
    size_t used = (size_t)snprintf(text, TEXT, "%s", t->optimizer);
    for (size_t k = 0; k < t->buffer_count && used < TEXT; k++) {
        used += (size_t)snprintf(text + used, TEXT - used, "%s%s", k == 0 ? " with " : ", ", t->buffer_names[k]);
    }
}

/* Nothing where it is not known: hash 0. */
static void describe_data(const ls_training *t, char *text) {
    text[0] = '\0';
    if (t->data != 0) {
        snprintf(text, TEXT, "%zu samples of hash %016" PRIx64, t->samples, t->data);
    }
}

static void describe_loss(const ls_training *t, char *text) {
    snprintf(text, TEXT, "%s --reduction %s --label-smoothing %.17g", ls_loss_name(t->loss.kind),
             ls_loss_reduction_name(t->loss.reduction), t->loss.label_smoothing);
}

static void likenesses_of(const ls_training *t, likeness rows[LIKENESSES]) {
    const likeness named[LIKENESSES] = {
        {.key = "model", .meaning = "--model"},
        {.key = "dtype", .meaning = "--dtype"},
        {.key = "world_size", .meaning = "ranks"},
        {.key = "devices", .meaning = "--devices"},
        {.key = "global_batch", .meaning = "global batch"},
        {.key = "seed", .meaning = "--seed"},
        {.key = "order", .meaning = "order"},
        {.key = "optimizer", .meaning = "optimizer"},
        {.key = "training_set", .meaning = "a training set of"},
        {.key = "loss", .meaning = "--loss"},
        {.key = "normalize", .meaning = "--normalize"},
    };
    memcpy(rows, named, sizeof named);
    size_t i = 0;
    snprintf(rows[i++].value, TEXT, "%s", t->network);
    snprintf(rows[i++].value, TEXT, "%s", ls_dtype_name(t->dtype));
    snprintf(rows[i++].value, TEXT, "%zu", t->ranks);
    snprintf(rows[i++].value, TEXT, "%zu", t->devices);
    snprintf(rows[i++].value, TEXT, "%zu", t->global_batch);
    snprintf(rows[i++].value, TEXT, "%" PRIu64, t->seed);
    snprintf(rows[i++].value, TEXT, "DistributedSampler shuffle=%s drop_last=%s seed=%" PRIu64 " samples=%zu",
             t->shuffle ? "True" : "False", t->drop_last ? "True" : "False", t->seed, t->samples);
    describe_optimizer(t, rows[i++].value);
    describe_data(t, rows[i++].value);
    describe_loss(t, rows[i++].value);
    ls_normalize_format(&t->normalize, rows[i++].value, TEXT);
}

static ls_rc set_number(ls_state *state, const char *key, uint64_t number) {
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return ls_state_set_text(state, key, text);
}

static void buffer_prefix(const ls_training *training, size_t buffer, char *text, size_t size) {
    snprintf(text, size, "%s%s.", LS_TRAINING_OPTIMIZER, training->buffer_names[buffer]);
}

static ls_rc fill_state(const ls_model *model, const ls_training *training, ls_state *state) {
    likeness rows[LIKENESSES];
    likenesses_of(training, rows);
    LS_TRY(ls_state_set_text(state, kind_key, kind));
    for (size_t i = 0; i < LIKENESSES; i++) {
        LS_TRY(ls_state_set_text(state, rows[i].key, rows[i].value));
    }
    LS_TRY(set_number(state, "epoch", training->epochs));
    LS_TRY(set_number(state, "step", training->steps));
    LS_TRY(set_number(state, "optimizer_step", training->optimizer_step));
    LS_TRY(set_number(state, "mask_step", training->mask_step));
    LS_TRY(ls_model_state_add(model, training->dtype, LS_MODEL_ALL, &training->values, LS_TRAINING_MODEL, state));
    for (size_t k = 0; k < training->buffer_count; k++) {
        char prefix[64];
        buffer_prefix(training, k, prefix, sizeof prefix);
        ls_model_values values = {.params = training->buffers[k]};
        LS_TRY(ls_model_state_add(model, training->dtype, LS_MODEL_PARAMS, &values, prefix, state));
    }
    return LS_OK;
}

ls_rc ls_training_write(const char *path, const ls_model *model, const ls_training *training) {
    ls_state state = {0};
    ls_rc rc = fill_state(model, training, &state);
    if (rc == LS_OK) {
        rc = ls_state_write(path, &state);
    }
    ls_state_free(&state);
    return rc;
}

static ls_rc read_number(const ls_state *state, const char *path, const char *key, uint64_t *out) {
    const char *text = ls_state_text_of(state, key);
    char *end = NULL;
    errno = 0;
    unsigned long long number = text != NULL && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0 || number > INT64_MAX) {
        return ls_fail(LS_BAD_INPUT, "%s: header, __metadata__ '%s': expected a whole number, found '%.40s'", path, key,
                       text != NULL ? text : "none");
    }
    *out = number;
    return LS_OK;
}

static ls_rc check_alike(const ls_state *state, const char *path, const ls_training *training) {
    likeness rows[LIKENESSES];
    likenesses_of(training, rows);
    for (size_t i = 0; i < LIKENESSES; i++) {
        const char *found = ls_state_text_of(state, rows[i].key);
        if (rows[i].value[0] != '\0' && (found == NULL || strcmp(found, rows[i].value) != 0)) {
            return ls_fail(
                LS_BAD_INPUT,
                "%s: the checkpoint was made with %s %.200s, this run has %.200s; go on with the options that it "
                "was started with, or take its parameters alone with --load",
                path, rows[i].meaning, found != NULL ? found : "unknown", rows[i].value);
        }
    }
    return LS_OK;
}

/* As many tensors as the model and the optimizer's buffers have; that each is there is checked elsewhere. */
static ls_rc check_count(const ls_state *state, const char *path, const ls_model *model, const ls_training *training) {
    size_t expected = model->param_tensors * (1 + training->buffer_count) + model->buffer_tensors;
    return state->count == expected
               ? LS_OK
               : ls_fail(LS_BAD_INPUT, "%s: expected %zu tensors of the model and the optimizer, found %zu", path,
                         expected, state->count);
}

static ls_rc take_state(const ls_state *state, const char *path, const ls_model *model, ls_training *training) {
    if (!ls_training_is(state)) {
        return ls_fail(
            LS_BAD_INPUT,
            "%s: expected a training checkpoint, as --checkpoint writes it, found parameters alone; start from "
            "them with --load",
            path);
    }
    LS_TRY(check_alike(state, path, training));
    LS_TRY(read_number(state, path, "epoch", &training->epochs));
    LS_TRY(read_number(state, path, "step", &training->steps));
    LS_TRY(read_number(state, path, "optimizer_step", &training->optimizer_step));
    LS_TRY(read_number(state, path, "mask_step", &training->mask_step));
    bool only_checks = training->values.params == NULL;
    LS_TRY(ls_model_state_take(model, state, path, LS_TRAINING_MODEL, LS_MODEL_ALL, training->dtype,
                               only_checks ? NULL : &training->values));
    for (size_t k = 0; k < training->buffer_count; k++) {
        char prefix[64];
        buffer_prefix(training, k, prefix, sizeof prefix);
        ls_model_values values = {.params = training->buffers[k]};
        LS_TRY(ls_model_state_take(model, state, path, prefix, LS_MODEL_PARAMS, training->dtype,
                                   only_checks ? NULL : &values));
    }
    return check_count(state, path, model, training);
}

ls_rc ls_training_read(const char *path, const ls_model *model, ls_training *training) {
    static const char ending[] = ".safetensors";
    size_t length = strlen(path);
    if (length < sizeof ending || strcmp(path + length - (sizeof ending - 1), ending) != 0) {
        return ls_fail(LS_BAD_INPUT, "'%s': a training checkpoint is a file that ends in %s", path, ending);
    }
    ls_state state = {0};
    LS_TRY(ls_state_read(path, &state));
    ls_rc rc = take_state(&state, path, model, training);
    ls_state_free(&state);
    return rc;
}
