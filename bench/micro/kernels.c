/* Benchmarks of the shared kernels. */
#include "bench/micro/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/micro.h"
#include "bench/micro/timed.h"
#include "gpu/layer_math.h"

enum { SIDE = 24, PLANE = SIDE * SIDE, BATCH = 64, CLASSES = 10 };

/* Channels of a 24x24 activation of 64 samples: in the second-level cache, of seed-cnn's first layer, out of all caches. */
static const size_t channel_counts[] = {1, 10, 160};
enum { SIZES = sizeof channel_counts / sizeof channel_counts[0] };

typedef struct entry {
    const ls_micro_kernel *kernel;
    ls_dtype dtype;
    size_t channels;
} entry;

static entry *entries;

typedef struct launched {
    const ls_micro_kernel *kernel;
    ls_micro_operands operands;
    void *memory[9];
    double *one_sum;
    size_t count; /* of memory */
} launched;

static ls_rc launch(void *self) {
    launched *l = self;
    return ls_cuda_check(l->kernel->launch(&l->operands), l->kernel->name, __FILE__, __LINE__);
}

static ls_rc allocate(launched *l, size_t bytes, int value, void **out) {
    LS_CUDA(cudaMalloc(out, bytes));
    l->memory[l->count++] = *out;
    LS_CUDA(cudaMemset(*out, value, bytes));
    return LS_OK;
}

/* Values of about 0.75 (float32) and 5e-4 (float64): 0x3f in every byte. Masks and indices are 1 in every byte; labels 0. */
static ls_rc fill(launched *l) {
    ls_micro_operands *o = &l->operands;
    size_t room = ls_activation_count(o->batch, o->count / o->batch) * ls_dtype_size(o->dtype);
    size_t statistics = (4 * o->channels + 16) * sizeof(double);
    void **values[] = {&o->a, &o->b, &o->c, &o->d, &o->e};
    const double one_sum = 0.25; /* 1/(2*sqrt(0.25)) = 1 */
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        LS_TRY(allocate(l, room, 0x3f, values[i]));
    }
    LS_TRY(allocate(l, room, 1, (void **)&o->bytes));
    LS_TRY(allocate(l, o->count * sizeof(float), 0x3f, (void **)&o->floats));
    LS_TRY(allocate(l, (o->batch + o->lanes) * sizeof(int32_t), 0, (void **)&o->labels));
    LS_TRY(allocate(l, statistics, 0x3f, (void **)&o->statistics));
    LS_CUDA(cudaMalloc((void **)&l->one_sum, 2 * sizeof(double)));
    LS_CUDA(cudaMemcpy(l->one_sum, &one_sum, sizeof one_sum, cudaMemcpyHostToDevice));
    LS_CUDA(cudaMemset(l->one_sum + 1, 0, sizeof(double)));
    o->one_sum = l->one_sum;
    o->tracked = (int64_t *)(l->one_sum + 1);
    return LS_OK;
}

static void set_shape(const entry *e, ls_micro_operands *o) {
    size_t count = BATCH * e->channels * PLANE;
    *o = (ls_micro_operands){.dtype = e->dtype,
                             .lanes = ls_lanes(),
                             .batch = BATCH,
                             .channels = e->channels,
                             .plane = PLANE,
                             .side = SIDE,
                             .classes = CLASSES,
                             .count = count};
    if (e->kernel->shape == LS_MICRO_CLASSES) {
        o->batch = count / CLASSES / BATCH * BATCH;
        o->count = o->batch * CLASSES;
    }
}

static ls_rc measure(ls_gbench_state *state, const entry *e, launched *l) {
    ls_micro_operands *o = &l->operands;
    double value_bytes = e->kernel->values * (double)ls_dtype_size(e->dtype);
    ls_micro_work work = {.bytes = (value_bytes + e->kernel->bytes) * (double)o->count,
                          .operations = e->kernel->operations * (double)o->count,
                          .dtype = e->dtype};
    LS_CUDA(cudaSetDevice(0));
    LS_CUDA(cudaStreamCreateWithFlags(&o->stream, cudaStreamNonBlocking));
    LS_TRY(fill(l));
    LS_CUDA(cudaDeviceSynchronize());
    return ls_micro_timed(state, o->stream, &work, launch, l);
}

static void run(ls_gbench_state *state, void *argument) {
    const entry *e = argument;
    launched l = {.kernel = e->kernel};
    set_shape(e, &l.operands);
    ls_rc rc = measure(state, e, &l);
    if (rc != LS_OK) {
        ls_gbench_fail(state, rc, "the kernel could not be measured");
    }
    if (l.operands.stream != NULL) {
        (void)cudaStreamSynchronize(l.operands.stream);
        (void)cudaStreamDestroy(l.operands.stream);
    }
    for (size_t i = 0; i < l.count; i++) {
        (void)cudaFree(l.memory[i]);
    }
    (void)cudaFree(l.one_sum);
}

ls_rc ls_micro_add_kernels(const ls_micro_options *options) {
    (void)options;
    size_t kernels = 0, count = 0;
    while (ls_micro_kernels[kernels].name != NULL) {
        kernels++;
    }
    entries = ls_calloc(kernels * 2 * SIZES, sizeof *entries, "benchmarks");
    if (entries == NULL) {
        return LS_DEVICE_FAILED;
    }
    for (size_t k = 0; k < kernels; k++) {
        for (ls_dtype dtype = LS_FLOAT32; dtype <= LS_FLOAT64; dtype++) {
            for (size_t s = 0; s < SIZES; s++) {
                char name[128];
                ls_micro_operands shape;
                entry *e = &entries[count++];
                *e = (entry){&ls_micro_kernels[k], dtype, channel_counts[s]};
                set_shape(e, &shape);
                snprintf(name, sizeof name, "kernel/%s/%s/n:%zu", e->kernel->name, ls_dtype_name(dtype), shape.count);
                ls_gbench_register(name, LS_GBENCH_WALL, run, e);
            }
        }
    }
    return LS_OK;
}

void ls_micro_end_kernels(void) {
    free(entries);
    entries = NULL;
}
