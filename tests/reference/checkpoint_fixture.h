/* For tests of checkpoints: building files byte by byte, and reading what must be refused. Include after cmocka.h. */
#ifndef LS_TESTS_REFERENCE_CHECKPOINT_FIXTURE_H
#define LS_TESTS_REFERENCE_CHECKPOINT_FIXTURE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reference/checkpoint/formats.h"
#include "reference/model.h"
#include "tests/impls/stderr_capture.h"

/* conv1: 12 + 3 parameters, fc: 6 + 2. Returns 0, or -1. */
static inline int tiny_model(ls_model *model) {
    char error[128];
    const ls_model_spec spec = {.name = "tiny",
                                .channels = 1,
                                .height = 2,
                                .width = 2,
                                .classes = 2,
                                .layer_count = 3,
                                .layers = {{.kind = LS_LAYER_CONV, .name = "conv1", .out = 3, .kernel = 2},
                                           {.kind = LS_LAYER_FLATTEN},
                                           {.kind = LS_LAYER_LINEAR, .name = "fc", .out = 2}}};
    return ls_model_resolve(&spec, model, error, sizeof error);
}

/* Bytes under construction. */
typedef struct builder {
    unsigned char data[1 << 16];
    size_t size;
} builder;

static inline void put(builder *b, const void *bytes, size_t count) {
    assert_true(sizeof b->data - b->size >= count);
    memcpy(b->data + b->size, bytes, count);
    b->size += count;
}

static inline void put_words(builder *b, const char *text) {
    put(b, text, strlen(text));
}

static inline void put_byte(builder *b, unsigned value) {
    unsigned char byte = (unsigned char)value;
    put(b, &byte, 1);
}

static inline void put_number(builder *b, size_t width, uint64_t value) {
    for (size_t i = 0; i < width; i++) {
        put_byte(b, (unsigned)(value >> (8 * i)) & 0xff);
    }
}

typedef ls_rc (*state_reader)(const ls_file_bytes *file, ls_state *state);

/* Reads bytes that must be accepted. Copied to memory of their exact size, so that a sanitizer sees every byte beyond. */
static inline void expect_good(state_reader read, const void *bytes, size_t size, ls_state *state) {
    unsigned char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    assert_int_equal(read(&(ls_file_bytes){.path = "good", .bytes = copy, .size = size}, state), LS_OK);
    free(copy);
}

/* A call that must be refused with one line that has `start` after the program's name, and these words. */
static inline void expect_line_of(ls_rc (*call)(void *), void *argument, const char *start, const char *words) {
    static const char program[] = "lockstep: ";
    stderr_capture errors;
    assert_int_equal(stderr_capture_begin(&errors), 0);
    ls_rc rc = call(argument);
    stderr_capture_end(&errors);
    const char *text = errors.text;
    bool one_line = strlen(text) > sizeof program && errors.lines == 1 && text[strlen(text) - 1] == '\n';
    if (rc != LS_BAD_INPUT || !one_line || strncmp(text + sizeof program - 1, start, strlen(start)) != 0 ||
        strstr(text, words) == NULL) {
        fail_msg("expected one line, '%s' and '%s', found code %d and: %s", start, words, (int)rc, text);
    }
}

static inline void expect_line(ls_rc (*call)(void *), void *argument, const char *words) {
    expect_line_of(call, argument, "", words);
}

typedef struct reading {
    state_reader read;
    ls_file_bytes file;
} reading;

static inline ls_rc read_and_free(void *argument) {
    const reading *r = argument;
    ls_state state = {0};
    ls_rc rc = r->read(&r->file, &state);
    ls_state_free(&state);
    return rc;
}

/* Reads bytes that must be refused with one line that names the file first and has these words. */
static inline void expect_bad(state_reader read, const void *bytes, size_t size, const char *words) {
    unsigned char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    reading r = {read, {.path = "the-file", .bytes = copy, .size = size}};
    expect_line_of(read_and_free, &r, "the-file: ", words);
    free(copy);
}

static inline void expect_values(const ls_state *state, const char *name, size_t count, const double *values) {
    const ls_state_tensor *tensor = ls_state_find(state, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->count, count);
    for (size_t i = 0; i < count; i++) {
        double value = tensor->element == LS_ELEMENT_FLOAT64 ? ((double *)tensor->data)[i]
                       : tensor->element == LS_ELEMENT_INT64 ? (double)((int64_t *)tensor->data)[i]
                                                             : (double)((float *)tensor->data)[i];
        if (value != values[i]) {
            fail_msg("%s[%zu]: expected %g, found %g", name, i, values[i], value);
        }
    }
}

#endif
