#include "reference/mutant_faults.h"

#include <math.h>
#include <stdlib.h>

#include "gpu/kernels/kernels.h"

static void widen(ls_dtype dtype, const void *from, size_t count, double *to) {
    for (size_t i = 0; i < count; i++) {
        to[i] = dtype == LS_FLOAT64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
    }
}

static void narrow(ls_dtype dtype, const double *from, size_t count, void *to) {
    for (size_t i = 0; i < count; i++) {
        if (dtype == LS_FLOAT64) {
            ((double *)to)[i] = from[i];
        } else {
            ((float *)to)[i] = (float)from[i];
        }
    }
}

/* The values of device memory as doubles. Owned by the caller; NULL after a line. */
static double *fetch(cudaStream_t stream, ls_dtype dtype, const void *device, size_t count) {
    void *raw = ls_calloc(count, ls_dtype_size(dtype), "a mutant's values");
    double *values = ls_calloc(count, sizeof *values, "a mutant's values");
    ls_rc rc = raw != NULL && values != NULL ? LS_OK : LS_DEVICE_FAILED;
    if (rc == LS_OK) {
        rc = ls_cuda_check(cudaMemcpyAsync(raw, device, count * ls_dtype_size(dtype), cudaMemcpyDeviceToHost, stream),
                           "cudaMemcpyAsync", __FILE__, __LINE__);
    }
    if (rc == LS_OK) {
        rc = ls_cuda_check((cudaStreamSynchronize)(stream), "cudaStreamSynchronize", __FILE__, __LINE__);
    }
    if (rc == LS_OK) {
        widen(dtype, raw, count, values);
    } else {
        free(values);
        values = NULL;
    }
    free(raw);
    return values;
}

static ls_rc store(cudaStream_t stream, ls_dtype dtype, void *device, size_t count, const double *values) {
    void *raw = ls_calloc(count, ls_dtype_size(dtype), "a mutant's values");
    if (raw == NULL) {
        return LS_DEVICE_FAILED;
    }
    narrow(dtype, values, count, raw);
    ls_rc rc = ls_cuda_check(cudaMemcpyAsync(device, raw, count * ls_dtype_size(dtype), cudaMemcpyHostToDevice, stream),
                             "cudaMemcpyAsync", __FILE__, __LINE__);
    if (rc == LS_OK) {
        rc = ls_cuda_check((cudaStreamSynchronize)(stream), "cudaStreamSynchronize", __FILE__, __LINE__);
    }
    free(raw);
    return rc;
}

ls_rc ls_mutant_edit(cudaStream_t stream, ls_dtype dtype, void *device, size_t count, ls_mutant_change change,
                     const void *argument) {
    double *values = fetch(stream, dtype, device, count);
    if (values == NULL) {
        return LS_DEVICE_FAILED;
    }
    change(values, count, argument);
    ls_rc rc = store(stream, dtype, device, count, values);
    free(values);
    return rc;
}

typedef struct format {
    int bits, least;
} format;

static void round_to(double *values, size_t count, const void *argument) {
    const format *f = argument;
    for (size_t i = 0; i < count; i++) {
        int exponent = 0;
        (void)frexp(values[i], &exponent); /* |value| in [2^(exponent-1), 2^exponent) */
        int unit = (exponent > f->least + 1 ? exponent : f->least + 1) - f->bits;
        values[i] = ldexp(nearbyint(ldexp(values[i], -unit)), unit);
    }
}

ls_rc ls_mutant_round(cudaStream_t stream, ls_dtype dtype, void *device, size_t count, int bits, int least) {
    return ls_mutant_edit(stream, dtype, device, count, round_to, &(format){bits, least});
}

ls_rc ls_mutant_keep(cudaStream_t stream, ls_dtype dtype, const void *device, size_t count, void **kept) {
    size_t bytes = count * ls_dtype_size(dtype);
    LS_CUDA(cudaMalloc(kept, bytes));
    LS_CUDA(cudaMemcpyAsync(*kept, device, bytes, cudaMemcpyDeviceToDevice, stream));
    return LS_OK;
}

ls_rc ls_mutant_add_kept(cudaStream_t stream, ls_dtype dtype, void *device, size_t count, void *kept) {
    LS_CUDA(ls_kernel_add(stream, dtype, count, kept, device));
    LS_CUDA(cudaFree(kept)); /* waits for the device */
    return LS_OK;
}

static void transpose(double *values, size_t count, const void *argument) {
    size_t k = *(const size_t *)argument;
    for (size_t filter = 0; filter + k * k <= count; filter += k * k) {
        for (size_t r = 0; r < k; r++) {
            for (size_t c = 0; c < r; c++) {
                double value = values[filter + r * k + c];
                values[filter + r * k + c] = values[filter + c * k + r];
                values[filter + c * k + r] = value;
            }
        }
    }
}

ls_rc ls_mutant_transpose(cudaStream_t stream, ls_dtype dtype, void *weights, size_t count, size_t kernel) {
    return ls_mutant_edit(stream, dtype, weights, count, transpose, &kernel);
}

typedef struct bias {
    const double *before;
    double momentum, samples;
} bias;

static void make_biased(double *values, size_t count, const void *argument) {
    const bias *b = argument;
    for (size_t i = 0; i < count; i++) {
        double kept = (1 - b->momentum) * b->before[i];
        values[i] = kept + (values[i] - kept) * (b->samples - 1) / b->samples;
    }
}

ls_rc ls_mutant_biased(cudaStream_t stream, ls_dtype dtype, void *running, size_t channels, void *before,
                       double momentum, double samples) {
    double *values = fetch(stream, dtype, before, channels);
    if (values == NULL) {
        return LS_DEVICE_FAILED;
    }
    bias b = {.before = values, .momentum = momentum, .samples = samples};
    ls_rc rc = ls_mutant_edit(stream, dtype, running, channels, make_biased, &b);
    free(values);
    LS_CUDA(cudaFree(before));
    return rc;
}

/* The last maximum of the window of output (plane, y, x) in lane l. */
static uint8_t last_maximum(const ls_layer *layer, size_t lanes, const double *x, size_t plane, size_t row,
                            size_t column, size_t l) {
    double top = -INFINITY;
    size_t choice = 0;
    for (size_t k = 0; k < layer->kernel * layer->kernel; k++) {
        size_t y = row * layer->stride + k / layer->kernel;
        size_t at = (plane * layer->in.height + y) * layer->in.width + column * layer->stride + k % layer->kernel;
        if (x[at * lanes + l] >= top) {
            top = x[at * lanes + l];
            choice = k;
        }
    }
    return (uint8_t)choice;
}

ls_rc ls_mutant_last_maximum(const ls_layer *layer, const ls_layer_pass *pass) {
    size_t planes = (pass->batch + pass->lanes - 1) / pass->lanes * layer->in.channels;
    size_t plane_in = layer->in.height * layer->in.width, plane_out = layer->out.height * layer->out.width;
    double *x = fetch(pass->stream, pass->dtype, pass->x, planes * plane_in * pass->lanes);
    uint8_t *index = ls_calloc(planes * plane_out, pass->lanes, "a mutant's choices");
    if (x == NULL || index == NULL) {
        free(x);
        free(index);
        return LS_DEVICE_FAILED;
    }
    for (size_t i = 0; i < planes * plane_out * pass->lanes; i++) {
        size_t out = i / pass->lanes;
        index[i] = last_maximum(layer, pass->lanes, x, out / plane_out, out % plane_out / layer->out.width,
                                out % layer->out.width, i % pass->lanes);
    }
    ls_rc rc = ls_cuda_check(
        cudaMemcpyAsync(pass->index, index, planes * plane_out * pass->lanes, cudaMemcpyHostToDevice, pass->stream),
        "cudaMemcpyAsync", __FILE__, __LINE__);
    if (rc == LS_OK) {
        rc = ls_cuda_check((cudaStreamSynchronize)(pass->stream), "cudaStreamSynchronize", __FILE__, __LINE__);
    }
    free(x);
    free(index);
    return rc;
}

/* An optimizer's step on the host: parameters, gradient and up to two states, of which the step writes all but the
 * gradient. */
typedef struct host_step {
    size_t count;
    double *w, *g, *state[2];
} host_step;

static ls_rc fetch_step(const ls_optimizer_step *step, size_t states, host_step *h) {
    *h = (host_step){.count = step->count};
    h->w = fetch(step->stream, step->dtype, step->param, step->count);
    h->g = fetch(step->stream, step->dtype, step->grad, step->count);
    for (size_t k = 0; k < states; k++) {
        h->state[k] = fetch(step->stream, step->dtype, step->state[k], step->count);
    }
    return h->w != NULL && h->g != NULL && h->state[0] != NULL && (states < 2 || h->state[1] != NULL)
               ? LS_OK
               : LS_DEVICE_FAILED;
}

static ls_rc store_step(const ls_optimizer_step *step, size_t states, host_step *h, ls_rc rc) {
    if (rc == LS_OK) {
        rc = store(step->stream, step->dtype, step->param, step->count, h->w);
    }
    for (size_t k = 0; k < states && rc == LS_OK; k++) {
        rc = store(step->stream, step->dtype, step->state[k], step->count, h->state[k]);
    }
    free(h->w);
    free(h->g);
    free(h->state[0]);
    free(h->state[1]);
    return rc;
}

ls_rc ls_mutant_adam(const ls_optimizer_options *options, const ls_optimizer_step *step) {
    host_step h;
    ls_rc rc = fetch_step(step, 2, &h);
    double made = (double)(step->steps + 1);
    double first = 1 - pow(options->beta1, made), second = 1 - pow(options->beta2, made);
    for (size_t i = 0; i < h.count && rc == LS_OK; i++) {
        double g = h.g[i] + options->weight_decay * h.w[i];
        h.state[0][i] = options->beta1 * h.state[0][i] + (1 - options->beta1) * g;
        h.state[1][i] = options->beta2 * h.state[1][i] + (1 - options->beta2) * g * g;
        h.w[i] -= step->lr / first * h.state[0][i] / sqrt(h.state[1][i] / second + options->eps);
    }
    return store_step(step, 2, &h, rc);
}

ls_rc ls_mutant_rmsprop(const ls_optimizer_options *options, const ls_optimizer_step *step) {
    host_step h;
    ls_rc rc = fetch_step(step, 1, &h);
    for (size_t i = 0; i < h.count && rc == LS_OK; i++) {
        double g = h.g[i] + options->weight_decay * h.w[i];
        h.state[0][i] = options->alpha * h.state[0][i] + (1 - options->alpha) * g * g;
        h.w[i] -= step->lr * g / sqrt(h.state[0][i] + options->eps);
    }
    return store_step(step, 1, &h, rc);
}
