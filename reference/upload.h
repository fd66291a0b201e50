/* Uploads: arrays of a batch from the host to fixed places on a device, so that kernels and graphs read the same addresses in
 * every step.
 *
 * With a stream of copies apart from the one that computes, host memory is read into staging memory beside the kernels of the
 * steps before, and the stream that computes has only a copy on the device to make. Two stages serve in turn, ordered by two events
 * each: `arrived`, after the copies from the host; `free`, after the copies out of the stage. Nothing is allocated and nothing
 * waits on the host in a step. */
#ifndef LS_REFERENCE_UPLOAD_H
#define LS_REFERENCE_UPLOAD_H

#include "gpu/gpu.h"

enum { LS_UPLOAD_STAGES = 2 };

typedef struct ls_upload_stage {
    void *memory; /* NULL: none */
    cudaEvent_t arrived, free;
} ls_upload_stage;

/* Zeros: not open. */
typedef struct ls_upload {
    cudaStream_t compute, copies; /* the same: without staging */
    size_t bytes;                 /* of a stage */
    size_t next;                  /* stage of the next upload */
    ls_upload_stage stages[LS_UPLOAD_STAGES];
} ls_upload;

/* One array of an upload. */
typedef struct ls_upload_part {
    void *to;         /* on the device */
    const void *from; /* on the host, unchanged until the stream of copies has read it; pinned, or it is read at once */
    size_t bytes;
} ls_upload_part;

/* Bytes that an array takes of a stage. */
size_t ls_upload_room(size_t bytes);

/* The stream that copies batches to the current device, whose kernels run on compute: a new one where the device has a copy
 * engine, which the caller destroys, else compute itself. */
ls_rc ls_upload_stream(cudaStream_t compute, cudaStream_t *out);

/* Onto the current device. bytes: the sum of ls_upload_room over the arrays of the largest upload. Both streams must outlive the
 * upload. After a failure ls_upload_close frees what is there. */
ls_rc ls_upload_open(ls_upload *upload, cudaStream_t compute, cudaStream_t copies, size_t bytes);
/* Frees it; a no-op for zeros. rc: see LS_CLOSE. */
void ls_upload_close(ls_upload *upload, ls_rc *rc);

/* Room for larger uploads than at open, made when there is less. Waits for the device then. */
ls_rc ls_upload_reserve(ls_upload *upload, size_t bytes);

/* Enqueues an upload: what is enqueued on compute afterwards reads it, and it writes over nothing that what has been enqueued on
 * compute before still reads. More bytes than there is room for are refused with LS_BAD_INPUT. */
ls_rc ls_upload_run(ls_upload *upload, const ls_upload_part *parts, size_t count);

#endif
