/* A collective of MPI on host memory. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro_collective.h"
#include "bench/micro_ops.h"
#include "impls/mpi_check.h"

typedef struct mpi_job {
    ls_micro_place *place;
    ls_micro_job job;
    const ls_micro_collective *collective;
    const ls_micro_type *type;
    const ls_micro_redop *redop;
    size_t whole, sends, receives; /* elements */
    void *send, *recv;             /* in place recv alone, except where part is */
    void *fresh;                   /* what an iteration reads, and how much of it */
    size_t fresh_bytes;
    ls_micro_call call;
} mpi_job;

static void mpi_close(void *self) {
    mpi_job *j = self;
    if (j != NULL) {
        free(j->send);
        free(j->recv);
        free(j);
    }
}

static ls_rc open_all(mpi_job *j) {
    size_t world = j->place->world, size = j->type->size;
    j->whole = ls_micro_elements(j->collective, j->job.bytes, size, world);
    j->sends = j->collective->sends_all ? j->whole : j->whole / world;
    j->receives = j->collective->receives_all ? j->whole : j->whole / world;
    if (j->whole > INT_MAX) {
        return ls_fail(LS_BAD_INPUT, "MPI counts are int: %zu elements are too many", j->whole);
    }
    j->send = ls_calloc(j->sends, size, "the buffers of a collective");
    j->recv = ls_calloc(j->whole, size, "the buffers of a collective");
    if (j->send == NULL || j->recv == NULL) {
        return LS_DEVICE_FAILED;
    }
    /* MPI's broadcast is in place always; in place all-gather reads the rank's part of what it writes. */
    bool inside = j->job.in_place || (j->collective->rooted && !j->collective->reduces);
    size_t part = j->collective->sends_all ? 0 : j->place->rank * (j->whole / world) * size;
    j->fresh = inside ? (char *)j->recv + part : j->send;
    j->fresh_bytes = j->sends * size;
    j->call = (ls_micro_call){
        .send = inside ? j->fresh : j->send,
        .recv = j->recv,
        .count = j->sends < j->receives ? j->sends : j->receives,
        .type = j->type,
        .redop = j->redop,
        .root = (int)j->job.root,
        .in_place = j->job.in_place,
    };
    return LS_OK;
}

static ls_rc mpi_open(ls_micro_place *place, const ls_micro_job *job, void **self) {
    mpi_job *j = ls_calloc(1, sizeof *j, "a collective");
    *self = j;
    if (j == NULL) {
        return LS_DEVICE_FAILED;
    }
    j->place = place;
    j->job = *job;
    j->collective = &ls_micro_collectives[job->collective];
    j->type = &ls_micro_types[job->type];
    j->redop = &ls_micro_redops[job->redop];
    return open_all(j);
}

static ls_rc rewrite(void *self) {
    mpi_job *j = self;
    memset(j->fresh, 0x3f, j->fresh_bytes);
    return LS_OK;
}

static ls_rc run(void *self) {
    mpi_job *j = self;
    LS_MPI(j->collective->mpi(&j->call));
    return LS_OK;
}

static ls_rc mpi_measure(void *self, size_t iterations, double *seconds) {
    mpi_job *j = self;
    return ls_micro_time(j->place, j, rewrite, run, iterations, seconds);
}

static ls_rc mpi_check(void *self, uint64_t *wrong) {
    mpi_job *j = self;
    size_t world = j->place->world, rank = j->place->rank;
    memset(j->recv, 0xa5, j->whole * j->type->size);
    ls_micro_fill(j->collective, j->type, j->redop, world, rank, j->sends, j->fresh);
    LS_TRY(run(j));
    *wrong = ls_micro_count_wrong(j->collective, j->type, j->redop, world, rank, j->job.root, j->whole, j->receives,
                                  j->recv);
    return LS_OK;
}

const ls_micro_op ls_micro_op_mpi = {
    .name = "mpi", .open = mpi_open, .measure = mpi_measure, .check = mpi_check, .close = mpi_close};
