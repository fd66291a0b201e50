#include "reference/model.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[LS_LAYER_KIND_COUNT] = {
    [LS_LAYER_CONV] = "conv",       [LS_LAYER_MAXPOOL] = "maxpool", [LS_LAYER_RELU] = "relu",
    [LS_LAYER_FLATTEN] = "flatten", [LS_LAYER_LINEAR] = "linear",   [LS_LAYER_LOG_SOFTMAX] = "log-softmax",
    [LS_LAYER_AVGPOOL] = "avgpool", [LS_LAYER_DROPOUT] = "dropout", [LS_LAYER_BATCHNORM] = "batchnorm",
};

const char *ls_layer_kind_name(ls_layer_kind kind) {
    return kind_names[kind];
}

/* The most values of a sample at any layer and the most elements of a parameter: far above any model of the zoo, and low
 * enough that no product of sizes overflows. */
static const size_t size_limit = (size_t)1 << 28;

/* What resolve carries from layer to layer. */
typedef struct resolver {
    ls_model *model;
    const ls_model_spec *spec;
    char *error;
    size_t size;
    size_t index; /* of the layer under way */
} resolver;

static int refuse(const resolver *r, const char *what, size_t found) {
    const ls_layer *layer = &r->model->layers[r->index];
    const ls_layer_spec *spec = &r->spec->layers[r->index];
    char place[64] = "";
    if (spec->line > 0) {
        snprintf(place, sizeof place, "line %zu, column %zu: ", spec->line, spec->column);
    }
    bool known = (unsigned)spec->kind < LS_LAYER_KIND_COUNT;
    snprintf(r->error, r->size, "%slayer %zu (%s %s): %s, found %zu (input %zux%zux%zu)", place, r->index,
             known ? kind_names[spec->kind] : "?", layer->name, what, found, layer->in.channels, layer->in.height,
             layer->in.width);
    return -1;
}

/* Adds a parameter in registration order. */
static int add_param(const resolver *r, const char *role, size_t dims, const size_t *shape, size_t fan_in,
                     size_t *index) {
    ls_model *model = r->model;
    if (model->param_tensors == LS_MODEL_MAX_PARAMS) {
        return refuse(r, "too many parameters for a model", model->param_tensors + 1);
    }
    ls_param *param = &model->params[model->param_tensors];
    *param = (ls_param){.dims = dims, .count = 1, .fan_in = fan_in, .layer = r->index};
    char layer[LS_NAME_SIZE]; /* a copy: both names lie in the model, and snprintf wants them apart */
    memcpy(layer, model->layers[r->index].name, sizeof layer);
    int used = snprintf(param->name, sizeof param->name, "%s.%s", layer, role);
    if (used < 0 || (size_t)used >= sizeof param->name) {
        return refuse(r, "name too long for a parameter", (size_t)used);
    }
    for (size_t d = 0; d < dims; d++) {
        param->shape[d] = shape[d];
        if (shape[d] == 0 || param->count > size_limit / shape[d]) {
            return refuse(r, "parameter too large or empty, size", shape[d]);
        }
        param->count *= shape[d];
    }
    *index = model->param_tensors++;
    model->param_count += param->count;
    return 0;
}

static int add_weights(const resolver *r, const ls_layer_spec *spec, ls_layer *layer, size_t dims, const size_t *shape,
                       size_t fan_in) {
    if (add_param(r, "weight", dims, shape, fan_in, &layer->weight) != 0) {
        return -1;
    }
    return spec->no_bias ? 0 : add_param(r, "bias", 1, shape, fan_in, &layer->bias);
}

/* Adds a buffer in registration order. */
static int add_buffer(const resolver *r, const char *role, size_t count, bool is_count) {
    ls_model *model = r->model;
    ls_buffer *buffer = &model->buffers[model->buffer_tensors]; /* at most three a layer */
    size_t *end = is_count ? &model->tracked_count : &model->buffer_count;
    buffer->count = count;
    buffer->offset = *end;
    buffer->layer = r->index;
    buffer->is_count = is_count;
    char layer[LS_NAME_SIZE];
    memcpy(layer, model->layers[r->index].name, sizeof layer);
    int used = snprintf(buffer->name, sizeof buffer->name, "%s.%s", layer, role);
    if (used < 0 || (size_t)used >= sizeof buffer->name) {
        return refuse(r, "name too long for a buffer", (size_t)used);
    }
    model->buffer_tensors++;
    *end += count;
    return 0;
}

/* Side of a window's output, or 0 when the window does not fit. */
static size_t window_out(size_t in, size_t kernel, size_t stride, size_t padding) {
    size_t padded = in + 2 * padding;
    return padded < kernel ? 0 : (padded - kernel) / stride + 1;
}

static int resolve_conv(const resolver *r, const ls_layer_spec *spec, ls_layer *layer) {
    layer->stride = spec->stride == 0 ? 1 : spec->stride;
    layer->padding = spec->padding;
    if (spec->out == 0 || spec->kernel == 0) {
        return refuse(r, "conv needs out channels and a kernel of at least 1",
                      spec->out == 0 ? spec->out : spec->kernel);
    }
    if (spec->padding >= spec->kernel) {
        return refuse(r, "padding must be less than the kernel", spec->padding);
    }
    layer->out = (ls_shape){.channels = spec->out,
                            .height = window_out(layer->in.height, spec->kernel, layer->stride, layer->padding),
                            .width = window_out(layer->in.width, spec->kernel, layer->stride, layer->padding)};
    if (layer->out.height == 0 || layer->out.width == 0) {
        return refuse(r, "kernel does not fit into the input", spec->kernel);
    }
    size_t fan_in = layer->in.channels * spec->kernel * spec->kernel;
    size_t weight[] = {spec->out, layer->in.channels, spec->kernel, spec->kernel};
    return add_weights(r, spec, layer, 4, weight, fan_in);
}

static int resolve_pool(const resolver *r, const ls_layer_spec *spec, ls_layer *layer) {
    layer->stride = spec->stride == 0 ? spec->kernel : spec->stride;
    bool chooses = spec->kind == LS_LAYER_MAXPOOL;
    if (chooses && (spec->kernel == 0 || spec->kernel > 15)) { /* the index of a window is one byte */
        return refuse(r, "maxpool needs a kernel of 1 to 15", spec->kernel);
    }
    if (spec->kernel == 0) {
        return refuse(r, "avgpool needs a kernel of at least 1", spec->kernel);
    }
    if (spec->padding != 0) {
        return refuse(r, chooses ? "maxpool has no padding" : "avgpool has no padding", spec->padding);
    }
    layer->out = (ls_shape){.channels = layer->in.channels,
                            .height = window_out(layer->in.height, spec->kernel, layer->stride, 0),
                            .width = window_out(layer->in.width, spec->kernel, layer->stride, 0)};
    if (layer->out.height == 0 || layer->out.width == 0) {
        return refuse(r, "kernel does not fit into the input", spec->kernel);
    }
    layer->decisions = chooses ? ls_shape_features(layer->out) : 0;
    return 0;
}

static int resolve_dropout(const resolver *r, const ls_layer_spec *spec, ls_layer *layer) {
    if (!(spec->p >= 0) || spec->p >= 1) {
        return refuse(r, "dropout needs a share of at least 0 and below 1; in thousandths",
                      spec->p > 0 ? (size_t)(spec->p * 1000) : 0);
    }
    layer->p = spec->p;
    layer->decisions = ls_shape_features(layer->in);
    return 0;
}

/* A channel's statistics go over samples and positions; after flatten or a linear layer a feature is a channel. */
static int resolve_batchnorm(const resolver *r, const ls_layer_spec *spec, ls_layer *layer) {
    layer->eps = spec->eps == 0 ? 1e-5 : spec->eps;
    layer->momentum = spec->momentum == 0 ? 0.1 : spec->momentum;
    if (!(layer->eps > 0) || !(layer->momentum > 0) || layer->momentum > 1) {
        return refuse(r, "batchnorm needs an eps above 0 and a momentum above 0 and at most 1; momentum in thousandths",
                      layer->momentum > 0 ? (size_t)(layer->momentum * 1000) : 0);
    }
    size_t channels = layer->in.channels;
    if (add_param(r, "weight", 1, &channels, 0, &layer->weight) != 0 ||
        add_param(r, "bias", 1, &channels, 0, &layer->bias) != 0) {
        return -1;
    }
    layer->buffer = r->model->buffer_tensors;
    if (add_buffer(r, "running_mean", channels, false) != 0 || add_buffer(r, "running_var", channels, false) != 0) {
        return -1;
    }
    return add_buffer(r, "num_batches_tracked", 1, true);
}

static int resolve_linear(const resolver *r, const ls_layer_spec *spec, ls_layer *layer) {
    if (layer->in.height != 1 || layer->in.width != 1) {
        return refuse(r, "linear needs a flat input (flatten first), height", layer->in.height);
    }
    if (spec->out == 0) {
        return refuse(r, "linear needs at least 1 out feature", spec->out);
    }
    layer->out = (ls_shape){.channels = spec->out, .height = 1, .width = 1};
    size_t weight[] = {spec->out, layer->in.channels};
    return add_weights(r, spec, layer, 2, weight, layer->in.channels);
}

/* Fills a layer's output shape, parameters and decisions from its spec and input shape. */
static int resolve_kind(const resolver *r, const ls_layer_spec *spec, ls_layer *layer) {
    layer->out = layer->in;
    switch (spec->kind) {
    case LS_LAYER_CONV:
        return resolve_conv(r, spec, layer);
    case LS_LAYER_MAXPOOL:
    case LS_LAYER_AVGPOOL:
        return resolve_pool(r, spec, layer);
    case LS_LAYER_DROPOUT:
        return resolve_dropout(r, spec, layer);
    case LS_LAYER_BATCHNORM:
        return resolve_batchnorm(r, spec, layer);
    case LS_LAYER_RELU:
        layer->decisions = ls_shape_features(layer->in);
        return 0;
    case LS_LAYER_FLATTEN:
        layer->out = (ls_shape){.channels = ls_shape_features(layer->in), .height = 1, .width = 1};
        return 0;
    case LS_LAYER_LINEAR:
        return resolve_linear(r, spec, layer);
    case LS_LAYER_LOG_SOFTMAX:
        if (layer->in.height != 1 || layer->in.width != 1) {
            return refuse(r, "log-softmax needs a flat input (flatten first), height", layer->in.height);
        }
        return 0;
    case LS_LAYER_KIND_COUNT:
        break;
    }
    return refuse(r, "unknown kind of layer", (size_t)spec->kind);
}

static int resolve_layer(const resolver *r, const ls_layer_spec *spec, ls_shape in) {
    ls_layer *layer = &r->model->layers[r->index];
    layer->kind = spec->kind; /* the rest is zeroed */
    layer->in = in;
    layer->kernel = spec->kernel;
    layer->weight = layer->bias = layer->buffer = SIZE_MAX;
    if (spec->name[0] != '\0') {
        memcpy(layer->name, spec->name, sizeof layer->name);
        layer->name[sizeof layer->name - 1] = '\0';
    } else {
        snprintf(layer->name, sizeof layer->name, "%zu", r->index);
    }
    if (spec->kernel > size_limit || spec->stride > size_limit || spec->padding > size_limit ||
        spec->out > size_limit) {
        size_t most = spec->kernel > spec->stride ? spec->kernel : spec->stride;
        most = spec->padding > most ? spec->padding : most;
        return refuse(r, "size above 2^28", spec->out > most ? spec->out : most);
    }
    if (resolve_kind(r, spec, layer) != 0) {
        return -1;
    }
    ls_shape out = layer->out; /* every factor is at most size_limit, so divide instead of multiplying */
    if (out.channels > size_limit / out.height / out.width) {
        return refuse(r, "output too large, channels", out.channels);
    }
    layer->decision_offset = r->model->decisions_per_sample;
    r->model->decisions_per_sample += layer->decisions;
    return 0;
}

/* Backward goes from the last layer to the first; a linear layer makes its bias gradient before its weight gradient, a
 * convolution and batchnorm the weight gradient first, as autograd's nodes do in PyTorch. */
static void order_ready(ls_model *model) {
    size_t position = 0;
    for (size_t i = model->layer_count; i-- > 0;) {
        const ls_layer *layer = &model->layers[i];
        if (layer->weight == SIZE_MAX) {
            continue;
        }
        size_t both[] = {layer->weight, layer->bias};
        bool bias_first = layer->kind == LS_LAYER_LINEAR;
        for (size_t k = 0; k < 2; k++) {
            size_t param = both[bias_first ? 1 - k : k];
            if (param != SIZE_MAX) {
                model->ready[position++] = param;
            }
        }
    }
    size_t offset = 0;
    for (size_t k = 0; k < model->param_tensors; k++) {
        ls_param *param = &model->params[model->ready[k]];
        param->offset = offset;
        offset += param->count;
    }
}

static int refuse_model(const char *what, size_t found, char *error, size_t size) {
    snprintf(error, size, "%s, found %zu", what, found);
    return -1;
}

int ls_model_resolve(const ls_model_spec *spec, ls_model *out, char *error, size_t size) {
    memset(out, 0, sizeof *out); /* padding too: equal models have equal bytes */
    out->input = (ls_shape){.channels = spec->channels, .height = spec->height, .width = spec->width};
    out->init = spec->init;
    out->classes = spec->classes;
    out->layer_count = spec->layer_count;
    snprintf(out->name, sizeof out->name, "%s", spec->name);
    if (spec->layer_count == 0 || spec->layer_count > LS_MODEL_MAX_LAYERS) {
        return refuse_model("a model needs 1 to 64 layers", spec->layer_count, error, size);
    }
    if (spec->channels == 0 || spec->height == 0 || spec->width == 0 || spec->height > size_limit ||
        spec->width > size_limit || spec->channels > size_limit / spec->height / spec->width) {
        return refuse_model("input empty or too large, channels", spec->channels, error, size);
    }
    resolver r = {.model = out, .spec = spec, .error = error, .size = size};
    ls_shape shape = out->input;
    for (r.index = 0; r.index < spec->layer_count; r.index++) {
        if (resolve_layer(&r, &spec->layers[r.index], shape) != 0) {
            return -1;
        }
        shape = out->layers[r.index].out;
    }
    if (shape.height != 1 || shape.width != 1 || shape.channels != spec->classes) {
        char what[96];
        r.index--;
        snprintf(what, sizeof what, "the last layer must give one value for each of %zu classes", spec->classes);
        return refuse(&r, what, ls_shape_features(shape));
    }
    if (out->param_tensors == 0) {
        return refuse_model("a model needs at least one parameter", out->param_tensors, error, size);
    }
    order_ready(out);
    return 0;
}

size_t ls_layer_params(const ls_layer *layer) {
    return (layer->weight != SIZE_MAX ? 1 : 0) + (layer->bias != SIZE_MAX ? 1 : 0);
}

size_t ls_model_ready_position(const ls_model *model, size_t param) {
    for (size_t k = 0; k < model->param_tensors; k++) {
        if (model->ready[k] == param) {
            return k;
        }
    }
    return SIZE_MAX;
}
