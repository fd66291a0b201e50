#include "reference/batcher.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/base/clock.h"
#include "gpu/base/mutant.h"
#include "gpu/range.h"
#include "reference/cleanup.h"

/* The caller may read the last two batches given. */
enum { HELD = 2, MAX_SLOTS = HELD + LS_BATCHER_MAX_THREADS + 1, MAX_READERS = 64 };

/* A stream that copied a batch, and the event after its copies. */
typedef struct reader {
    cudaStream_t stream;
    cudaEvent_t event;
} reader;

/* One batch in pinned memory. */
typedef struct slot {
    ls_samples samples;
    size_t *indices;
    size_t count; /* samples of the batch that it holds */
    size_t made;  /* that batch's number + 1; 0: none */
    double free;  /* when the copies that read the batch before it had finished */
    size_t reader_count;
    reader readers[MAX_READERS];
} slot;

/* Batches are numbered in the order in which they are given, over all epochs; batch n lies in slot n % slot_count. A slot
 * belongs to the caller while it holds one of the last HELD batches given, else to the loader that fills it. */
struct ls_batcher {
    const ls_dataset *dataset;
    ls_sampler sampler;
    size_t batch;
    size_t length; /* samples of an epoch */
    size_t *order;
    size_t slot_count;
    slot slots[MAX_SLOTS];
    double seconds;
    int device; /* of the loaders */

    size_t thread_count;
    pthread_t threads[LS_BATCHER_MAX_THREADS];
    pthread_mutex_t lock; /* guards what follows, and `made` */
    pthread_cond_t wanted, finished;
    size_t given;     /* batches given so far: the number of the next one */
    size_t next;      /* the number of the next batch to be made */
    size_t base;      /* the batch of this number ... */
    size_t base_step; /* ... is of this step */
    size_t working;   /* loaders that fill a slot */
    bool paused, stopped;
    ls_rc rc; /* of the loaders */
};

static ls_rc pin(size_t count, size_t size, void **out) {
    LS_CUDA(cudaMallocHost(out, count * size));
    return LS_OK;
}

static ls_rc open_slot(ls_batcher *batcher) {
    const ls_dataset *dataset = batcher->dataset;
    slot *s = &batcher->slots[batcher->slot_count++];
    size_t batch = batcher->batch, features = ls_dataset_features(dataset);
    if (dataset->values != NULL) {
        LS_TRY(pin(batch * features, sizeof *s->samples.values, (void **)&s->samples.values));
    } else {
        LS_TRY(pin(batch * features, 1, (void **)&s->samples.pixels));
    }
    if (dataset->targets != NULL) {
        LS_TRY(pin(batch * dataset->target_count, sizeof *s->samples.targets, (void **)&s->samples.targets));
    }
    LS_TRY(pin(batch, sizeof *s->samples.labels, (void **)&s->samples.labels));
    s->indices = ls_calloc(batch, sizeof *s->indices, "a batch's indices");
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
    LS_CLOSE(rc, cudaFreeHost(s->samples.pixels));
    LS_CLOSE(rc, cudaFreeHost(s->samples.values));
    LS_CLOSE(rc, cudaFreeHost(s->samples.labels));
    LS_CLOSE(rc, cudaFreeHost(s->samples.targets));
    free(s->indices);
}

static ls_rc check_batch(const ls_sampler *sampler, size_t length, size_t batch) {
    if (length == 0) {
        return ls_fail(LS_BAD_INPUT,
                       "data set: expected a sample for each of %zu ranks, found %zu samples and drop-last",
                       sampler->world, sampler->count);
    }
    if (batch == 0 || batch > length) {
        return ls_fail(LS_BAD_INPUT,
                       "batch of a device: expected 1 to %zu, the samples of a rank's shard (%zu samples over %zu "
                       "ranks), found %zu; choose a smaller batch or fewer devices",
                       length, sampler->count, sampler->world, batch);
    }
    return LS_OK;
}

ls_rc ls_batcher_open(const ls_dataset *dataset, const ls_sampler *sampler, size_t batch, ls_batcher **out) {
    size_t length = ls_sampler_length(sampler);
    LS_TRY(check_batch(sampler, length, batch));
    ls_batcher *batcher = ls_calloc(1, sizeof *batcher, "a batcher");
    if (batcher == NULL) {
        return LS_DEVICE_FAILED;
    }
    batcher->dataset = dataset;
    batcher->sampler = *sampler;
    batcher->batch = batch;
    batcher->length = length;
    (void)pthread_mutex_init(&batcher->lock, NULL); /* these fail for attributes only */
    (void)pthread_cond_init(&batcher->wanted, NULL);
    (void)pthread_cond_init(&batcher->finished, NULL);
    batcher->order = ls_calloc(length, sizeof *batcher->order, "the order of an epoch");
    ls_rc rc = batcher->order == NULL ? LS_DEVICE_FAILED : LS_OK;
    for (size_t i = 0; i < HELD && rc == LS_OK; i++) {
        rc = open_slot(batcher);
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
    pthread_mutex_lock(&batcher->lock);
    batcher->stopped = true;
    pthread_cond_broadcast(&batcher->wanted);
    pthread_mutex_unlock(&batcher->lock);
    for (size_t i = 0; i < batcher->thread_count; i++) {
        pthread_join(batcher->threads[i], NULL);
    }
    for (size_t i = 0; i < batcher->slot_count; i++) {
        close_slot(&batcher->slots[i]);
    }
    pthread_cond_destroy(&batcher->wanted);
    pthread_cond_destroy(&batcher->finished);
    pthread_mutex_destroy(&batcher->lock);
    free(batcher->order);
    free(batcher);
}

size_t ls_batcher_steps(const ls_batcher *batcher) {
    return (batcher->length + batcher->batch - 1) / batcher->batch;
}

double ls_batcher_seconds(const ls_batcher *batcher) {
    return batcher->seconds;
}

/* Fills a slot with the batch of a step. */
static ls_rc make(const ls_batcher *batcher, slot *s, size_t step) {
    LS_RANGE_NUMBERED("load", step);
    LS_TRY(wait_readers(s));
    s->free = ls_now_seconds();
    size_t first = step * batcher->batch;
    s->count = batcher->length - first < batcher->batch ? batcher->length - first : batcher->batch;
    for (size_t i = 0; i < s->count; i++) {
        size_t index = batcher->order[first + i];
        ls_samples_copy(batcher->dataset, index, &s->samples, i);
        s->indices[i] = index;
    }
    if (batcher->sampler.rank == batcher->sampler.world - 1) { /* the last rank's */
        if (LS_MUTANT(sample_dropped)) {
            s->count--;
        }
        if (LS_MUTANT(label_wrong)) {
            s->samples.labels[0] = s->samples.labels[0] == 0 ? 1 : 0;
        }
        if (LS_MUTANT(pixel_off)) {
            size_t middle = ls_dataset_features(batcher->dataset) / 2;
            s->samples.pixels[middle] = (uint8_t)(s->samples.pixels[middle] ^ 1U);
        }
    }
    return LS_OK;
}

static size_t step_of(const ls_batcher *batcher, size_t number) {
    return batcher->base_step + (number - batcher->base);
}

/* Whether a loader may make the next batch: its step is one of the epoch, and its slot's last batch is no longer held. */
static bool can_make(const ls_batcher *batcher) {
    return !batcher->paused && batcher->rc == LS_OK && step_of(batcher, batcher->next) < ls_batcher_steps(batcher) &&
           batcher->next + HELD < batcher->given + batcher->slot_count;
}

static void *load(void *argument) {
    ls_batcher *batcher = argument;
    ls_error_set_rank((int)batcher->sampler.rank, batcher->device);
    ls_rc rc = ls_cuda_check(cudaSetDevice(batcher->device), "cudaSetDevice", __FILE__, __LINE__);
    pthread_mutex_lock(&batcher->lock);
    while (!batcher->stopped && rc == LS_OK) {
        if (!can_make(batcher)) {
            pthread_cond_wait(&batcher->wanted, &batcher->lock);
            continue;
        }
        size_t number = batcher->next++, step = step_of(batcher, number);
        slot *s = &batcher->slots[number % batcher->slot_count];
        batcher->working++;
        pthread_mutex_unlock(&batcher->lock);
        rc = make(batcher, s, step);
        pthread_mutex_lock(&batcher->lock);
        batcher->working--;
        s->made = number + 1;
        pthread_cond_broadcast(&batcher->finished);
    }
    if (rc != LS_OK) {
        batcher->rc = rc;
        pthread_cond_broadcast(&batcher->finished);
    }
    pthread_mutex_unlock(&batcher->lock);
    return NULL;
}

ls_rc ls_batcher_start(ls_batcher *batcher, size_t threads) {
    if (threads > LS_BATCHER_MAX_THREADS) {
        return ls_fail(LS_BAD_INPUT, "loader threads: expected at most %d, found %zu", LS_BATCHER_MAX_THREADS, threads);
    }
    LS_CUDA(cudaGetDevice(&batcher->device));
    for (size_t i = 0; threads > 0 && i < threads + 1; i++) {
        LS_TRY(open_slot(batcher));
    }
    while (batcher->thread_count < threads) {
        int error = pthread_create(&batcher->threads[batcher->thread_count], NULL, load, batcher);
        if (error != 0) {
            return ls_fail(LS_DEVICE_FAILED, "cannot start a loader thread: %s", strerror(error));
        }
        batcher->thread_count++;
    }
    return LS_OK;
}

/* Under the lock: no loader is at work and none starts until resume. */
static void pause_loaders(ls_batcher *batcher) {
    batcher->paused = true;
    while (batcher->working > 0) {
        pthread_cond_wait(&batcher->finished, &batcher->lock);
    }
}

/* Under the lock: the next batch is that of step; what was made ahead is forgotten. */
static void resume_loaders(ls_batcher *batcher, size_t step) {
    for (size_t i = 0; i < batcher->slot_count; i++) {
        slot *s = &batcher->slots[i];
        s->made = s->made > batcher->given ? 0 : s->made;
    }
    batcher->next = batcher->base = batcher->given;
    batcher->base_step = step;
    batcher->paused = false;
    pthread_cond_broadcast(&batcher->wanted);
}

ls_rc ls_batcher_set_epoch(ls_batcher *batcher, size_t epoch) {
    pthread_mutex_lock(&batcher->lock);
    pause_loaders(batcher);
    int failed = ls_sampler_order(&batcher->sampler, epoch, batcher->order);
    resume_loaders(batcher, 0);
    pthread_mutex_unlock(&batcher->lock);
    if (failed != 0) {
        return ls_fail(LS_DEVICE_FAILED, "out of memory for the order of %zu samples", batcher->sampler.count);
    }
    return LS_OK;
}

/* The slot of the next batch, of step, made by the loaders. */
static ls_rc await(ls_batcher *batcher, size_t step, slot **out) {
    pthread_mutex_lock(&batcher->lock);
    if (step_of(batcher, batcher->given) != step) {
        pause_loaders(batcher);
        resume_loaders(batcher, step);
    }
    size_t number = batcher->given++; /* the batch given HELD calls ago is free from here on */
    slot *s = &batcher->slots[number % batcher->slot_count];
    pthread_cond_broadcast(&batcher->wanted);
    while (s->made != number + 1 && batcher->rc == LS_OK) {
        pthread_cond_wait(&batcher->finished, &batcher->lock);
    }
    ls_rc rc = batcher->rc;
    pthread_mutex_unlock(&batcher->lock);
    *out = s;
    return rc;
}

ls_rc ls_batcher_get(ls_batcher *batcher, size_t step, ls_batch *out) {
    LS_RANGE_NUMBERED("batch", step);
    if (step >= ls_batcher_steps(batcher)) {
        return ls_fail(LS_BAD_INPUT, "step of an epoch: expected less than %zu, found %zu", ls_batcher_steps(batcher),
                       step);
    }
    double start = ls_now_seconds();
    slot *s = NULL;
    if (batcher->thread_count > 0) {
        LS_TRY(await(batcher, step, &s));
    } else {
        s = &batcher->slots[batcher->given++ % batcher->slot_count];
        LS_TRY(make(batcher, s, step));
    }
    /* as long as the device has not read the slot's last batch, training does not wait for its input */
    batcher->seconds += ls_now_seconds() - (s->free > start ? s->free : start);
    *out = (ls_batch){.count = s->count,
                      .pixels = s->samples.pixels,
                      .values = s->samples.values,
                      .labels = s->samples.labels,
                      .targets = s->samples.targets,
                      .target_count = batcher->dataset->target_count,
                      .indices = s->indices};
    return LS_OK;
}

ls_rc ls_batcher_used(ls_batcher *batcher, cudaStream_t stream) {
    slot *s = &batcher->slots[(batcher->given + batcher->slot_count - 1) % batcher->slot_count];
    size_t i = 0;
    while (i < s->reader_count && s->readers[i].stream != stream) {
        i++; /* an event belongs to its stream's device, so each stream keeps its own */
    }
    if (i == MAX_READERS) {
        return ls_fail(LS_BAD_INPUT, "a batch can be read by at most %d streams", MAX_READERS);
    }
    if (i == s->reader_count) {
        s->readers[i].stream = stream;
        LS_CUDA(cudaEventCreateWithFlags(&s->readers[i].event, cudaEventDisableTiming | cudaEventBlockingSync));
        s->reader_count++;
    }
    LS_CUDA(cudaEventRecord(s->readers[i].event, stream));
    return LS_OK;
}
