#include "bench/random_network.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Multiplications of one layer and sample. */
enum { MOST_PRODUCTS = 30000 };
/* With so many values of random weights in front of a relu all of them are negative for every sample once in thousands of
 * times, and a network that is dead shows nothing. */
enum { LEAST_ALIVE = 8 };
/* A handful of parameters in the last layer shows nothing either. */
enum { LEAST_PARAMETERS = 24 };
enum { MOST_MIDDLE_LAYERS = 7 };

typedef struct builder {
    ls_draws *draws;
    ls_random_network *out;
    ls_shape shape;   /* of what the next layer gets */
    size_t layers;    /* so far */
    size_t parallel;  /* channels of the last layer with weights: what a relu may kill together */
    size_t flattened; /* 1: behind flatten */
} builder;

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Appends "; [name: ]<text>". */
static void put(builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(builder *b, const char *format, ...) {
    char *text = b->out->text;
    size_t at = strlen(text);
    if (b->layers > 0) {
        at += (size_t)snprintf(text + at, LS_MODEL_TEXT_SIZE - at, "; ");
    }
    if (ls_draw_percent(b->draws, 10)) {
        at += (size_t)snprintf(text + at, LS_MODEL_TEXT_SIZE - at, "part%zu.a: ", b->layers);
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + at, LS_MODEL_TEXT_SIZE - at, format, arguments); /* ten layers of at most 60 bytes: it fits */
    va_end(arguments);
    b->layers++;
}

static bool is_flat(const builder *b) {
    return b->shape.height == 1 && b->shape.width == 1;
}

static const char *bias_word(builder *b) {
    return ls_draw_percent(b->draws, 20) ? " nobias" : "";
}

/* Kernel, stride and padding are drawn first; then as many channels as the products allow. */
static void put_conv(builder *b) {
    ls_shape *s = &b->shape;
    size_t padding = ls_draw_percent(b->draws, 50) ? 0 : ls_draw_between(b->draws, 1, 2);
    size_t fits = smaller(s->height, s->width) + 2 * padding;
    size_t kernel = ls_draw_between(b->draws, 1, smaller(5, fits));
    kernel = kernel <= padding ? padding + 1 : kernel; /* fits: a padded side is at least 2*padding + 1 */
    static const size_t strides[] = {60, 30, 10};
    size_t stride = 1 + ls_draw_weighted(b->draws, strides, 3);
    size_t height = (s->height + 2 * padding - kernel) / stride + 1;
    size_t width = (s->width + 2 * padding - kernel) / stride + 1;
    size_t products = s->channels * kernel * kernel * height * width; /* for each channel of the output */
    size_t most = MOST_PRODUCTS / products;
    size_t wanted =
        ls_draw_percent(b->draws, 80) ? ls_draw_between(b->draws, LEAST_ALIVE, 14) : 1 + ls_draw(b->draws, 8);
    size_t channels = wanted <= most ? wanted : (most > 0 ? most : 1);
    char more[32] = "";
    size_t at = 0;
    if (stride > 1 || ls_draw_percent(b->draws, 10)) {
        at += (size_t)snprintf(more, sizeof more, " s%zu", stride);
    }
    if (padding > 0) {
        snprintf(more + at, sizeof more - at, " p%zu", padding);
    }
    put(b, "conv %zu k%zu%s%s", channels, kernel, more, bias_word(b));
    *s = (ls_shape){channels, height, width};
    b->parallel = channels;
    b->out->products += channels * products;
}

static void put_pool(builder *b, const char *name) {
    ls_shape *s = &b->shape;
    size_t kernel = ls_draw_between(b->draws, 1, smaller(3, smaller(s->height, s->width)));
    size_t stride = ls_draw_percent(b->draws, 60) ? kernel : ls_draw_between(b->draws, 1, 3);
    if (stride == kernel) {
        put(b, "%s %zu", name, kernel);
    } else {
        put(b, "%s %zu s%zu", name, kernel, stride);
    }
    s->height = (s->height - kernel) / stride + 1;
    s->width = (s->width - kernel) / stride + 1;
}

static void put_linear(builder *b, size_t features) {
    put(b, "linear %zu%s", features, bias_word(b));
    b->out->products += b->shape.channels * features;
    b->shape.channels = b->parallel = features;
}

static void put_flatten(builder *b) {
    put(b, "flatten");
    b->shape = (ls_shape){ls_shape_features(b->shape), 1, 1};
    b->flattened = 1;
}

static void put_batchnorm(builder *b) {
    static const char *const options[] = {"", "", "", " eps 0.001", " momentum 0.3", " eps 1e-3 momentum 0.01"};
    put(b, "batchnorm%s", options[ls_draw(b->draws, sizeof options / sizeof options[0])]);
    b->out->least_plane = smaller(b->out->least_plane, b->shape.height * b->shape.width);
}

static void put_dropout(builder *b) {
    static const char *const shares[] = {"0", "0.1", "0.25", "0.5", "0.625"};
    put(b, "dropout %s", shares[ls_draw(b->draws, sizeof shares / sizeof shares[0])]);
}

enum { CONV, MAXPOOL, AVGPOOL, LINEAR, RELU, BATCHNORM, DROPOUT, FLATTEN, KINDS };

static void put_middle(builder *b) {
    bool flat = is_flat(b);
    size_t features = ls_shape_features(b->shape);
    size_t weights[KINDS] = {
        [CONV] = flat ? 5 : 50,
        [MAXPOOL] = flat ? 0 : 20,
        [AVGPOOL] = flat ? 0 : 12,
        [LINEAR] = flat ? 50 : 0,
        [RELU] = b->parallel >= LEAST_ALIVE ? 40 : 0,
        [BATCHNORM] = 20,
        [DROPOUT] = features >= LEAST_ALIVE ? 12 : 0,
        [FLATTEN] = b->flattened != 0 ? 1 : 8,
    };
    switch (ls_draw_weighted(b->draws, weights, KINDS)) {
    case CONV:
        put_conv(b);
        break;
    case MAXPOOL:
        put_pool(b, "maxpool");
        break;
    case AVGPOOL:
        put_pool(b, "avgpool");
        break;
    case LINEAR:
        put_linear(b, ls_draw_between(b->draws, LEAST_ALIVE, 40));
        break;
    case RELU:
        put(b, "relu");
        break;
    case BATCHNORM:
        put_batchnorm(b);
        break;
    case DROPOUT:
        put_dropout(b);
        break;
    default:
        put_flatten(b);
        break;
    }
}

/* One value for each class: by a convolution over the whole plane, or by a linear layer. */
static void put_end(builder *b, size_t classes) {
    if (ls_shape_features(b->shape) * classes < LEAST_PARAMETERS) {
        if (!is_flat(b)) {
            put_flatten(b);
        }
        put_linear(b, LEAST_PARAMETERS);
    }
    ls_shape s = b->shape;
    if (s.height == s.width && ls_draw_percent(b->draws, 15)) {
        put(b, "conv %zu k%zu%s", classes, s.height, bias_word(b));
        b->out->products += classes * ls_shape_features(s);
        if (ls_draw_percent(b->draws, 50)) {
            b->shape = (ls_shape){classes, 1, 1};
            put_flatten(b);
        }
    } else {
        if (!is_flat(b)) {
            put_flatten(b);
        }
        put_linear(b, classes);
    }
    if (classes > 1 && ls_draw_percent(b->draws, 20)) { /* of one class it is the constant 0 */
        put(b, "log-softmax");
    }
}

void ls_random_network_draw(ls_draws *draws, ls_shape input, size_t classes, ls_random_network *out) {
    *out = (ls_random_network){.least_plane = SIZE_MAX};
    builder b = {.draws = draws, .out = out, .shape = input};
    size_t middle = ls_draw(draws, MOST_MIDDLE_LAYERS + 1);
    for (size_t i = 0; i < middle; i++) {
        put_middle(&b);
    }
    put_end(&b, classes);
}
