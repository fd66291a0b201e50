/* What a rank records of each step for verification: files in the run's private folder, one a device
 * (capture-<device>.bin) with the local side and one a rank (reduced-<rank>.bin) with the reduced side. Written by the rank
 * program, read by verify/. */
#ifndef LS_IMPLS_CAPTURE_H
#define LS_IMPLS_CAPTURE_H

#include <stdio.h>

#include "gpu/base/dtype.h"
#include "gpu/base/error.h"
#include "impls/protocol.h"
#include "reference/model.h"

/* The local side of one step of one device (a rank's device, or one of dp's). */
typedef struct ls_capture_local {
    uint64_t step;
    uint64_t count;     /* samples of this device */
    size_t *indices;    /* [count] into the training set */
    void *grads;        /* [param_count] of dtype: local gradient before any communication */
    uint8_t *decisions; /* [count][decisions_per_sample] */
    double loss_sum;    /* sum of this device's losses; NaN where the device does not compute the loss (dp) */
    void *inputs;       /* [count][features] of dtype: as the first layer read them */
    int32_t *labels;    /* [count], as the device had them */
    float *targets;     /* [count][target_count], likewise */
    uint64_t target_count;
} ls_capture_local;

/* The reduced side of one step of one rank. */
typedef struct ls_capture_reduced {
    uint64_t step;
    void *params_before; /* [param_count]: parameters that the step started from */
    void *grads;         /* reduced gradient */
    void *params_after;
    void *buffers;    /* [buffer_count] of dtype: of the rank's first device, after the step */
    int64_t *tracked; /* [tracked_count] */
    double loss;      /* of the rank's batch, as the run's loss and reduction say */
    void *state;      /* [state_count][param_count] of dtype: the optimizer's buffers after the step */
    uint64_t state_count;
    ls_bucket *plan; /* [plan_count]; 0: no buckets */
    uint64_t plan_count;
    ls_collective *collectives; /* [collective_count], begun since the record before, in order */
    uint64_t collective_count;
} ls_capture_reduced;

/* Appends a record. */
ls_rc ls_capture_write_local(FILE *file, const ls_model *model, ls_dtype dtype, const ls_capture_local *record);
ls_rc ls_capture_write_reduced(FILE *file, const ls_model *model, ls_dtype dtype, const ls_capture_reduced *record);

/* Reads the next record into memory that the record owns (ls_capture_free_*). *end is set at the end of the file. */
ls_rc ls_capture_read_local(FILE *file, const ls_model *model, ls_dtype dtype, ls_capture_local *record, bool *end);
ls_rc ls_capture_read_reduced(FILE *file, const ls_model *model, ls_dtype dtype, ls_capture_reduced *record, bool *end);
void ls_capture_free_local(ls_capture_local *record);
void ls_capture_free_reduced(ls_capture_reduced *record);

/* "<run_dir>/capture-<device>.bin" and "<run_dir>/reduced-<rank>.bin". */
void ls_capture_path_local(const char *run_dir, size_t device, char *path, size_t size);
void ls_capture_path_reduced(const char *run_dir, size_t rank, char *path, size_t size);

#endif
