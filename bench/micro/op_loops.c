/* Plain loops without a device: the roofs that collectives and steps are held against, measured by the same clock and in the
 * same turns. */
#include <stdlib.h>
#include <string.h>

#include "bench/micro/ops.h"
#include "bench/micro/peak.h"

typedef struct loop_job {
    ls_micro_place *place;
    ls_dtype dtype;
    size_t count;
    float *values;
} loop_job;

static void loop_close(void *self) {
    loop_job *j = self;
    if (j != NULL) {
        free(j->values);
        free(j);
    }
}

static ls_rc loop_open(ls_micro_place *place, const ls_micro_job *job, void **self) {
    loop_job *j = ls_calloc(1, sizeof *j, "a loop");
    *self = j;
    if (j == NULL) {
        return LS_DEVICE_FAILED;
    }
    j->place = place;
    j->dtype = job->dtype;
    j->count = job->bytes / sizeof(float);
    if (posix_memalign((void **)&j->values, 64, j->count * sizeof(float) + 64) != 0) {
        j->values = NULL;
        return ls_fail(LS_DEVICE_FAILED, "out of memory for a loop over %zu bytes", job->bytes);
    }
    return LS_OK;
}

static ls_rc memory_prepare(void *self) {
    loop_job *j = self;
    memset(j->values, 0x3f, j->count * sizeof(float));
    return LS_OK;
}

static ls_rc memory_run(void *self) {
    loop_job *j = self;
    ls_micro_memory_run(j->values, j->count, 1.0F);
    return LS_OK;
}

static ls_rc memory_measure(void *self, size_t iterations, double *seconds) {
    return ls_micro_time(((loop_job *)self)->place, self, memory_prepare, memory_run, iterations, seconds);
}

/* Each rank reads and writes its own `bytes` once, in place: over all ranks as many bytes as an allreduce of that size must
 * move when every rank reads one part of every buffer and writes it into every buffer. */
const ls_micro_op ls_micro_op_memory = {
    .name = "memory", .open = loop_open, .measure = memory_measure, .close = loop_close};

enum { FMA_ROUNDS = 50000 };

static ls_rc fma_run(void *self) {
    (void)ls_micro_fma_run(((loop_job *)self)->dtype, FMA_ROUNDS);
    return LS_OK;
}

/* Seconds of one floating-point operation. */
static ls_rc fma_measure(void *self, size_t iterations, double *seconds) {
    loop_job *j = self;
    LS_TRY(ls_micro_time(j->place, self, NULL, fma_run, iterations, seconds));
    double operations = ls_micro_fma_run(j->dtype, 1) * FMA_ROUNDS;
    for (size_t i = 0; i < iterations; i++) {
        seconds[i] /= operations;
    }
    return LS_OK;
}

const ls_micro_op ls_micro_op_fma = {.name = "fma", .open = loop_open, .measure = fma_measure, .close = loop_close};
