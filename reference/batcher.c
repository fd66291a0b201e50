#include "reference/batcher.h"

#include <stdlib.h>
#include <string.h>

#include "reference/cleanup.h"

enum { SLOTS = 2, MAX_READERS = 64 };

/* A stream that copied a batch, and the event after its copies. */
typedef struct reader {
    cudaStream_t stream;
    cudaEvent_t event;
} reader;

/* One batch in pinned memory. */
typedef struct slot {
    uint8_t *pixels;
    int32_t *labels;
    size_t *indices;
    size_t reader_count;
    reader readers[MAX_READERS];
} slot;

struct ls_batcher {
    const ls_dataset *dataset;
    ls_sampler sampler;
    size_t batch;
    size_t features;
    size_t length; /* samples of an epoch */
    size_t *order;
    size_t current; /* the slot last given */
    slot slots[SLOTS];
};

static ls_rc open_slot(const ls_batcher *batcher, slot *s) {
    void *memory = NULL;
    LS_CUDA(cudaMallocHost(&memory, batcher->batch * batcher->features));
    s->pixels = memory;
    LS_CUDA(cudaMallocHost(&memory, batcher->batch * sizeof *s->labels));
    s->labels = memory;
    s->indices = ls_calloc(batcher->batch, sizeof *s->indices, "a batch's indices");
    return s->indices == NULL ? LS_DEVICE_FAILED : LS_OK;
}

/* Waits until every copy that reads the slot has finished. */
static ls_rc wait_readers(const slot *s) {
    for (size_t i = 0; i < s->reader_count; i++) {
        LS_CUDA(cudaEventSynchronize(s->readers[i].event));
    }
    return LS_OK;
}

static void close_slot(slot *s) {
    ls_rc rc = wait_readers(s);
    for (size_t i = 0; i < s->reader_count; i++) {
        LS_CLOSE(rc, cudaEventDestroy(s->readers[i].event));
    }
    LS_CLOSE(rc, cudaFreeHost(s->pixels));
    LS_CLOSE(rc, cudaFreeHost(s->labels));
    free(s->indices);
}

ls_rc ls_batcher_open(const ls_dataset *dataset, const ls_sampler *sampler, size_t batch, ls_batcher **out) {
    size_t length = ls_sampler_length(sampler);
    if (batch == 0 || batch > length) {
        return ls_fail(LS_BAD_INPUT,
                       "batch of a device: expected 1 to %zu, the samples of a rank's shard (%zu samples over %zu "
                       "ranks), found %zu; choose a smaller batch or fewer devices",
                       length, sampler->count, sampler->world, batch);
    }
    ls_batcher *batcher = ls_calloc(1, sizeof *batcher, "a batcher");
    if (batcher == NULL) {
        return LS_DEVICE_FAILED;
    }
    batcher->dataset = dataset;
    batcher->sampler = *sampler;
    batcher->batch = batch;
    batcher->features = dataset->channels * dataset->height * dataset->width;
    batcher->length = length;
    batcher->order = ls_calloc(length, sizeof *batcher->order, "the order of an epoch");
    ls_rc rc = batcher->order == NULL ? LS_DEVICE_FAILED : LS_OK;
    for (size_t i = 0; i < SLOTS && rc == LS_OK; i++) {
        rc = open_slot(batcher, &batcher->slots[i]);
    }
    if (rc == LS_OK) {
        rc = ls_batcher_set_epoch(batcher, 0);
    }
    if (rc != LS_OK) {
        ls_batcher_close(batcher);
        return rc;
    }
    *out = batcher;
    return LS_OK;
}

void ls_batcher_close(ls_batcher *batcher) {
    if (batcher == NULL) {
        return;
    }
    for (size_t i = 0; i < SLOTS; i++) {
        close_slot(&batcher->slots[i]);
    }
    free(batcher->order);
    free(batcher);
}

size_t ls_batcher_steps(const ls_batcher *batcher) {
    return (batcher->length + batcher->batch - 1) / batcher->batch;
}

ls_rc ls_batcher_set_epoch(ls_batcher *batcher, size_t epoch) {
    if (ls_sampler_order(&batcher->sampler, epoch, batcher->order) != 0) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the order of %zu samples", batcher->sampler.count);
    }
    return LS_OK;
}

ls_rc ls_batcher_get(ls_batcher *batcher, size_t step, ls_batch *out) {
    if (step >= ls_batcher_steps(batcher)) {
        return ls_fail(LS_BAD_INPUT, "step of an epoch: expected less than %zu, found %zu", ls_batcher_steps(batcher),
                       step);
    }
    batcher->current = (batcher->current + 1) % SLOTS;
    slot *s = &batcher->slots[batcher->current];
    LS_TRY(wait_readers(s));
    size_t first = step * batcher->batch;
    size_t count = batcher->length - first < batcher->batch ? batcher->length - first : batcher->batch;
    for (size_t i = 0; i < count; i++) {
        size_t index = batcher->order[first + i];
        memcpy(s->pixels + i * batcher->features, batcher->dataset->pixels + index * batcher->features,
               batcher->features);
        s->labels[i] = batcher->dataset->labels[index];
        s->indices[i] = index;
    }
    *out = (ls_batch){.count = count, .pixels = s->pixels, .labels = s->labels, .indices = s->indices};
    return LS_OK;
}

ls_rc ls_batcher_used(ls_batcher *batcher, cudaStream_t stream) {
    slot *s = &batcher->slots[batcher->current];
    size_t i = 0;
    while (i < s->reader_count && s->readers[i].stream != stream) {
        i++; /* an event belongs to its stream's device, so each stream keeps its own */
    }
    if (i == MAX_READERS) {
        return ls_fail(LS_BAD_INPUT, "a batch can be read by at most %d streams", MAX_READERS);
    }
    if (i == s->reader_count) {
        s->readers[i].stream = stream;
        LS_CUDA(cudaEventCreateWithFlags(&s->readers[i].event, cudaEventDisableTiming));
        s->reader_count++;
    }
    LS_CUDA(cudaEventRecord(s->readers[i].event, stream));
    return LS_OK;
}
