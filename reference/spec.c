#include "reference/spec.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A word of the text and where it stands. */
typedef struct word {
    const char *at;
    size_t length;
    size_t line, column; /* from 1 on */
} word;

typedef struct parser {
    const char *at; /* what is read next */
    size_t line, column;
    ls_model_spec *spec;
    char *error;
    size_t size;
} parser;

/* Every error: where, what was expected, what was found. */
static int refuse(const parser *p, const word *w, const char *expected) {
    char found[48];
    if (w->length == 0) {
        snprintf(found, sizeof found, "the end of the layer");
    } else {
        snprintf(found, sizeof found, "'%.*s%s'", w->length < 32 ? (int)w->length : 32, w->at,
                 w->length > 32 ? "..." : "");
    }
    snprintf(p->error, p->size, "line %zu, column %zu: expected %s, found %s", w->line, w->column, expected, found);
    return -1;
}

static void advance(parser *p) {
    p->column++;
    if (*p->at == '\n') {
        p->line++;
        p->column = 1;
    }
    p->at++;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool ends_layer(char c) {
    return c == '\0' || c == ';' || c == '\n';
}

/* The next word of this layer; an empty one where the layer ends. A colon ends a word and is a word of its own. */
static word next_word(parser *p) {
    while (is_blank(*p->at)) {
        advance(p);
    }
    if (*p->at == '#') {
        while (*p->at != '\0' && *p->at != '\n') {
            advance(p);
        }
    }
    word w = {.at = p->at, .line = p->line, .column = p->column};
    while (!ends_layer(*p->at) && !is_blank(*p->at) && *p->at != '#' && *p->at != ':') {
        advance(p);
    }
    w.length = (size_t)(p->at - w.at);
    if (w.length == 0 && *p->at == ':') {
        advance(p);
        w.length = 1;
    }
    return w;
}

static bool is(const word *w, const char *text) {
    return w->length == strlen(text) && strncmp(w->at, text, w->length) == 0;
}

/* A whole number of at most 9 digits after skip characters of the word. */
static bool read_number(const word *w, size_t skip, size_t *out) {
    size_t number = 0;
    if (w->length <= skip || w->length - skip > 9) {
        return false;
    }
    for (size_t i = skip; i < w->length; i++) {
        if (w->at[i] < '0' || w->at[i] > '9') {
            return false;
        }
        number = number * 10 + (size_t)(w->at[i] - '0');
    }
    *out = number;
    return true;
}

static bool read_real(const word *w, double *out) {
    char text[64];
    char *end = NULL;
    if (w->length == 0 || w->length >= sizeof text) {
        return false;
    }
    memcpy(text, w->at, w->length);
    text[w->length] = '\0';
    *out = strtod(text, &end);
    return *end == '\0' && isfinite(*out);
}

/* "k5": a letter and a number of at least `least`. Returns 1 when the word is of another option, -1 after an error. */
static int read_option(const parser *p, const word *w, char letter, size_t least, const char *expected, size_t *out) {
    if (w->length == 0 || w->at[0] != letter) {
        return 1;
    }
    return read_number(w, 1, out) && *out >= least ? 0 : refuse(p, w, expected);
}

static int parse_conv(parser *p, ls_layer_spec *layer) {
    word w = next_word(p);
    if (!read_number(&w, 0, &layer->out) || layer->out == 0) {
        return refuse(p, &w, "out channels after conv, a number of at least 1");
    }
    w = next_word(p);
    if (read_option(p, &w, 'k', 1, "a kernel, k1 or more", &layer->kernel) != 0) {
        return w.length > 0 && w.at[0] == 'k' ? -1 : refuse(p, &w, "a kernel (k5) after the out channels");
    }
    for (w = next_word(p); w.length > 0; w = next_word(p)) {
        int stride = read_option(p, &w, 's', 1, "a stride, s1 or more", &layer->stride);
        int padding = stride == 1 ? read_option(p, &w, 'p', 0, "a padding, p0 or more", &layer->padding) : 1;
        if (stride < 0 || padding < 0) {
            return -1;
        }
        if (stride == 1 && padding == 1) {
            if (!is(&w, "nobias")) {
                return refuse(p, &w, "sN, pN or nobias");
            }
            layer->no_bias = true;
        }
    }
    return 0;
}

static int parse_pool(parser *p, ls_layer_spec *layer) {
    word w = next_word(p);
    if (!read_number(&w, 0, &layer->kernel) || layer->kernel == 0) {
        return refuse(p, &w, "the side of the window, a number of at least 1");
    }
    for (w = next_word(p); w.length > 0; w = next_word(p)) {
        int stride = read_option(p, &w, 's', 1, "a stride, s1 or more", &layer->stride);
        if (stride != 0) {
            return stride < 0 ? -1 : refuse(p, &w, "sN");
        }
    }
    return 0;
}

static int parse_linear(parser *p, ls_layer_spec *layer) {
    word w = next_word(p);
    if (!read_number(&w, 0, &layer->out) || layer->out == 0) {
        return refuse(p, &w, "out features after linear, a number of at least 1");
    }
    for (w = next_word(p); w.length > 0; w = next_word(p)) {
        if (!is(&w, "nobias")) {
            return refuse(p, &w, "nobias");
        }
        layer->no_bias = true;
    }
    return 0;
}

static int parse_dropout(parser *p, ls_layer_spec *layer) {
    word w = next_word(p);
    if (!read_real(&w, &layer->p) || layer->p < 0 || layer->p >= 1) {
        return refuse(p, &w, "the share that is dropped, at least 0 and below 1");
    }
    w = next_word(p);
    return w.length == 0 ? 0 : refuse(p, &w, "the end of the layer");
}

static int parse_batchnorm(parser *p, ls_layer_spec *layer) {
    for (word w = next_word(p); w.length > 0; w = next_word(p)) {
        bool eps = is(&w, "eps");
        if (!eps && !is(&w, "momentum")) {
            return refuse(p, &w, "eps E or momentum M");
        }
        w = next_word(p);
        double *value = eps ? &layer->eps : &layer->momentum;
        if (!read_real(&w, value) || !(*value > 0) || *value > 1) {
            return refuse(p, &w, eps ? "an eps above 0 and at most 1" : "a momentum above 0 and at most 1");
        }
    }
    return 0;
}

static int parse_plain(parser *p, ls_layer_spec *layer) {
    (void)layer;
    word w = next_word(p);
    return w.length == 0 ? 0 : refuse(p, &w, "the end of the layer");
}

/* How the words after the name of a kind are read. */
static int (*const parse_kind[LS_LAYER_KIND_COUNT])(parser *p, ls_layer_spec *layer) = {
    [LS_LAYER_CONV] = parse_conv,     [LS_LAYER_MAXPOOL] = parse_pool,    [LS_LAYER_RELU] = parse_plain,
    [LS_LAYER_FLATTEN] = parse_plain, [LS_LAYER_LINEAR] = parse_linear,   [LS_LAYER_LOG_SOFTMAX] = parse_plain,
    [LS_LAYER_AVGPOOL] = parse_pool,  [LS_LAYER_DROPOUT] = parse_dropout, [LS_LAYER_BATCHNORM] = parse_batchnorm,
};

/* "conv, relu or linear": every kind, as a message says it. */
static void list_kinds(char *text, size_t size) {
    size_t used = 0;
    for (size_t k = 0; k < LS_LAYER_KIND_COUNT && used < size; k++) {
        const char *after = k + 2 < LS_LAYER_KIND_COUNT ? ", " : k + 2 == LS_LAYER_KIND_COUNT ? " or " : "";
        int more = snprintf(text + used, size - used, "%s%s", ls_layer_kind_name((ls_layer_kind)k), after);
        used += more > 0 ? (size_t)more : 0;
    }
}

static bool find_kind(const word *w, ls_layer_kind *kind) {
    for (size_t k = 0; k < LS_LAYER_KIND_COUNT; k++) {
        if (is(w, ls_layer_kind_name((ls_layer_kind)k))) {
            *kind = (ls_layer_kind)k;
            return true;
        }
    }
    return false;
}

/* A name as nn.Module would have it in front of ".weight". */
static int take_name(const parser *p, const word *w, ls_layer_spec *layer) {
    bool good = w->length > 0 && w->length < LS_NAME_SIZE - 24 && w->at[0] != '.' && w->at[w->length - 1] != '.';
    for (size_t i = 0; i < w->length; i++) {
        char c = w->at[i];
        good = good && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                        (c == '.' && w->at[i - 1] != '.'));
    }
    if (!good) {
        return refuse(p, w, "a name of letters, digits, _ and single dots inside, of at most 39 characters");
    }
    memcpy(layer->name, w->at, w->length);
    layer->name[w->length] = '\0';
    return 0;
}

static int check_unique(const parser *p, const word *w, const ls_layer_spec *layer) {
    for (const ls_layer_spec *other = p->spec->layers; other < layer; other++) {
        if (strcmp(other->name, layer->name) == 0) {
            char expected[LS_NAME_SIZE + 64];
            snprintf(expected, sizeof expected, "another name: a layer before is called '%s'", layer->name);
            return refuse(p, w, expected);
        }
    }
    return 0;
}

static int parse_layer(parser *p, word first) {
    ls_model_spec *spec = p->spec;
    if (spec->layer_count == LS_MODEL_MAX_LAYERS) {
        return refuse(p, &first, "at most 64 layers");
    }
    ls_layer_spec *layer = &spec->layers[spec->layer_count];
    *layer = (ls_layer_spec){.line = first.line, .column = first.column};
    snprintf(layer->name, sizeof layer->name, "%zu", spec->layer_count);
    word kind = first;
    parser behind = *p; /* looks for the colon without taking it */
    word colon = next_word(&behind);
    if (is(&colon, ":")) {
        if (take_name(p, &first, layer) != 0) {
            return -1;
        }
        (void)next_word(p);
        kind = next_word(p);
    }
    if (check_unique(p, &first, layer) != 0) {
        return -1;
    }
    if (!find_kind(&kind, &layer->kind)) {
        char kinds[256];
        list_kinds(kinds, sizeof kinds);
        return refuse(p, &kind, kinds);
    }
    spec->layer_count++;
    return parse_kind[layer->kind](p, layer);
}

/* "CxHxW" */
static int parse_input(parser *p) {
    word w = next_word(p);
    size_t sizes[3] = {0, 0, 0};
    size_t count = 0;
    word part = w;
    for (size_t i = 0; i <= w.length && count < 3; i++) {
        if (i == w.length || w.at[i] == 'x') {
            part.length = (size_t)(w.at + i - part.at);
            if (!read_number(&part, 0, &sizes[count]) || sizes[count] == 0) {
                break;
            }
            count++;
            part.at = w.at + i + 1;
        }
    }
    if (count != 3 || part.at != w.at + w.length + 1) {
        return refuse(p, &w, "channels x height x width, as in 1x28x28");
    }
    p->spec->channels = sizes[0];
    p->spec->height = sizes[1];
    p->spec->width = sizes[2];
    w = next_word(p);
    return w.length == 0 ? 0 : refuse(p, &w, "; or a new line after the input");
}

int ls_spec_parse(const char *text, ls_model_spec *out, char *error, size_t size) {
    *out = (ls_model_spec){.name = "custom", .summary = "a network of one's own", .epochs = LS_SPEC_EPOCHS};
    parser p = {.at = text, .line = 1, .column = 1, .spec = out, .error = error, .size = size};
    for (;;) {
        word w = next_word(&p);
        if (w.length > 0) {
            bool input = is(&w, "input") && out->layer_count == 0 && out->channels == 0;
            if ((input ? parse_input(&p) : parse_layer(&p, w)) != 0) {
                return -1;
            }
        }
        if (*p.at == '\0') {
            word end = {.at = p.at, .line = p.line, .column = p.column};
            return out->layer_count > 0 ? 0 : refuse(&p, &end, "at least one layer");
        }
        advance(&p); /* the separator */
    }
}

/* Text that grows; failed once it does not fit. */
typedef struct writer {
    char *text;
    size_t size, used;
    bool failed;
} writer;

static void put(writer *w, const char *before, const char *value) {
    int more = snprintf(w->text + w->used, w->size - w->used, "%s%s", before, value);
    w->failed = w->failed || more < 0 || (size_t)more >= w->size - w->used;
    w->used += w->failed ? 0 : (size_t)more;
}

static void put_size(writer *w, const char *before, size_t value) {
    char text[24];
    snprintf(text, sizeof text, "%zu", value);
    put(w, before, text);
}

/* The shortest text that reads back as the same value. */
static void put_real(writer *w, const char *before, double value) {
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    put(w, before, text);
}

/* Numbers that are 0 are defaults and not said. */
static void put_layer(writer *w, const ls_layer_spec *layer, size_t index) {
    char usual[LS_NAME_SIZE];
    snprintf(usual, sizeof usual, "%zu", index);
    bool pool = layer->kind == LS_LAYER_MAXPOOL || layer->kind == LS_LAYER_AVGPOOL;
    put(w, w->used > 0 ? "; " : "", "");
    if (layer->name[0] != '\0' && strcmp(layer->name, usual) != 0) {
        put(w, layer->name, ": ");
    }
    put(w, ls_layer_kind_name(layer->kind), "");
    if (layer->out > 0) {
        put_size(w, " ", layer->out);
    }
    if (layer->kernel > 0) {
        put_size(w, pool ? " " : " k", layer->kernel);
    }
    if (layer->stride > 0) {
        put_size(w, " s", layer->stride);
    }
    if (layer->padding > 0) {
        put_size(w, " p", layer->padding);
    }
    if (layer->no_bias) {
        put(w, " nobias", "");
    }
    if (layer->kind == LS_LAYER_DROPOUT) {
        put_real(w, " ", layer->p);
    }
    if (layer->eps > 0) {
        put_real(w, " eps ", layer->eps);
    }
    if (layer->momentum > 0) {
        put_real(w, " momentum ", layer->momentum);
    }
}

int ls_spec_format(const ls_model_spec *spec, char *text, size_t size) {
    writer w = {.text = text, .size = size};
    if (spec->channels > 0) {
        put_size(&w, "input ", spec->channels);
        put_size(&w, "x", spec->height);
        put_size(&w, "x", spec->width);
    }
    for (size_t i = 0; i < spec->layer_count; i++) {
        put_layer(&w, &spec->layers[i], i);
    }
    return w.failed ? -1 : 0;
}

bool ls_spec_is_text(const char *text) {
    word w = {.at = text, .length = strlen(text)};
    ls_layer_kind kind;
    return strpbrk(text, "; \t\n") != NULL || find_kind(&w, &kind);
}

ls_rc ls_spec_read_file(const char *path, char **out) {
    enum { MOST = 64 * 1024 };
    *out = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return ls_fail(LS_BAD_INPUT, "model %s: cannot be read: %s", path, strerror(errno));
    }
    char *text = ls_calloc(MOST + 1, 1, "a network's text");
    size_t got = text != NULL ? fread(text, 1, MOST + 1, file) : 0;
    int cause = ferror(file) != 0 ? errno : 0;
    fclose(file);
    ls_rc rc = text != NULL ? LS_OK : LS_DEVICE_FAILED;
    if (rc == LS_OK && cause != 0) {
        rc = ls_fail(LS_BAD_INPUT, "model %s: cannot be read: %s", path, strerror(cause));
    } else if (rc == LS_OK && got > MOST) {
        rc = ls_fail(LS_BAD_INPUT, "model %s: expected a network of at most %d bytes, found more", path, MOST);
    } else if (rc == LS_OK && memchr(text, '\0', got) != NULL) {
        rc = ls_fail(LS_BAD_INPUT, "model %s: expected text, found a zero byte at offset %zu", path, strlen(text));
    }
    if (rc != LS_OK) {
        free(text);
        return rc;
    }
    *out = text;
    return LS_OK;
}
